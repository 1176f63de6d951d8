"""What does `spectrace check` cost?

A synthetic EAGLE-3 head of 2 GB in four shards, its own embeddings included, with a map of 32,000 of 163,840
ids. The whole command in a process of its own, start of Python included: wall-clock seconds and the largest
resident memory. Every value is read; the file is in the page cache, as after a download.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from measure import Results, has_room, options, scratch

VOCAB, DRAFT_VOCAB, LAYERS = 163_840, 32_000, 61
SHARDS = 4


def main() -> None:
    """Prints the table."""
    arguments = options(__doc__).parse_args()
    hidden = 512 if arguments.quick else 4096
    results = Results("Checking a draft checkpoint")
    with scratch() as folder:
        if not has_room(folder, 3 << 30):
            print("needs 4.5 GB of free disk")
            return
        size = write_checkpoint(folder / "draft", hidden)
        write_target(folder / "target", hidden)
        small = folder / "map"
        write_checkpoint(small, 8)
        results.note("checkpoint", f"{size / 1e9:.2f} GB in {SHARDS} shards")
        rounds = 3 if arguments.quick else 5
        nothing = [run(["--version"])[0] for _ in range(rounds)]
        results.note("the command doing nothing (s)", f"{statistics.median(nothing):.2f}")
        for name, draft in (
            ("map of 163,840/32,000 alone", small),
            ("the whole checkpoint", folder / "draft"),
        ):
            found = [run(["check", str(draft), "--target", str(folder / "target")]) for _ in range(rounds)]
            results.at_most(f"{name}: seconds", statistics.median(wall for wall, _, _ in found), 2.0)
            results.note(
                f"{name}: processor seconds", f"{statistics.median(busy for _, busy, _ in found):.2f}"
            )
            results.at_most(f"{name}: MB resident", max(memory for _, _, memory in found), 300, "{:.0f}")


def run(arguments: list[str]) -> tuple[float, float, float]:
    """Seconds, processor seconds and megabytes of one command."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "spectrace", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.returncode
    unit = 1e6 if sys.platform == "darwin" else 1e6 / 1024
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit


def write_checkpoint(folder: Path, hidden: int) -> int:
    """A head with a map, in shards with an index; returns the bytes of its weights."""
    folder.mkdir()
    inner, narrow = 3 * hidden, max(hidden // 8, 1)
    layer = "layers.0."
    shapes = {
        "embed_tokens.weight": (VOCAB, hidden),
        "fc.weight": (hidden, 3 * hidden),
        f"{layer}self_attn.q_proj.weight": (hidden, 2 * hidden),
        f"{layer}self_attn.k_proj.weight": (narrow, 2 * hidden),
        f"{layer}self_attn.v_proj.weight": (narrow, 2 * hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, hidden),
        f"{layer}mlp.gate_proj.weight": (inner, hidden),
        f"{layer}mlp.up_proj.weight": (inner, hidden),
        f"{layer}mlp.down_proj.weight": (hidden, inner),
        f"{layer}input_layernorm.weight": (hidden,),
        f"{layer}hidden_norm.weight": (hidden,),
        f"{layer}post_attention_layernorm.weight": (hidden,),
        "norm.weight": (hidden,),
        "lm_head.weight": (DRAFT_VOCAB, hidden),
    }
    kept = np.sort(np.random.default_rng(0).choice(VOCAB, DRAFT_VOCAB, replace=False))
    mask = np.zeros(VOCAB, bool)
    mask[kept] = True
    tables = {"d2t": ("I64", kept - np.arange(DRAFT_VOCAB)), "t2d": ("BOOL", mask)}
    names = [*shapes, *tables]
    places = {name: f"model-{1 + at % SHARDS:05}-of-{SHARDS:05}.safetensors" for at, name in enumerate(names)}
    for place in sorted(set(places.values())):
        _write_shard(folder / place, [n for n in names if places[n] == place], shapes, tables)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, LAYERS // 2 - 1, LAYERS - 4]},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _write_shard(
    path: Path,
    names: list[str],
    shapes: dict[str, tuple[int, ...]],
    tables: dict[str, tuple[str, np.ndarray]],
) -> None:
    """One shard; the weights repeat a megabyte of noise."""
    noise = (
        np.random.default_rng(1).standard_normal(1 << 19).astype(np.float32).view(np.uint32) >> 16
    ).astype("<u2")
    header, end = {}, 0
    for name in names:
        dtype, shape = ("BF16", shapes[name]) if name in shapes else (tables[name][0], tables[name][1].shape)
        size = int(np.prod(shape)) * {"BF16": 2, "I64": 8, "BOOL": 1}[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    head = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in names:
            if name in tables:
                file.write(tables[name][1].tobytes())
                continue
            left = int(np.prod(shapes[name]))
            while left:
                part = noise[: min(left, noise.size)]
                file.write(part.tobytes())
                left -= part.size


def write_target(folder: Path, hidden: int) -> None:
    """The target's config.json, which is all that is asked of it."""
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS, "vocab_size": VOCAB}
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": hidden, "model_type": "llama"}))


if __name__ == "__main__":
    main()
