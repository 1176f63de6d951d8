"""What is checked, in words: names of causes for people who know no rule."""

from __future__ import annotations

WORDS = {
    "nonfinite": "NaN and infinity",
    "vocab-map": "id map",
    "tokenizer": "tokenizer",
    "draft-head": "draft head",
    "draft-head/ranks-disagree": "drafts of the ranks",
    "weights": "draft weights",
    "weights/precision": "precision",
    "tap-layer": "layers fed to the draft",
    "tap-form": "state form",
    "tap-form/feedback-norm": "state fed back",
    "tap-form/training-gap": "accuracy in training",
    "window/undeclared": "attention window",
    "kv-state/poisoned": "states behind the prompt",
    "tree/mask": "tree mask",
    "verification/unverified-first": "first draft token",
    "verification/confidence-gate": "confidence gate",
    "processors/draft-unaware": "draft's processors",
    "positions": "draft positions",
    "positions/token-shift": "token beside each state",
    "positions/rotary-config": "rotary settings",
    "positions/falls-with-length": "trend with length",
    "window/gated": "length limit",
    "window/length": "context length",
    "kv-state/target-length": "target cache",
    "kv-state/over-trimmed": "draft cache",
    "kv-state/recurrent-slot": "recurrent state",
    "kv-state/read-before-written": "prefix blocks",
    "kv-state/prefix-reuse": "prefix reuse",
    "kv-state/behind-rejection": "state behind a rejection",
    "tree": "tree",
    "verification": "verifier",
    "verification/self-draft": "engine (self-draft)",
    "draft-head/predictable-text": "draft on predictable text",
    "processors": "processors",
    "processors/mask-skipped": "grammar mask",
    "reporting": "reported logprobs",
    "metrics": "metric",
    "metrics/miscount": "engine's counts",
    "metrics/variable-length": "counts of unequal drafts",
    "metrics/after-eos": "tokens after EOS",
    "metrics/ranking": "ranking of the runs",
    "metrics/formula": "reported number",
    "cost": "speedup",
    "cost/baseline": "time without a draft",
    "batch/row-cliff": "batch row",
    "batch/rank": "rank",
    "drift/over-time": "drift",
    "drift/regression": "regression",
    "numeric-tie": "ties",
    "workload/template": "template",
    "workload/segment": "segments",
    "workload/degenerate": "repetition",
    "trace": "trace's own counts",
}
"""Rule, or rule and name -> what is looked at."""


def words_of(id_: str) -> str:
    """What a rule, or one question of it, looks at.

    >>> words_of("weights/not-loaded"), words_of("window/gated"), words_of("new/rule")
    ('draft weights', 'length limit', 'new/rule')
    """
    return WORDS.get(id_) or WORDS.get(rule_of(id_)) or id_


def rule_of(id_: str) -> str:
    """First part of the id of a cause: the rule that answers for it.

    >>> rule_of("weights/not-loaded")
    'weights'
    """
    return id_.partition("/")[0]
