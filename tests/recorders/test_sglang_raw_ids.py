"""Raw ids of a draft in SGLang: its own choices where they are seen, else what the map has once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.recorders import sglang_fake_models as models  # noqa: E402
from tests.recorders.serving_fakes import KEPT, OFFSET  # noqa: E402
from tests.recorders.serving_traces import by_request, header  # noqa: E402
from tests.recorders.sglang_records import parents_in, record, scheduler  # noqa: E402


@pytest.fixture(params=[1, 2], ids=["chain", "tree"])
def live(request: pytest.FixtureRequest) -> Any:
    """A scheduler that proposes chains, and one that proposes trees."""
    return scheduler(request.param)


def test_a_drawn_token_is_known_by_the_map(tmp_path: Path) -> None:
    """With rejection sampling the draft draws: its raw ids are not its first choices."""
    live = scheduler()
    live.server_args.speculative_use_rejection_sampling = True
    original = live._draft_forward

    def drawn(*args: Any) -> Any:
        parents, places, tokens, _ = original(*args)
        return parents, places, torch.cat((tokens[:, :1], tokens[:, 1:] + 3), 1), None

    live._draft_forward = drawn
    for steps in by_request(record(live, tmp_path, rounds=2)).values():
        for step in steps[1:]:
            assert [raw + OFFSET for raw in step.draft_ids] == list(step.proposal_ids)


def test_raw_ids_of_no_numbers_go_through_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of logits that are all NaN an engine takes some token; its raw id is the one that stands for it."""
    live = scheduler()
    monkeypatch.setattr(models, "draft_logits", lambda read: torch.full((len(read), KEPT), torch.nan))
    original = live._draft_forward

    def grown(*args: Any) -> Any:
        parents, places, tokens, _ = original(*args)
        return parents, places, tokens.clone().index_fill_(1, torch.tensor([tokens.shape[1] - 1]), 30), None

    live._draft_forward = grown
    for steps in by_request(record(live, tmp_path, rounds=2)).values():
        for step in steps[1:]:
            assert [raw + OFFSET for raw in step.draft_ids] == list(step.proposal_ids)
            assert step.nonfinite["draft_logits"] > 0


def test_where_a_graph_hides_the_draft_the_map_gives_raw_ids(live: Any, tmp_path: Path) -> None:
    """What is missing is named with its reason; a raw id is what the map has in one place only."""
    live.is_graph, live.server_args.disable_cuda_graph = True, False
    path = record(live, tmp_path)
    step = by_request(path)["a"][2]
    assert [raw + OFFSET for raw in step.draft_ids] == list(step.proposal_ids)
    assert step.draft_logprobs is None
    capture = header(path).capture
    assert capture.mode == "graph"
    assert "graph capture" in capture.unavailable["draft_logprobs"]
    assert "draft_ids" not in capture.unavailable


def test_a_map_with_repeated_ids_does_not_tell_raw_ids(tmp_path: Path) -> None:
    """Then a replayed graph leaves them unknown, and the header says so."""
    live = scheduler()
    live.is_graph, live.server_args.disable_cuda_graph = True, False
    live.drafter.hot_token_id[7] = live.drafter.hot_token_id[8]
    path = record(live, tmp_path)
    assert by_request(path)["a"][2].draft_ids is None
    assert "draft_ids" in header(path).capture.unavailable


def test_raw_ids_are_the_drafts_own(live: Any, tmp_path: Path) -> None:
    """With a map that sends two raw ids to one target id, the raw id is still the one that was chosen."""
    live.drafter.hot_token_id[:] = torch.arange(KEPT) // 2 + 8
    for steps in by_request(record(live, tmp_path, rounds=2)).values():
        for step, before in zip(steps[1:], steps):
            read = [before.emitted_ids[-1], *step.proposal_ids]
            for node, parent in enumerate(parents_in(step)):
                row = models.draft_logits(torch.tensor(read[parent + 1 : parent + 2]))[0]
                assert step.draft_ids[node] in row.topk(2).indices.tolist()
                assert step.proposal_ids[node] == step.draft_ids[node] // 2 + 8
