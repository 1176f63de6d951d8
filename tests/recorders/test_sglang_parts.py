"""Parts of the SGLang recorder that need no SGLang: trees on the device, the plugin, the doctor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spectrace_sglang.plugin as plugin
from spectrace_sglang import register
from spectrace_sglang.doctor import examine
from spectrace_sglang.hooks import HOOKS, RegistryHook


def signature(hook: RegistryHook) -> str:
    """A function that fits."""
    names = [*(["self"] if hook.cls else []), *hook.parameters, "more=None"]
    return f"def {hook.name}({', '.join(names)}): ..."


def make_sglang(folder: Path, **changed: str) -> None:
    """Writes source that looks like SGLang's, with some functions changed by their name."""
    for hook in HOOKS:
        file = folder.joinpath("sglang", *hook.module.split(".")).with_suffix(".py")
        for parent in reversed(file.relative_to(folder).parents[:-1]):
            (folder / parent).mkdir(exist_ok=True)
            (folder / parent / "__init__.py").touch()
        line = changed.get(hook.name, signature(hook))
        text = file.read_text() if file.exists() else ""
        if hook.cls is not None and f"class {hook.cls}" not in text:
            text += f"class {hook.cls}:\n"
        file.write_text(text + ("    " if hook.cls else "") + line + "\n")


@pytest.fixture
def sglang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, for source that looks like SGLang's; what is imported of it goes with it."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in _imported():
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in _imported():
        del sys.modules[name]


def _imported() -> list[str]:
    """Modules of SGLang, real or not."""
    return [name for name in sys.modules if name.split(".")[0] == "sglang"]


def test_registering_without_a_folder_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called in every process of SGLang, most of which record nothing."""
    monkeypatch.delenv("SPECTRACE_OUT", raising=False)
    before = set(sys.modules)
    register()
    assert not {name for name in set(sys.modules) - before if name.split(".")[0] in ("sglang", "torch")}


def test_registering_outside_a_scheduler_imports_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The detokenizer loads plugins too; a process that has no scheduler has nothing to record."""
    monkeypatch.setenv("SPECTRACE_OUT", str(tmp_path))
    before = set(sys.modules)
    register()
    assert not {name for name in set(sys.modules) - before if name.split(".")[0] in ("sglang", "torch")}


def test_registering_beside_another_sglang_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, sglang: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a function that is needed has other parameters, nothing is hooked and the log says what to do."""
    make_sglang(sglang, eagle_sample="def eagle_sample(batch): ...")
    registry = _registry(sglang, monkeypatch)
    monkeypatch.setenv("SPECTRACE_OUT", str(sglang / "traces"))
    register()
    assert not registry
    assert "eagle_sample takes (batch), expected (verify_input, batch, logits_output, ..)" in caplog.text
    assert "newer spectrace-tui" in caplog.text


def test_what_fits_is_registered_once(monkeypatch: pytest.MonkeyPatch, sglang: Path) -> None:
    """A function that is only useful and has gone is left out; a second call changes nothing."""
    make_sglang(sglang, draft_forward="def draft_forwards(self): ...")
    registry = _registry(sglang, monkeypatch)
    monkeypatch.setenv("SPECTRACE_OUT", str(sglang / "traces"))
    register()
    register()
    expected = [hook.target for hook in HOOKS if hook.name != "draft_forward"]
    assert sorted(registry) == sorted(expected)


def test_hooks_do_nothing_until_a_scheduler_has_its_models(
    monkeypatch: pytest.MonkeyPatch, sglang: Path
) -> None:
    """Warm-up and other processes run the original, with its arguments and its result."""
    make_sglang(sglang)
    registry = _registry(sglang, monkeypatch)
    monkeypatch.setenv("SPECTRACE_OUT", str(sglang / "traces"))
    register()
    for around in registry.values():
        assert around(lambda *args, **kwargs: (args, kwargs), "self", 1, b=2) == (("self", 1), {"b": 2})
    assert not (sglang / "traces").exists()


def _registry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is handed to SGLang's registry, by target."""
    plugins = folder / "sglang" / "srt" / "plugins"
    plugins.mkdir()
    (plugins / "__init__.py").touch()
    (plugins / "hook_registry.py").write_text(
        "class HookType:\n    AROUND = 'around'\n"
        "class HookRegistry:\n    found = {}\n"
        "    @classmethod\n    def register(cls, target, hook, kind):\n"
        "        assert target not in cls.found\n        cls.found[target] = hook\n"
    )
    import importlib

    registry = importlib.import_module("sglang.srt.plugins.hook_registry")
    monkeypatch.setitem(sys.modules, "sglang.srt.managers.scheduler", registry)
    monkeypatch.setattr(plugin, "_is_registered", False)
    monkeypatch.setattr(plugin, "_problems", [])
    monkeypatch.setattr(plugin, "_recording", None)
    handed: dict[str, Any] = registry.HookRegistry.found
    return handed


# --- doctor -------------------------------------------------------------------------------------------


def test_sglang_is_read_and_not_imported(sglang: Path) -> None:
    """Its source is parsed; a function with other parameters does not fit, one that is not there neither."""
    make_sglang(sglang, draft="def draft(self, requests): ...", eagle_sample="")
    hooks = {hook["name"]: hook for hook in examine()["hooks"]}
    assert hooks["Scheduler.init_model_worker"]["fits"]
    assert hooks["EagleDraftWorker.draft"]["problem"].startswith("EagleDraftWorker.draft takes (requests)")
    assert hooks["eagle_sample"]["problem"] == "eagle_sample is not there"
    assert any("nothing would be recorded" in advice for advice in examine()["advice"])
    assert "sglang" not in sys.modules


def test_sglang_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SGLang the advice is to install it."""
    monkeypatch.setattr("spectrace_serving.hooks.find_spec", lambda name: None)
    assert "not installed" in examine()["advice"][0]


def test_a_list_of_plugins_without_ours_is_named(monkeypatch: pytest.MonkeyPatch, sglang: Path) -> None:
    """SGLANG_PLUGINS leaves out what it does not name; empty it leaves out nothing."""
    make_sglang(sglang)
    monkeypatch.setenv("SGLANG_PLUGINS", "other, one")
    assert any(advice.startswith("SGLANG_PLUGINS leaves") for advice in examine()["advice"])
    monkeypatch.setenv("SGLANG_PLUGINS", "other, spectrace")
    assert not any(advice.startswith("SGLANG_PLUGINS") for advice in examine()["advice"])
    monkeypatch.setenv("SGLANG_PLUGINS", "")
    assert not any(advice.startswith("SGLANG_PLUGINS") for advice in examine()["advice"])


# --- trees --------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """Parents of the nodes after the root: each has a smaller index."""
    return [draw(st.integers(0, node)) for node in range(draw(st.integers(0, 24)))]


@given(st.lists(trees(), min_size=1, max_size=3))
def test_parents_are_read_off_children_and_siblings(given_trees: list[list[int]]) -> None:
    """The links that SGLang keeps, first child and next sibling, give every parent back."""
    torch = pytest.importorskip("torch")
    from spectrace_sglang.tree import UNLINKED, parents_of

    n = max(len(tree) for tree in given_trees) + 1
    links = np.full((2, len(given_trees), n), -1)
    for at, tree in enumerate(given_trees):
        last: dict[int, int] = {}
        for node, parent in enumerate(tree, 1):
            if parent in last:
                links[1, at, last[parent]] = node
            else:
                links[0, at, parent] = node
            last[parent] = node
    found = parents_of(torch.from_numpy(links[0]), torch.from_numpy(links[1])).tolist()
    for tree, parents in zip(given_trees, found):
        assert parents == [UNLINKED, *tree, *[UNLINKED] * (n - 1 - len(tree))]


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.lists(st.lists(st.integers(-20, 20), min_size=n, max_size=n), min_size=2, max_size=2)
    )
)
def test_links_that_make_no_tree_end(links: list[list[int]]) -> None:
    """Circles and indices that point nowhere give an answer in range; what hangs on the root is a tree."""
    torch = pytest.importorskip("torch")
    from spectrace_sglang.join import linked
    from spectrace_sglang.tree import parents_of

    parents = parents_of(torch.tensor(links[:1]), torch.tensor(links[1:]))[0]
    nodes, places = linked(parents.numpy())
    assert all(0 < node < len(parents) for node in nodes)
    assert all(-1 <= place < at for at, place in enumerate(places))


@pytest.mark.parametrize("topk", [1, 2, 4])
def test_a_place_in_the_list_says_depth_row_and_rank(topk: int) -> None:
    """First topk choices, then topk after each of topk rows, depth by depth."""
    torch = pytest.importorskip("torch")
    from spectrace_sglang.tree import places_of

    expected = [(0, 0, rank) for rank in range(topk)]
    expected += [(d, row, rank) for d in (1, 2) for row in range(topk) for rank in range(topk)]
    found = places_of(torch.arange(len(expected)).unsqueeze(0), topk)
    assert list(zip(*(part[0].tolist() for part in found))) == expected
