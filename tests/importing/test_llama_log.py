"""The log of llama-server, line by line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spectrace.analysis.acceptance import accept_length, acceptance_rate
from spectrace.errors import ImportFailed
from tests.importing.test_sources import DATA, imported

SLOT = b"0.01.000.000 D slot update_slots: id  0 | task 7 | "


def candidate(rank: int, depth: int, token: int, seq: bytes = b" - seq_id 0, ") -> bytes:
    """A line about a candidate."""
    return b"D spec draft: %bdraft candidate %3d, pos %3d: %6d (   0.500) ' w'\n" % (seq, rank, depth, token)


def drafted(root: int, tokens: int, drafts: int) -> bytes:
    """The line that begins a round."""
    return SLOT + b"generate_draft: id=%d, #tokens=%d, #draft=%d, pos_next=%d\n" % (
        root,
        tokens,
        drafts,
        tokens,
    )


def added(token: int, ids: int, drafts: int) -> bytes:
    """The line that ends one."""
    return SLOT + b"add accepted tokens: sampled=%d, ids.size=%d, n_draft=%d\n" % (token, ids, drafts)


def test_what_the_server_prints_at_the_end_comes_out(tmp_path: Path) -> None:
    """Of each task: drafted and accepted tokens, and the mean length to the digits that are printed."""
    log = (DATA / "llama-server.log").read_bytes()
    printed = re.findall(
        rb"task (\d+) \| draft acceptance = (\S+) \( *(\d+) accepted / +(\d+) generated\), mean len = +(\S+)",
        log,
    )
    assert len(printed) == 2
    for task, rate, accepted, generated, mean in printed:
        own = [
            line for line in log.splitlines(keepends=True) if b"draft cand" in line or b"task " + task in line
        ]
        with imported(tmp_path, own) as trace:
            assert [request.request for request in trace.requests] == [f"task {task.decode()}"]
            assert (trace.counts.accepted, trace.counts.drafted) == (int(accepted), int(generated))
            assert acceptance_rate(trace.counts) == pytest.approx(float(rate), abs=5e-6)
            assert accept_length(trace.counts) == pytest.approx(float(mean), abs=5e-3)
            assert trace.run.reported == {"acceptance_rate": float(rate), "accept_length": float(mean)}


def test_a_round_has_its_ids(tmp_path: Path) -> None:
    """First candidates are what was drafted, but for those too unlikely; the target's own token ends it."""
    log = [
        *(candidate(rank, depth, 100 * (rank + 1) + depth) for depth in range(3) for rank in range(3)),
        drafted(9, 20, 2),
        added(55, 2, 2),
        SLOT + b"accepted 1/2 draft tokens, new n_tokens = 22\n",
    ]
    with imported(tmp_path, log) as trace:
        (step,) = trace
        assert (step.position, step.proposal_ids, step.emitted_ids) == (21, (100, 101), (100, 55))
        assert step.num_accepted == 1
        assert step.draft_top is None
        assert "renormalised" in trace.run.capture.unavailable["draft_top"]
        assert '"draft_candidates":[[[100,0.5],[200,0.5],[300,0.5]]' in step.extra
        assert trace.token_text(100) == " w"


def test_slots_are_told_apart(tmp_path: Path) -> None:
    """Two slots draft at once; each proposal is that of its own slot."""
    other = SLOT.replace(b"id  0 | task 7", b"id  1 | task 8")
    log = [
        candidate(0, 0, 11), candidate(0, 0, 21, b" - seq_id 1, "),
        candidate(0, 1, 12), candidate(0, 1, 22, b" - seq_id 1, "),
        drafted(9, 20, 2), drafted(8, 30, 2).replace(SLOT, other),
        added(13, 3, 2), added(24, 1, 2).replace(SLOT, other),
    ]  # fmt: skip
    with imported(tmp_path, log) as trace:
        one, two = trace
        assert (one.request, one.proposal_ids, one.emitted_ids) == ("task 7", (11, 12), (11, 12, 13))
        assert (two.request, two.proposal_ids, two.emitted_ids) == ("task 8", (21, 22), (24,))
        assert (one.final_kind, two.final_kind) == ("bonus", None)


def test_drafts_of_no_model_have_counts(tmp_path: Path) -> None:
    """An n-gram lookup logs no candidates: how many were drafted and accepted is known all the same."""
    with imported(tmp_path, [drafted(9, 20, 3), added(55, 3, 3)]) as trace:
        (step,) = trace
        assert (step.proposal_ids, step.emitted_ids) == ((None,) * 3, (None, None, 55))
        assert step.num_accepted == 2


def test_a_log_that_begins_in_the_middle(tmp_path: Path) -> None:
    """The end of a round whose beginning is not there says nothing; the next round is read."""
    log = [added(1, 2, 3), drafted(9, 20, 1), added(5, 1, 4), drafted(5, 21, 2), added(6, 3, 2)]
    with imported(tmp_path, log) as trace:
        assert [step.position for step in trace] == [22]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """Pieces of characters, newlines and terminal escapes inside the log."""
    nasty = candidate(0, 0, 11).replace(b"' w'", b"'\xe2\x96'")
    broken = candidate(0, 1, 12).replace(b"' w'", b"'\n'")
    escape = candidate(1, 1, 13).replace(b"' w'", b"'\x1b[2J'")
    log = [nasty, *broken.splitlines(keepends=True), escape, drafted(9, 20, 2), added(5, 3, 2)]
    with imported(tmp_path, log) as trace:
        (step,) = trace
        assert step.proposal_ids == (11, 12)
        assert trace.token_text(11) == "\\xe2\\x96"
        assert trace.token_text(12) is None


def test_a_contradiction_names_its_line(tmp_path: Path) -> None:
    """More committed than drafted and one."""
    with pytest.raises(ImportFailed, match="line 2: task 7 commits 9 tokens after 2 draft tokens"):
        imported(tmp_path, [drafted(9, 20, 2), added(5, 9, 2)])
    with pytest.raises(ImportFailed, match="line 1: 999,999,999 draft tokens"):
        imported(tmp_path, [drafted(9, 20, 999_999_999)])
