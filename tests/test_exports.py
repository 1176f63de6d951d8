"""The names that `import spectrace` promises: all there, and no others."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import spectrace


def _public_names() -> set[str]:
    """What the root holds, without private names, modules and the `annotations` of `__future__`."""
    return {
        name
        for name in dir(spectrace)
        if not name.startswith("_")
        and name != "annotations"
        and not isinstance(getattr(spectrace, name), ModuleType)
    }


def test_all_lists_what_the_root_holds() -> None:
    """`__all__` and `dir()` agree, so completion, documentation and star imports do too."""
    assert {name for name in spectrace.__all__ if not name.startswith("__")} == _public_names()


def test_all_is_sorted_and_without_repetition() -> None:
    """A name is listed once, where a reader looks for it."""
    assert len(spectrace.__all__) == len(set(spectrace.__all__))


@pytest.mark.parametrize("name", spectrace.__all__)
def test_every_listed_name_resolves(name: str) -> None:
    """Each promised name is there and is documented."""
    found = getattr(spectrace, name)
    if isinstance(found, type) or callable(found):
        assert found.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as on any module, and the message repeats it."""
    misspelt = "TraceReeder"
    with pytest.raises(AttributeError, match=misspelt):
        getattr(spectrace, misspelt)


def test_a_star_import_in_a_new_interpreter_gives_every_name() -> None:
    """The lazy names also resolve when nothing else was imported before."""
    program = (
        "import spectrace\n"
        "names = {}\n"
        "exec('from spectrace import *', names)\n"
        "assert set(spectrace.__all__) <= set(names), set(spectrace.__all__) - set(names)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
