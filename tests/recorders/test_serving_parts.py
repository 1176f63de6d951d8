"""Parts that recorders of serving engines share and that need neither an engine nor torch.

Settings, and what a scheduler keeps of what was sampled.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrace.errors import UsageError
from spectrace_serving.requests import Progress, Started
from spectrace_serving.settings import Settings, from_environment


def test_nothing_is_recorded_unless_a_folder_is_named() -> None:
    """Without SPECTRACE_OUT there are no settings."""
    assert from_environment({"SPECTRACE_CAPTURE": "ids"}) is None


def test_every_variable_is_read(tmp_path: Path) -> None:
    """The variables say folder, level, choice and budget."""
    found = from_environment(
        {
            "SPECTRACE_OUT": str(tmp_path),
            "SPECTRACE_CAPTURE": "ids",
            "SPECTRACE_SAMPLE": "1/4",
            "SPECTRACE_MAX_BYTES": "2M",
        }
    )
    assert found == Settings(out=tmp_path, is_full=False, every=4, max_bytes=2 << 20)


def test_a_share_is_chosen_by_name(tmp_path: Path) -> None:
    """About the share asked for, the same requests every time."""
    settings = Settings(out=tmp_path, share=0.25)
    taken = [settings.takes(0, f"request-{number}") for number in range(4000)]
    assert taken == [settings.takes(7, f"request-{number}") for number in range(4000)]
    assert 0.2 < sum(taken) / len(taken) < 0.3


@pytest.mark.parametrize("text", ["0", "-1", "1/", "1/-2", "nan", "1e9", "half"])
def test_a_choice_that_means_nothing_is_refused(text: str, tmp_path: Path) -> None:
    """The sentence names the variable and what it said."""
    with pytest.raises(UsageError, match="SPECTRACE_SAMPLE"):
        from_environment({"SPECTRACE_OUT": str(tmp_path), "SPECTRACE_SAMPLE": text})


# --- what a scheduler keeps ---------------------------------------------------------------------------


STOP = 9
TOKENS = st.lists(st.integers(0, STOP), min_size=1, max_size=24)
LIMITS = st.none() | st.integers(1, 30)


def progress(max_tokens: int | None) -> Progress:
    """A request that has come."""
    return Progress(
        Started(
            request="r",
            prefix_hit_length=0,
            is_greedy=True,
            stop_ids=frozenset({STOP}),
            max_tokens=max_tokens,
        )
    )


def in_steps(
    request: Progress, tokens: list[int], size: int, prompt: int, max_length: int | None
) -> list[int]:
    """The text of a request whose engine samples so many tokens a step, until the scheduler ends it."""
    text: list[int] = []
    while tokens and not request.is_over:
        sampled, tokens = tokens[:size], tokens[size:]
        kept, stop = request.committed(prompt + len(text), sampled, max_length)
        assert kept == sampled[: len(kept)]
        assert stop is not None or kept == sampled
        text += kept
        request.advance(kept, stop)
    return text


@given(TOKENS, st.integers(1, 8), LIMITS, LIMITS, st.integers(1, 10))
def test_a_text_is_the_same_in_whichever_steps_it_comes(
    tokens: list[int], size: int, max_tokens: int | None, max_length: int | None, prompt: int
) -> None:
    """Speculation changes no text: several tokens at a time are cut where one at a time would have ended."""
    fast, slow = progress(max_tokens), progress(max_tokens)
    text = in_steps(fast, tokens, size, prompt, max_length)
    assert text == in_steps(slow, tokens, 1, prompt, max_length)
    assert (fast.num_emitted, fast.is_over) == (slow.num_emitted, slow.is_over)
    assert fast.num_emitted == len(text)
    assert STOP not in text[:-1]
    # One token is always made: a prompt of the longest length still gets it.
    ends = [limit for limit in (max_tokens, None if max_length is None else max_length - prompt) if limit]
    assert all(len(text) <= max(limit, 1) for limit in ends)
    assert fast.is_over or text == tokens


@pytest.mark.parametrize(
    ("sampled", "max_tokens", "max_length", "expected"),
    [
        ([1, 2, 3], None, None, ([1, 2, 3], None)),
        ([1, STOP, 3], None, None, ([1, STOP], "eos")),
        ([1, 2, 3], 2, None, ([1, 2], "length")),
        ([1, 2, 3], None, 6, ([1], "length")),
        ([1, STOP], 2, None, ([1, STOP], "eos")),  # the end of a text goes before a limit
        ([1, 2], 3, None, ([1, 2], None)),
    ],
)
def test_what_ends_a_text(
    sampled: list[int], max_tokens: int | None, max_length: int | None, expected: tuple[list[int], str | None]
) -> None:
    """Behind five tokens of a prompt: the token that ends it, what was asked for, the longest length."""
    assert progress(max_tokens).committed(5, sampled, max_length) == expected
