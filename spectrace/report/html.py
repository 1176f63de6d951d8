"""A report as one HTML file: no script, nothing loaded from anywhere, dark or light as the reader's device.

Every text is made visible and escaped; the page forbids scripts and connections by a policy of its own as
well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from spectrace.format.text import visible
from spectrace.report.blocks import Bars, Block, Bullets, Code, Section, Table, Text
from spectrace.report.document import Document

MAX_CELL = 400
MAX_TEXT = 2000
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { --back: #ffffff; --text: #1c2128; --dim: #59636e; --line: #d1d9e0; --mark: #0969da; }
@media (prefers-color-scheme: dark) {
  :root { --back: #0d1117; --text: #e6edf3; --dim: #9198a1; --line: #3d444d; --mark: #58a6ff; }
}
* { box-sizing: border-box; }
body { background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 60rem; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; border-bottom: 1px solid var(--line); margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .875rem; margin: .5rem 0; }
th, td { border-bottom: 1px solid var(--line); overflow-wrap: normal; padding: .3rem .6rem; text-align: left;
  vertical-align: top; }
th { color: var(--dim); font-weight: 600; } td.number { font-variant-numeric: tabular-nums; text-align: right;
  white-space: nowrap; }
td.words { min-width: 9rem; overflow-wrap: anywhere; }
pre { border: 1px solid var(--line); border-radius: 6px; padding: .6rem; font-size: .8rem;
  white-space: pre-wrap; }
figure { margin: 1rem 0; } figcaption { color: var(--dim); font-size: .875rem; }
svg { display: block; height: auto; max-width: 32rem; width: 100%; }
svg text { fill: var(--text); }
meter { width: 8rem; }
@media (max-width: 32rem) {
  th, td { padding: .25rem .35rem; }
  table.stacked, .stacked tbody, .stacked tr, .stacked td { display: block; }
  .stacked th { display: none; } .stacked td { border: 0; }
  .stacked tr { border-bottom: 1px solid var(--line); }
  .stacked td:first-child { font-weight: 600; }
}
"""


def html(report: Document, plots: Sequence[tuple[str, str]] = ()) -> str:
    """The page.

    Args:
        report: what it says.
        plots: title and SVG of each plot; they are put in as they are.
    """
    figures = "".join(
        f"<figure>{svg}<figcaption>{escape(title)}</figcaption></figure>\n" for title, svg in plots
    )
    body = ""
    for section in report.sections:
        body += "\n".join(_section(section)) + "\n"
        if any(isinstance(block, Bars) for block in section.blocks):
            body += figures
            figures = ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(report.title, MAX_CELL)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_text(report.title, MAX_CELL)}</h1>\n{body}{figures}</body>\n</html>\n"
    )


def _section(section: Section) -> Iterator[str]:
    yield f"<h2>{_text(section.title, MAX_CELL)}</h2>"
    for block in section.blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        yield f"<p>{_text(block.text, MAX_TEXT)}</p>"
    elif isinstance(block, Bullets):
        yield f"<ul>{''.join(f'<li>{_text(item, MAX_TEXT)}</li>' for item in block.items)}</ul>"
    elif isinstance(block, Table):
        kind = ' class="stacked"' if _is_wordy(block) else ""
        yield f'<div class="wide"><table{kind}>{"".join(_rows(block))}</table></div>'
    elif isinstance(block, Bars):
        rows = "".join(_bar(name, share) for name, share in block.rows)
        yield f'<div class="wide"><table>{rows}</table></div>'
    elif isinstance(block, Code):
        yield f"<pre>{chr(10).join(_text(line, MAX_TEXT) for line in block.lines)}</pre>"


def _is_wordy(block: Table) -> bool:
    """Whether the last of several columns holds sentences, which a phone has no room for beside others."""
    return len(block.heads) > 2 and any(len(row[-1]) > 48 for row in block.rows)


def _rows(block: Table) -> Iterator[str]:
    if any(block.heads):
        yield f"<tr>{''.join(f'<th>{_text(head, MAX_CELL)}</th>' for head in block.heads)}</tr>"
    for row in block.rows:
        yield f"<tr>{''.join(_cell(cell, len(row) > 2) for cell in row)}</tr>"


def _cell(cell: str, has_numbers: bool) -> str:
    is_number = (
        has_numbers
        and cell.lstrip("-")[:1].isdigit()
        and not any(c.isalpha() for c in cell)
        and len(cell) < 20
    )
    kind = "number" if is_number or (has_numbers and cell == "-") else "words" if len(cell) > 24 else ""
    return f"<td{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{_text(cell, MAX_CELL)}</td>"


def _bar(name: str, share: float | None) -> str:
    value = "-" if share is None else f"{share:.3f}"
    meter = (
        "" if share is None else f'<meter min="0" max="1" value="{min(max(share, 0.0), 1.0):.4f}"></meter>'
    )
    return f'<tr><td>{_text(name, 40)}</td><td class="number">{value}</td><td>{meter}</td></tr>'


def _text(text: str, limit: int) -> str:
    return escape(visible(text, limit=limit), quote=True)
