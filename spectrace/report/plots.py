"""Plots of a report as SVG, drawn by matplotlib, which is loaded here and only when a plot is wanted.

Deterministic, and without a word of this machine: no date, no path, no text of the trace; ids are salted by
a constant. Colours are the page's own, so that a plot is dark where the page is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from spectrace.analysis.acceptance import per_position
from spectrace.analysis.curves import Bin
from spectrace.errors import RecorderError

if TYPE_CHECKING:
    from spectrace.report.document import Document

SALT = "spectrace"
_LINE, _TEXT = "#010203", "#040506"
"""Stand for the page's colours until the SVG is made."""
_SPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
_SIZE = (4.6, 2.2)
"""Inches; small, so that its letters can be read where a phone shows it whole."""
_MOST_TICKS = 8


class PlotsMissing(RecorderError):
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("plots need matplotlib; type: pip install 'spectrace-tui[report]'")


def plots(report: Document) -> list[tuple[str, str]]:
    """Title and SVG of each plot that the run has values for.

    Raises:
        PlotsMissing: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotsMissing from error
    drawn = report.curves
    entries = [e for e in per_position(report.counts)[:64] if e.conditional is not None]
    wanted: list[tuple[str, Callable[[Any], None]]] = []
    if entries:
        shares = [e.conditional or 0.0 for e in entries]
        wanted.append(
            (
                "Accepted per position, given all before",
                lambda axes: _bars(axes, range(len(shares)), shares, "position"),
            )
        )
    for title, bins, label, is_log in (
        ("Accept length over time", drawn.over_time, "step", False),
        ("Accept length by context", drawn.by_context, "tokens committed before the step", True),
        ("Accept length by batch row", drawn.by_row, "batch row", False),
    ):
        if bins:
            wanted.append((title, _drawer(bins, label, is_log)))
    settings: Any = {
        "svg.hashsalt": SALT,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
    }
    with rc_context(settings):
        return [
            (title, _svg(Figure(figsize=_SIZE, layout="constrained"), draw, title)) for title, draw in wanted
        ]


def _drawer(bins: Sequence[Bin], label: str, is_log: bool) -> Callable[[Any], None]:
    return lambda axes: _line(axes, bins, label, is_log)


def _bars(axes: Any, places: Sequence[int] | range, shares: Sequence[float], label: str) -> None:
    axes.bar(list(places), shares, color=_LINE, width=0.7)
    axes.set_ylim(0, 1)
    axes.set_xlim(-0.6, len(shares) - 0.4)
    axes.set_xlabel(label)
    axes.locator_params(axis="x", integer=True, nbins=_MOST_TICKS, min_n_ticks=1)


def _line(axes: Any, bins: Sequence[Bin], label: str, is_log: bool) -> None:
    starts = [max(1, entry.start) if is_log else entry.start for entry in bins]
    means = [entry.accept_length.value or 0.0 for entry in bins]
    halves = [_half(entry) for entry in bins]
    axes.errorbar(starts, means, yerr=halves, color=_LINE, marker="o", markersize=3, linewidth=1, capsize=2)
    if is_log:
        axes.set_xscale("log", base=2)
        shown = starts[:: -(-len(starts) // _MOST_TICKS)]
        axes.set_xticks(shown, [f"{start:,}" for start in shown])
        axes.minorticks_off()
    else:
        axes.locator_params(axis="x", integer=True, nbins=_MOST_TICKS, min_n_ticks=1)
    axes.set_ylim(0, 1.08 * max(mean + half for mean, half in zip(means, halves)) or 1)
    axes.set_xlabel(label)


def _half(entry: Bin) -> float:
    """Half of the 95 % interval; none of a single proposal."""
    return entry.accept_length.half_width if entry.accept_length.count > 1 else 0.0


def _svg(figure: Any, draw: Callable[[Any], None], title: str) -> str:
    axes = figure.add_subplot()
    draw(axes)
    for spine in axes.spines.values():
        spine.set_color(_TEXT)
    axes.tick_params(colors=_TEXT)
    axes.xaxis.label.set_color(_TEXT)
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    return _inlined(buffer.getvalue(), title)


def _inlined(svg: str, title: str) -> str:
    """The element alone, with the page's colours, as wide as the page allows."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r"<!--.*?-->", "", element, flags=re.DOTALL)
    head, rest = element.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    start = f'<svg {_SPACES} role="img" aria-label="{title}" '
    rest = (
        rest.replace(_LINE, "var(--mark)")
        .replace(_TEXT, "var(--text)")
        .replace("fill: #000000", "fill: var(--text)")
    )
    return f"{start}{box.group() if box else ''}>{rest}".strip()
