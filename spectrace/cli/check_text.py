"""What `spectrace check` prints for a person: findings first, then the tables, within 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from spectrace.analysis.draft.flags import COLUMNS
from spectrace.cli.verdicts import cleared_lines, finding_lines, not_checked_lines, wrapped
from spectrace.format.figures import count_of, number
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace.analysis.draft.report import CheckReport
    from spectrace.analysis.draft.tokens import Coverage, TokenizerFacts
    from spectrace.analysis.draft.vocab_map import MapReport
    from spectrace.analysis.vocabulary import Reading

_KINDS = {
    "eagle3": "EAGLE-3 draft",
    "eagle": "EAGLE draft",
    "dflash": "DFlash draft",
    "model": "draft model",
}
_STYLES = {
    "speculators": "speculators format",
    "nested": "eagle_config in config.json",
    "top-level": "layer ids at the top level",
    "plain": "no layer ids",
}
_FLAG_HEADS = {
    "norm_before_residual": ("norm before", "residual"),
    "norm_before_fc": ("norm before", "fc"),
    "norm_output": ("norm", "output"),
    "embeddings": ("embed-", "dings"),
    "lm_head": ("lm", "head"),
}
"""Switch -> its name in two lines, for a table that must fit."""


def report_lines(
    report: CheckReport,
    names: Mapping[str, str | None],
    *,
    files: Sequence[str],
    unread: Sequence[str],
    num_faults: int,
) -> Iterator[str]:
    """The whole report.

    Args:
        report: what was found.
        names: ``draft`` and ``target`` as they are shown.
        files: weight files that were read.
        unread: weight files that were not.
        num_faults: things that could not be read; the sentences go elsewhere.
    """
    yield from _head(report, names, files, unread, num_faults)
    for finding in report.findings:
        yield ""
        yield from finding_lines(finding, with_evidence=False)
    if not report.findings:
        yield ""
        yield "Nothing found. That is no proof of health: see what could not be checked."
    if report.cleared:
        yield from ("", "cleared:", *cleared_lines(report.cleared))
    if report.not_checked:
        yield from ("", "could not be checked:", *not_checked_lines(report.not_checked))
    if report.map is not None:
        yield from ("", *_map(report.map, report.coverage))
    elif report.coverage is not None:
        yield from ("", *_coverage(report.coverage))
    if report.facts.kind in ("eagle3", "dflash"):
        yield from ("", *_taps(report))
    if report.facts.kind == "eagle3":
        yield from ("", *_flags(report))
        yield from ("", *_loading(report))
    if report.rotary:
        yield from ("", *_rotary(report))
    if report.draft_tokenizer is not None or report.target_tokenizer is not None:
        yield from ("", *_tokenizers(report))


def _head(
    report: CheckReport,
    names: Mapping[str, str | None],
    files: Sequence[str],
    unread: Sequence[str],
    num_faults: int,
) -> Iterator[str]:
    facts = report.facts
    words = [_KINDS[facts.kind]]
    if facts.kind in ("eagle3", "dflash"):
        words.append(_STYLES[facts.style])
    if facts.architecture:
        words.append(visible(facts.architecture, limit=40))
    yield from wrapped("", f"{names['draft']}: {', '.join(words)}")
    sizes = [
        f"{number(len(facts.tensors))} tensors in {count_of(len(files), 'file')}",
        f"{number(facts.draft_vocab)} of {number(facts.target_vocab)} target ids",
        f"hidden {number(facts.hidden)}",
    ]
    yield from wrapped("", ", ".join(sizes))
    target = names["target"]
    layers = f"{number(facts.target_layers)} layers, hidden {number(facts.target_hidden)}"
    yield from wrapped("", "target: not given" if target is None else f"target {target}: {layers}")
    if unread:
        yield from wrapped("", f"not read: {', '.join(visible(name, limit=60) for name in unread[:6])}")
    if num_faults:
        yield f"damaged: {count_of(num_faults, 'thing')}, named on stderr"


def _map(found: MapReport, covered: Coverage | None) -> Iterator[str]:
    """The seed's table, and one sentence for whoever meets a map for the first time."""
    yield "Vocabulary map"
    yield from wrapped("  ", found.sentence)
    yield f"  d2t {found.dtype} [{found.length}], {found.digest[:23]}…"
    first = " ".join(map(str, found.first))
    yield from wrapped("  ", f"d2t[:{len(found.first)}] = {first}", indent="    ")
    if found.first and found.first[0] == 0:
        yield "  Zeros at the start of d2t are normal: the first ids are all kept."
    for at, value in found.samples:
        yield f"  d2t[{at}] = {value}"
    rows = [("", "offset: id + d2t[id]", "direct: d2t[id]")]
    size = number(found.length)
    rows.append(_row("distinct ids", found, lambda r: f"{number(r.distinct)} of {size}"))
    if found.target_vocab is not None:
        rows.append(_row(f"outside 0..{found.target_vocab - 1}", found, lambda r: number(r.out_of_range)))
    rows.append(_row("strictly increasing", found, lambda r: _yes(r.is_increasing)))
    if found.kept is not None:
        rows.append(_row("marked in t2d", found, lambda r: number(r.in_mask)))
        rows.append(_row(f"equal to t2d ({number(found.kept)})", found, lambda r: _yes(bool(r.equals_mask))))
    for name, left, right in rows:
        yield f"  {name:<26}{left:>22}{right:>22}"
    if covered is not None:
        yield from _coverage(covered)


def _row(name: str, found: MapReport, cell: Callable[[Reading], str]) -> tuple[str, str, str]:
    return name, cell(found.offset), cell(found.direct)


def _coverage(covered: Coverage) -> Iterator[str]:
    share = covered.kept / covered.of if covered.of else 0.0
    words = f"the draft can propose {number(covered.kept)} of {number(covered.of)} target ids ({share:.1%})"
    if covered.tokens is not None and covered.tokens_of != covered.of:
        words += f", {number(covered.tokens)} of the tokenizer's {number(covered.tokens_of)} tokens"
    if covered.counted is not None and covered.counted_of:
        part = covered.counted / covered.counted_of
        words += f", {part:.2%} of the {number(covered.counted_of)} tokens counted"
    yield from wrapped("  ", words, indent="    ")
    for kind, ids in covered.missing_special.items():
        listed = ", ".join(map(str, ids[:8]))
        yield from wrapped("  ", f"it can never propose {kind} {listed}", indent="    ")


def _taps(report: CheckReport) -> Iterator[str]:
    facts = report.facts
    n = "n" if facts.target_layers is None else str(facts.target_layers)
    yield f"Layers fed to the draft: B(k) is the state after k of the target's {n} layers"
    yield from wrapped(
        "  ", f"declared: {report.declared_taps.words} ({report.declared_taps.origin})", indent="    "
    )
    rows = [("engine", "takes ids from", "feeds k =", "")]
    for row in report.taps:
        mark = row.choice.note or row.differs
        name = (
            f"{row.engine.name} {row.engine.version}" if row.engine.version[:1].isdigit() else row.engine.name
        )
        rows.append((name, row.choice.origin, row.choice.brief, f"* {mark}" if mark else ""))
    yield from _columns(rows)


def _flags(report: CheckReport) -> Iterator[str]:
    """Engines down, switches across, so that a reader finds the row of the engine in use."""
    yield "Switches: what the checkpoint has, and what each engine does (* differs)"
    first, second = zip(*(_FLAG_HEADS.get(row.name, (row.name, "")) for row in report.flags), strict=True)
    rows = [("", *first), ("", *second), ("checkpoint", *(row.declared for row in report.flags))]
    for at, engine in enumerate(COLUMNS):
        cells = [
            f"{row.engines[at]}*" if engine in row.differing else row.engines[at] for row in report.flags
        ]
        rows.append((engine.name, *cells))
    yield from _columns(rows)


def _loading(report: CheckReport) -> Iterator[str]:
    yield "Loading these tensors"
    rows = [("engine", "a missing one", "an unknown one", "this checkpoint")]
    for row in report.loading:
        here = "takes all"
        if row.unknown_class is not None:
            here = f"* no class {visible(row.unknown_class, limit=20)}"
        elif row.refused:
            here = f"* stops at {number(len(row.refused))}: {_together(row.refused)}"
        elif row.lacking:
            here = f"* lacks {number(len(row.lacking))}: {_together(row.lacking)}"
            here += f", skips {number(len(row.skipped))}" if row.skipped else ""
        elif row.skipped:
            here = f"* skips {number(len(row.skipped))}: {_together(row.skipped)}"
        rows.append((row.rule.engine.name, row.rule.on_missing, row.rule.on_unknown, here))
    yield from _columns(rows)


def _together(names: Sequence[str]) -> str:
    """One name, or what several have in common."""
    parts = zip(*(name.split(".") for name in names))
    shared = ".".join(same[0] for same in takewhile(lambda found: len(set(found)) == 1, parts))
    shown = visible(f"{shared}.*" if len(names) > 1 and shared else names[0])
    return shown if len(shown) <= 16 else f"…{shown[-15:]}"


def _rotary(report: CheckReport) -> Iterator[str]:
    yield "Positions"
    rows = [("", "draft", "target", "")]
    rows += [
        (row.name, visible(row.draft, limit=20), visible(row.target, limit=20), "*" if row.differs else "")
        for row in report.rotary
    ]
    yield from _columns(rows)


def _tokenizers(report: CheckReport) -> Iterator[str]:
    yield "Tokenizers"
    rows = [("", "tokens", "highest id", "rows", "special ids", "digest")]
    for name, found in (("draft", report.draft_tokenizer), ("target", report.target_tokenizer)):
        if found is not None:
            cells = (number(found.size), str(found.highest), number(found.rows), _special(found))
            rows.append((name, *cells, found.digest[7:23]))
    yield from _columns(rows)


def _special(found: TokenizerFacts) -> str:
    parts = [f"{kind} {'/'.join(map(str, ids[:3]))}" for kind, ids in found.special_ids.items()]
    return ", ".join(parts) or "-"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Left-aligned columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  " + "  ".join(cells).rstrip()
