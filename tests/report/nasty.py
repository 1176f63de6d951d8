"""Texts that try to be more than text, and traces that hold them in every field that takes one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spectrace.format.jsonl import import_lines

NASTY = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;ZXZpbA==\x1b\\",
    "csi": "\x9b2J",
    "osc8": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "c1": "\x84\x85\x90\x9d",
    "del": "a\x7fb\x08c",
    "bidi": "\u202eevil\u202c\u2066x\u2069\u200f",
    "zero_width": "a\u200bb\u200dc\ufeffd\u2060",
    "rich": "[bold red]x[/] [link=https://evil.example]y[/link] [@click=app.quit]z[/]",
    "textual": "[on red]x[/on red] $primary",
    "script": "<script>alert(1)</script>",
    "attribute": '" onload="alert(1)" x=\'',
    "image": "<img src=x onerror=alert(1)>",
    "style": "</style><style>body{display:none}</style>",
    "close": "</td></table></body></html><iframe src=//evil.example>",
    "comment": "--><!-- x --> <![CDATA[ x ]]>",
    "entity": "&lt;script&gt; &#x41; &amp;",
    "link": "[text](javascript:alert(1)) ![x](https://evil.example/x.png)",
    "autolink": "https://evil.example/?q=1 www.evil.example <mailto:a@b.c>",
    "mention": "@torvalds #1 owner/repo#2 :tada:",
    "fence": "```\n# heading\n```",
    "backticks": "` `` ``` ```` x",
    "table": "a | b |\n| --- | --- |\n| c",
    "heading": "# big\n- item\n> quote\n1. one\n===",
    "lines": "a\nb\r\nc\td\x0b\x0ce\u2028f\u2029g\x85h",
    "surrogate": "\ud800\udfff x \udc80",
    "math": "$\\frac{1}{2}$ $$x$$",
    "backslash": "\\x1b[31m \\n \\| \\",
    "combining": "a" + "\u0301" * 40,
    "long": "A" * 1_000_000,
    "null": "a\x00b",
}
"""Name -> text."""


def nasty_trace(path: Path, text: str) -> Path:
    """A trace that holds one text in every field that takes a text."""
    lines = [json.dumps(record) for record in _records(text)]
    import_lines(lines, path)
    return path


def _records(text: str) -> list[dict[str, Any]]:
    # A trace holds texts of at most 65,536 characters, and a header of 4 MiB.
    short, text = text[:60_000], text[:40_000]
    model = dict.fromkeys(("id", "revision", "dtype", "quantization"), text)
    run = {
        "record": "run",
        "schema": 1,
        "created": text,
        "recorder": {"name": text, "version": text},
        "engine": {"name": text, "version": text, "runner": text, "flags": {short: text, "method": text}},
        "method": text,
        "target": {**model, "vocab_size": 64},
        "draft": {**model, "vocab_size": 8, "head_rows": 8, "hidden_size": 16,
                  "rope": {"theta": text, short: text}, "rope_declared": {"theta": "other", short: "other"},
                  "parameters": {"missing": [f"lm_head.{text}", text], "unexpected": [text],
                                 "unused": [text]},
                  "fingerprints": {f"lm_head.{short}": {"shape": [8, 2], "digest": text}}},
        "vocab_map": {"source": text, "applied": text, "digest": text, "digest_expected": text + "x"},
        "taps": {"declared": [1], "numbering": text, "origin": text, "boundaries": [1]},
        "verification": {"rule": text, "lossless": True},
        "sampling": {"temperature": 0.0, "processors": [text]},
        "tokenizer": {"digest": text, "vocab_size": 64},
        "template_digest": text,
        "training": {"first_position_accuracy": 0.9, "template_digest": text + "y", short: text},
        "reported": {"accept_length": 9.5, short: 1.0},
        "capture": {"mode": text, "text": True,
                    "unavailable": {"overlaps": text, "batch_row": text, short: text}},
        "packed": {"source_sha256": text, "source_steps": 3, "verdicts": {
            "findings": [{"id": f"tree/{text}", "strength": "certain", "summary": text, "advice": text,
                          "evidence": {text: text, "list": [text], "map": {text: text}}, "steps": [0]}],
            "cleared": [{"id": f"weights/{text}", "summary": text}],
            "not_checked": [{"id": f"tokenizer/{text}", "reason": text, "how": text, "missing": [text]}],
            "counterfactuals": [{"name": text, "summary": text, "evidence": {}}]}},
    }  # fmt: skip
    tokens = {str(n): short for n in (5, 6, 7, 9)}
    steps = [
        {
            "record": "step", "request": short, "step": n, "position": n, "draft_ids": [5, 6, 7],
            "proposal_ids": [5, 6, 7], "num_accepted": n % 3, "emitted_ids": [*[5, 6, 7][: n % 3], 9],
            "target_ids": [5, 6, 7, 9], "final_kind": text, "stop": text, "segment": text, "mask": [text],
            "flags": [text], "logits_kind": text, "taps": [{"shape": [16], "dtype": text, short: text}],
            short or "x": text,
        }
        for n in range(8)
    ]  # fmt: skip
    return [
        run,
        {
            "record": "request",
            "request": short,
            "prompt_ids": [5],
            "prompt_digest": text,
            "external_id": text,
            "segment_map": {short: text},
        },
        {"record": "tokens", "target": tokens, "draft": tokens},
        *steps,
        {"record": "gap", "lost": 2, "reason": text},
        {"record": "end", "totals": {}, short: text},
    ]
