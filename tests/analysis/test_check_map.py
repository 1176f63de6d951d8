"""The vocabulary map of a checkpoint: the story's figures, and every way in which a map is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from spectrace.analysis.diagnosis.verdict import Strength
from spectrace.analysis.draft.facts import gather
from spectrace.analysis.draft.map_verdicts import judge_map
from spectrace.analysis.draft.report import CheckReport, check_draft
from spectrace.analysis.draft.vocab_map import MapReport, read_map
from spectrace.checkpoint.config import Config
from spectrace.checkpoint.directory import open_checkpoint
from spectrace.checkpoint.records import Checkpoint, Tensor, VocabTable
from tests.checkpoint.building import KEPT, d2t_of, llama_config, story_map, t2d_of, target_config

D2T, T2D = d2t_of(KEPT), t2d_of(KEPT, 32)


def checkpoint(d2t: Any, t2d: Any = None, *, vocab: int = 32, draft_vocab: int | None = None) -> Checkpoint:
    """A draft of which only map and head rows matter."""
    rows = len(d2t) if draft_vocab is None else draft_vocab
    head = Tensor(name="lm_head.weight", dtype="BF16", shape=(rows, 16), file="x")
    return Checkpoint(
        path=Path("draft"),
        config=Config(llama_config(vocab, rows)),
        tensors={"lm_head.weight": head},
        table=VocabTable(source="draft", d2t=None if d2t is None else np.asarray(d2t), t2d=t2d),
    )


def target(vocab: int = 32) -> Checkpoint:
    """A target of which only the vocabulary matters."""
    return Checkpoint(path=Path("target"), config=Config(target_config(vocab)), tensors={})


def check(draft: Checkpoint, others: Any = None, vocab: int = 32) -> CheckReport:
    """The whole check."""
    return check_draft(draft, target(vocab), others)


def map_findings(report: CheckReport) -> dict[str, Strength]:
    """Findings about the map alone."""
    return {item.id: item.strength for item in report.findings if item.id.startswith("vocab-map/")}


def read(d2t: Any, t2d: Any = None, vocab: int = 32) -> MapReport:
    """Both readings of a table that can be read."""
    draft = checkpoint(d2t, t2d, vocab=vocab)
    assert draft.table is not None
    report = read_map(draft.table, gather(draft, target(vocab)))
    assert report is not None
    return report


def test_the_story_is_told_with_its_figures() -> None:
    """32,000 of 163,840 ids: ten zeros first, offsets all different and exactly t2d, direct only 20,954."""
    d2t, t2d = story_map()
    report = check(checkpoint(d2t, t2d, vocab=163_840), vocab=163_840)
    found = report.map
    assert found is not None
    assert found.first == (0,) * 10
    assert dict(found.samples) == {100: 0, 1000: 787}
    assert (found.offset.distinct, found.offset.equals_mask, found.offset.out_of_range) == (32_000, True, 0)
    assert np.array_equal(found.offset.ids, np.flatnonzero(t2d))
    assert (found.direct.distinct, found.direct.equals_mask) == (20_954, False)
    assert found.sentence.startswith("The map is sound: d2t holds offsets")
    assert map_findings(report) == {}
    assert {"vocab-map/absolute-table", "vocab-map/missing"} <= {item.id for item in report.cleared}


def test_h1_reads_its_offsets() -> None:
    """H1 of the design: 8 different ids as offsets, 5 as target ids, 5 of them in the mask."""
    found = read(D2T, T2D)
    assert found.meaning == "offset"
    assert (found.offset.distinct, found.offset.in_mask, found.offset.equals_mask) == (8, 8, True)
    assert (found.direct.distinct, found.direct.in_mask, found.direct.equals_mask) == (5, 5, False)


def test_h2_an_identity_between_equal_vocabularies_is_sound() -> None:
    """H2 of the design: 64 zeros and a full mask are a map."""
    report = check(checkpoint(np.zeros(64, np.int64), np.ones(64, bool), vocab=64), vocab=64)
    assert map_findings(report) == {}
    assert "both vocabularies are equal" in next(c.summary for c in report.cleared if c.id == "vocab-map")


def test_zeros_are_sound_where_the_mask_marks_the_first_ids() -> None:
    """A draft of the target's first eight ids needs no other map."""
    report = check(checkpoint(np.zeros(8, np.int64), t2d_of(range(8), 32)))
    assert map_findings(report) == {}


@pytest.mark.parametrize(
    ("t2d", "strength"),
    [(np.ones(32, bool), Strength.CERTAIN), (T2D, Strength.CERTAIN), (None, Strength.HINT)],
)
def test_zeros_for_a_smaller_vocabulary_are_a_missing_map(t2d: Any, strength: Strength) -> None:
    """The defaults of the buffers, never filled; without a mask it may be meant."""
    assert map_findings(check(checkpoint(np.zeros(8, np.int64), t2d))) == {"vocab-map/missing": strength}


def test_no_map_for_a_smaller_vocabulary_is_missing() -> None:
    """And none is needed where the vocabularies are equal."""
    assert map_findings(check(checkpoint(None, draft_vocab=8))) == {"vocab-map/missing": Strength.CERTAIN}
    report = check(checkpoint(None, draft_vocab=32))
    assert map_findings(report) == {}
    assert "no map needed" in next(item.summary for item in report.cleared if item.id == "vocab-map")


def test_a_table_of_target_ids_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Every loader would add the draft id once more."""
    for t2d in (T2D, None):
        report = check(checkpoint(np.array(KEPT), t2d))
        assert map_findings(report) == {"vocab-map/absolute-table": Strength.CERTAIN}
    assert report.map is not None
    assert report.map.sentence.startswith("d2t holds target ids")


def test_a_ramp_is_a_default() -> None:
    """0, 1, 2, ... sends draft id i to 2i, whatever else is there."""
    for size in (8, 32):
        report = check(checkpoint(np.arange(size), t2d_of(range(size), 32)))
        assert map_findings(report) == {"vocab-map/ramp-default": Strength.CERTAIN}


HYBRID = [*D2T[:5].tolist(), *KEPT[5:]]
REVERSED = [*KEPT[:6], *D2T[6:].tolist()]


@pytest.mark.parametrize(("d2t", "t2d", "switch"), [(HYBRID, T2D, 5), (REVERSED, T2D, 6)])
def test_a_map_that_changes_its_meaning_says_from_where(d2t: list[int], t2d: Any, switch: int) -> None:
    """Offsets up to an index and target ids from there on, or the other way round."""
    report = check(checkpoint(np.array(d2t), t2d))
    found = next(item for item in report.findings if item.id == "vocab-map/hybrid")
    assert found.evidence["switch"] == {"index": switch}
    first, second = ("offsets", "target ids") if d2t is HYBRID else ("target ids", "offsets")
    assert f"at index {switch}: {first} up to there, {second} from there on" in found.summary


@pytest.mark.parametrize("has_mask", [True, False])
@pytest.mark.parametrize("is_reversed", [True, False])
def test_a_hybrid_at_the_size_of_the_story_is_found(has_mask: bool, is_reversed: bool) -> None:
    """One side of id 20,000 holds target ids; without a mask their order alone tells."""
    d2t, t2d = story_map()
    absolute = slice(None, 20_000) if is_reversed else slice(20_000, None)
    d2t[absolute] += np.arange(32_000)[absolute]
    found = read(d2t, t2d if has_mask else None, vocab=163_840)
    assert (found.meaning, found.switch) == ("hybrid", 20_000)


@pytest.mark.parametrize(
    ("d2t", "vocab", "found"),
    [
        (D2T, 20, {"vocab-map/out-of-range"}),
        (D2T - 5, 32, {"vocab-map/out-of-range"}),
        ([0, 0, -1, 3, 3, 3, 3, 3], 32, {"vocab-map/duplicates"}),
        ([0, 0, 2**62, 0, -(2**62), 0, 0, 0], 32, {"vocab-map/out-of-range"}),
    ],
)
def test_ids_outside_and_ids_twice_are_named(d2t: Any, vocab: int, found: set[str]) -> None:
    """Negative ids, a target too small for the map, absurd values, two draft ids for one target id."""
    assert set(map_findings(check(checkpoint(np.asarray(d2t)), vocab=vocab))) == found


def test_a_mask_of_another_map_is_named() -> None:
    """d2t is a map and t2d is one, but not of the same ids."""
    other = t2d_of([0, 1, 2, 3, 5, 9, 17, 31], 32)
    assert map_findings(check(checkpoint(D2T, other))) == {"vocab-map/stale": Strength.CERTAIN}


def test_a_permuted_map_is_a_hint() -> None:
    """All ids once and exactly t2d, but not ascending: no trained map is built so."""
    order = np.array(KEPT)[[0, 2, 1, 3, 4, 5, 6, 7]]
    assert map_findings(check(checkpoint(order - np.arange(8), T2D))) == {"vocab-map/stale": Strength.HINT}


def test_the_map_of_the_training_run_clears_or_convicts() -> None:
    """Equal entries clear, whatever their type; others name the first difference."""
    draft = checkpoint(D2T, T2D)
    same = VocabTable(source="run/a.pt", d2t=D2T.astype(np.int32))
    changed = VocabTable(source="run/b.pt", d2t=np.where(np.arange(8) == 6, D2T + 1, D2T))
    short = VocabTable(source="run/c.pt", d2t=D2T[:5])
    report = check(draft, [changed, same])
    assert "vocab-map/stale" not in map_findings(report)
    assert "run/a.pt" in next(item.summary for item in report.cleared if item.id == "vocab-map/stale")
    finding = next(item for item in check(draft, [changed, short]).findings if item.id == "vocab-map/stale")
    assert "run/b.pt, nor any of 1 other maps there" in finding.summary
    assert "1 of 8 entries differ, the first at index 6 (11 here, 12 there)" in finding.summary
    assert "8 entries here, 5 there" in check(draft, [short]).findings[0].summary
    for nothing in ([], [VocabTable(source="run/d.pt")], None):
        assert "vocab-map/stale" in {item.id for item in check(draft, nothing).not_checked}


@pytest.mark.parametrize(
    ("d2t", "strength"),
    [
        (D2T.astype(np.float32), Strength.STRONG),
        (D2T.astype(np.int16), Strength.STRONG),
        (D2T + 0.5, Strength.CERTAIN),
        (np.array([np.nan] * 8), Strength.CERTAIN),
        (np.zeros(8, bool), Strength.CERTAIN),
    ],
)
def test_a_map_of_another_type_is_named(d2t: Any, strength: Strength) -> None:
    """Whole numbers in a floating type are read and named, others are no map."""
    assert map_findings(check(checkpoint(d2t, T2D))) == {"vocab-map/dtype": strength}


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_both_usual_types_are_fine(dtype: Any) -> None:
    """TensorRT-LLM keeps int32, the others int64."""
    assert map_findings(check(checkpoint(D2T.astype(dtype), T2D))) == {}


def test_a_map_of_two_axes_is_named() -> None:
    """Its entries may be right; loaders compare shapes."""
    report = check(checkpoint(D2T.reshape(2, 4), T2D, draft_vocab=8))
    assert map_findings(report) == {"vocab-map/dtype": Strength.STRONG}


def test_a_length_that_does_not_fit_is_named() -> None:
    """Against the rows of the head, and the mask against the target."""
    report = check(checkpoint(D2T, T2D, draft_vocab=9))
    finding = next(item for item in report.findings if item.id == "vocab-map/length")
    assert "8 entries, lm_head has 9 rows" in finding.summary
    assert map_findings(check(checkpoint(D2T, T2D), vocab=40)) == {"vocab-map/length": Strength.HINT}


def test_a_mask_that_is_none_is_not_used() -> None:
    """A table of draft ids under the name t2d is no mask; the rest is checked without it."""
    table = np.full(32, -1)
    table[list(KEPT)] = range(8)
    assert map_findings(check(checkpoint(D2T, table))) == {"vocab-map/dtype": Strength.STRONG}


def test_both_readings_may_fit_without_a_mask() -> None:
    """Every second id: the offsets are a map too, so nothing is claimed."""
    report = check(checkpoint([1, 2, 3, 4], vocab=32))
    assert map_findings(report) == {}
    assert "vocab-map/absolute-table" in {item.id for item in report.not_checked}


def test_an_unreadable_map_is_not_called_missing() -> None:
    """A damaged file leaves the question open."""
    draft = checkpoint(None, draft_vocab=8)
    outcomes = list(judge_map(None, draft.table, gather(draft, target()), None, "the file is cut"))
    assert [(item.id, getattr(item, "reason", None)) for item in outcomes] == [
        ("vocab-map", "the file is cut")
    ]


@given(kept=st.sets(st.integers(0, 199), min_size=2, max_size=60), has_mask=st.booleans())
def test_every_sorted_map_is_cleared(kept: set[int], has_mask: bool) -> None:
    """No trained map is called anything but sound, leading zeros or not, with its mask or without."""
    ids = sorted(kept)
    d2t: NDArray[np.int64] = d2t_of(ids)
    report = check(checkpoint(d2t, t2d_of(ids, 200) if has_mask else None, vocab=200), vocab=200)
    if has_mask:
        assert set(map_findings(report)) <= ({"vocab-map/ramp-default"} if d2t.any() else set())
    elif d2t.any() and report.map is not None and report.map.meaning == "offset":
        assert map_findings(report) == {}


def test_a_checkpoint_on_disk_gives_the_same(tmp_path: Path) -> None:
    """From files to figures, bfloat16 weights beside the map included."""
    from tests.checkpoint.building import write_draft

    report = check_draft(open_checkpoint(write_draft(tmp_path), with_values=True), target())
    assert report.map is not None
    assert report.map.meaning == "offset"
    assert {item.id for item in report.findings} == {"tap-layer/guessed"}
