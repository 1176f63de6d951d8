"""What a report says, as plain blocks: what maintainers ask first, in their order, and the answers.

Holds sentences and tables, no markup: `markdown.py` and `html.py` write them and escape every one. A
table's cells and a text may come from a stranger's trace.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spectrace.analysis.acceptance import (
    METRICS,
    SIMULATED_NOTE,
    accept_length,
    acceptance_rate,
    is_simulated,
    own_numbers,
    per_position,
    sampled,
)
from spectrace.analysis.curves import Curves, curves
from spectrace.analysis.diagnosis import Diagnosis, Finding, diagnose
from spectrace.analysis.diagnosis.conclusion import causes, nothing_found
from spectrace.analysis.diagnosis.what_now import what_now
from spectrace.analysis.timing import PHASES, mean_ns, speedup, token_ns
from spectrace.format.counts import Counts, counts_from_mapping
from spectrace.format.figures import count_of, number, value_text, words
from spectrace.format.reader import STATES
from spectrace.report.blocks import Bars, Block, Bullets, Code, Section, Table, Text
from spectrace.report.command import command_line
from spectrace.report.steps import divergent_rows

if TYPE_CHECKING:
    from spectrace.format.reader import Trace
    from spectrace.format.records import Draft, Run, Target

MAX_POSITIONS = 16
MAX_FINDINGS = 12
MAX_LISTED = 24
MAX_SETTINGS = 32
_ZIP = "attach.zip"
_CELL = 160
"""Characters of settings in one row; a table cuts a cell at 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report."""

    title: str
    sections: Sequence[Section]
    curves: Curves
    counts: Counts


def document(
    trace: Trace,
    *,
    name: str | None,
    found: Diagnosis | None = None,
    removed: Sequence[str] = (),
    on_progress: Callable[[int], None] | None = None,
) -> Document:
    """What a report says of a trace.

    Args:
        trace: an open trace, redacted before where that is wanted.
        name: what the reader has to type for the trace; None where nothing was packed yet.
        found: its diagnosis, where there is one already.
        removed: what was taken out of the trace, one sentence each.
        on_progress: told how many steps have been read.
    """
    found = diagnose(trace, on_progress=on_progress) if found is None else found
    counts, drawn = source_counts(trace), curves(trace)
    sections = [
        Section("In short", list(_short(trace, found, counts))),
        Section("What ran", list(_ran(trace.run))),
        Section("On what", list(_workload(trace, found, drawn))),
        Section("How much was accepted", list(_metrics(trace, counts))),
        Section("Where it falls off", list(_positions(counts))),
        Section("Diagnosis", list(_diagnosis(found, trace.run))),
        Section("First divergent steps", list(_divergent(trace))),
        Section("Not checked", list(_not_checked(found))),
        Section("The trace", list(_trace(trace, name, removed))),
    ]
    return Document(title="Speculative decoding report", sections=sections, curves=drawn, counts=counts)


def source_counts(trace: Trace) -> Counts:
    """Counts of the run: of a trace that holds some of its steps only, those of the whole that it carries."""
    packed = trace.run.packed or {}
    if packed.get("is_part") is not True:
        return trace.counts
    return counts_from_mapping(packed.get("source_counts"))


def _short(trace: Trace, found: Diagnosis, counts: Counts) -> Iterator[Block]:
    measured = found.measured
    if not counts.proposals and counts.drafted:
        yield Text(
            f"Only sums over whole requests are known: {counts.accepted:,} of {counts.drafted:,} drafted "
            f"tokens were accepted, a rate of {number(acceptance_rate(counts))}; nothing of single steps."
        )
    elif not counts.proposals:
        yield Text("The trace holds no proposal: nothing was drafted, or nothing of it was recorded.")
    else:
        yield Text(
            f"Accept length {number(accept_length(counts), 2)} (the target's own token counted), "
            f"acceptance rate {number(acceptance_rate(counts))}, alpha1 {measured['alpha1']}, over "
            f"{count_of(counts.proposals, 'proposal')} from {count_of(measured['prompts'], 'prompt')}."
        )
        if (part := sampled(trace.run)) is not None:
            yield Text(f"Sampled: {part} of the requests were recorded.")
        if is_simulated(trace.run):
            yield Text(SIMULATED_NOTE)
    if named := causes(found):
        first = named[0]
        yield Text(f"Found, {first.strength.value}: {first.id}. {first.summary}")
    else:
        yield Text(nothing_found(found))


# --- what ran --------------------------------------------------------------------------------------


def _ran(run: Run) -> Iterator[Block]:
    rows = [(name, value) for name, value in _facts(run) if value]
    yield Table(["", ""], rows) if rows else Text("The header says nothing of what ran.")
    if line := command_line(run):
        yield Text(
            "Recorded by a command like this one; capitals stand for paths, which a trace does not hold:"
        )
        yield Code([line])
    else:
        yield Text("The header does not tell which command recorded it.")


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    if run.engine is not None:
        yield "engine", _joined(run.engine.name, run.engine.version, run.engine.runner)
    yield "method", run.method or ""
    if run.speculation is not None:
        tree = run.speculation.tree
        shape = "" if tree is None else f", tree of {number(tree.num_nodes)} nodes, {number(tree.depth)} deep"
        yield "draft tokens per step", f"{number(run.speculation.num_draft_tokens)}{shape}"
    if run.engine is not None:
        yield from _setting_rows(run.engine.flags)
    for role, model in (("target", run.target), ("draft", run.draft)):
        if model is not None:
            yield role, _model(model)
    if run.verification is not None:
        lossless = {True: "lossless", False: "lossy"}.get(run.verification.lossless or False, "")
        yield (
            "verification",
            _joined(run.verification.rule, lossless if run.verification.lossless is not None else ""),
        )
    if run.recorder is not None:
        yield "recorder", _joined(run.recorder.name, run.recorder.version)
    # Midnight is what is left of a time that was reduced to its day.
    yield "recorded", (run.created or "").removesuffix("T00:00:00Z")


def _setting_rows(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Settings, as many to a row as a cell holds whole."""
    name, row = "settings", ""
    for setting in _setting_texts(settings):
        if row and len(row) + len(setting) + 2 > _CELL:
            yield name, row
            name, row = "", ""
        row = f"{row}, {setting}" if row else setting
    yield name, row


def _model(model: Target | Draft) -> str:
    parts = [
        model.id or "(name removed or not recorded)",
        f"revision {model.revision}" if model.revision else "",
        model.dtype or "",
        f"quantization {model.quantization}" if model.quantization not in (None, "none") else "not quantized",
        f"vocabulary {number(model.vocab_size)}" if model.vocab_size else "",
        f"{number(model.num_layers)} layers" if model.num_layers else "",
        f"at most {number(model.max_length)} tokens" if model.max_length else "",
    ]
    return ", ".join(part for part in parts if part)


def _joined(*words: str | None) -> str:
    return " ".join(word for word in words if word)


# --- on what ---------------------------------------------------------------------------------------


def _workload(trace: Trace, found: Diagnosis, drawn: Curves) -> Iterator[Block]:
    run = trace.run
    rows = [
        ("requests", number(len(trace.requests))),
        ("different prompts", number(found.measured["prompts"])),
        ("longest context", f"{number(drawn.longest_context)} tokens"),
        ("kinds of text", _segments(drawn)),
        ("requests at once", number(drawn.most_rows) if drawn.most_rows else "not recorded"),
    ]
    if run.sampling is not None:
        given = {
            "temperature": run.sampling.temperature,
            "top_k": run.sampling.top_k,
            "top_p": run.sampling.top_p,
        }
        rows.append(("sampling", _settings({k: v for k, v in given.items() if v is not None})))
        if run.sampling.processors:
            rows.append(("logits processors", ", ".join(run.sampling.processors[:MAX_LISTED])))
    rows.append(("chat template", run.template_digest or "not recorded"))
    rows.append(("draft's training", _settings(run.training or {}) or "not recorded"))
    baseline = (run.baseline or {}).get("token_ns")
    rows.append(
        ("without speculation", f"{_ms(baseline)} ms per token" if baseline else "no control run recorded")
    )
    yield Table(["", ""], rows)


def _settings(settings: Mapping[str, Any]) -> str:
    """Settings of a header, ``name=value``."""
    return ", ".join(_setting_texts(settings))


def _setting_texts(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value_text(value)}" for key, value in list(settings.items())[:MAX_SETTINGS]]


def _segments(drawn: Curves) -> str:
    """Accept length of each kind of text: whether thinking is on is asked first."""
    parts = (f"{name} {number(m.value, 2)} ({number(m.count)})" for name, m in drawn.by_segment.items())
    return ", ".join(parts) or "not recorded"


# --- numbers ---------------------------------------------------------------------------------------


def _metrics(trace: Trace, counts: Counts) -> Iterator[Block]:
    yield Text(
        "Accept length counts the target's own token, as vLLM's mean acceptance length does; the second line "
        "is the same without it."
    )
    rows = [(words(m.name), number(m.value(counts)), m.formula) for m in METRICS]
    yield Table(["metric", "value", "how it is made"], rows)
    rows = [
        ("steps", number(counts.steps), f"proposals {number(counts.proposals)}"),
        ("drafted tokens", number(counts.drafted), ""),
        ("accepted tokens", number(counts.accepted), ""),
        ("emitted tokens", number(counts.emitted), ""),
        ("reported by the engine", _settings(trace.run.reported or {}) or own_numbers(counts) or "-", ""),
    ]
    yield Table(["counts", "value", ""], rows)
    if counts.timed:
        rows = [(p.removesuffix("_ns"), _ms(mean_ns(counts, p)), "ms per proposal") for p in PHASES]
        rows.append(("per token", _ms(token_ns(counts)), "ms"))
        rows.append(("speedup", number(speedup(counts, trace.run.baseline)), "times, against no speculation"))
        yield Table(["time", "value", ""], rows)


def _positions(counts: Counts) -> Iterator[Block]:
    entries = per_position(counts)[:MAX_POSITIONS]
    if not entries:
        yield Text("No position was proposed.")
        return
    yield Table(
        ["position", "proposed", "accepted", "unconditional", "given proposed", "conditional"],
        [
            [
                str(e.position), number(e.proposed), number(e.accepted), number(e.unconditional),
                number(e.given_proposed), number(e.conditional),
            ]
            for e in entries
        ],
    )  # fmt: skip
    yield Text("Conditional: accepted, given that every position before was accepted and this one proposed.")
    yield Bars([(f"position {e.position}", e.conditional) for e in entries])


# --- diagnosis -------------------------------------------------------------------------------------


def _diagnosis(found: Diagnosis, run: Run) -> Iterator[Block]:
    if not causes(found):
        yield Text(nothing_found(found))
    for finding in found.findings[:MAX_FINDINGS]:
        yield Text(f"Found, {finding.strength.value}: {finding.id}. {finding.summary}")
        rows = list(_evidence(finding))
        if rows:
            yield Table(["evidence", ""], rows)
        yield Text(f"Next: {finding.advice}")
    if len(found.findings) > MAX_FINDINGS:
        yield Text(f"And {len(found.findings) - MAX_FINDINGS} more findings.")
    if sentence := what_now(found, run, "TRACE"):
        yield Text(f"Next: {sentence}")
    what_if = [item.summary for item in found.counterfactuals[:MAX_LISTED]]
    if what_if:
        yield Text("What if:")
        yield Bullets(what_if)
    if found.cleared:
        yield Text("Cleared:")
        yield Bullets([f"{item.id}: {item.summary}" for item in found.cleared[:MAX_LISTED]])


def _evidence(finding: Finding) -> Iterator[tuple[str, str]]:
    for key, value in list(finding.evidence.items())[:8]:
        text = value_text(value)
        if text:
            yield words(str(key)), text
    if finding.steps:
        yield "first steps", ", ".join(number(step) for step in finding.steps[:8])


def _not_checked(found: Diagnosis) -> Iterator[Block]:
    items = found.not_checked[:MAX_LISTED]
    if not items:
        yield Text("Every rule could be asked.")
        return
    yield Table(["cause", "why not", "what is needed"], [(i.id, i.reason, i.how) for i in items])


def _divergent(trace: Trace) -> Iterator[Block]:
    heads, rows = divergent_rows(trace)
    if not rows:
        yield Text("The target refused no draft token.")
        return
    yield Table(heads, rows)
    yield Text(
        "rank: of the refused token under the target, 1 = first; gap: the target's first choice before its "
        "second."
    )


# --- the trace -------------------------------------------------------------------------------------


def _trace(trace: Trace, name: str | None, removed: Sequence[str]) -> Iterator[Block]:
    yield Text(f"{count_of(len(trace), 'step')}, {STATES[trace.state]}.")
    packed: Mapping[str, Any] = trace.run.packed or {}
    if packed:
        yield Text(
            "Verdicts of rules that need ids or texts were computed before these were removed, on the trace "
            f"with SHA-256 {packed.get('source_sha256')} of {value_text(packed.get('source_steps'))} steps; "
            "they are the sender's word."
        )
    if packed.get("is_part") is True:
        yield Text(
            "It holds a part of the run: numbers and verdicts are of the whole, kinds of text, plots and "
            "divergent steps of the part."
        )
    lost = [f"lost: {number(gap.lost)} steps, {gap.reason}" for gap in trace.gaps]
    notes = [*lost, *(f"problem: {problem}" for problem in trace.problems)][:MAX_LISTED]
    if notes:
        yield Bullets(notes)
    if removed:
        yield Text("Removed or reduced before this was written:")
        yield Bullets(removed)
    if name is None:
        yield Text("This report came without the trace. Whoever has it makes the zip that goes with it:")
        yield Code([f"spectrace pack TRACE -o {_ZIP}"])
    typed = shlex.quote(name or _ZIP)
    yield Text("To look for yourself:")
    yield Code(
        [
            f"spectrace {typed}",
            f"spectrace diagnose {typed}",
            f"spectrace steps {typed} --where 'accepted < 1'",
        ]
    )


def _ms(nanoseconds: Any) -> str:
    is_number = type(nanoseconds) in (int, float)
    return number(nanoseconds / 1e6) if is_number else "-"
