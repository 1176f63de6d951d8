"""The draft network of EAGLE-3 in plain PyTorch: taps and next token in, logits over raw ids out.

At position P it reads the target's states at P together with token P+1, and predicts token P+2; further
tokens are drafted by feeding its own output back in place of the target's states. One sequence, no batch.
Source: Li et al. 2025, "EAGLE-3", arXiv 2503.01840; SafeAILab/EAGLE eagle/model/cnets.py.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from spectrace_eagle3.cache import DraftCache
from spectrace_eagle3.config import HeadConfig


class RMSNorm(nn.Module):
    """x / RMS(x) * weight, computed in single precision."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> [..., size]."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention over the cached rows.

    Args:
        config: sizes.
        input_size: 2 * hidden_size in the first layer, which reads token and state side by side.
    """

    def __init__(self, config: LlamaConfig, input_size: int) -> None:
        super().__init__()
        self.num_heads: int = config.num_attention_heads
        self.num_kv_heads: int = config.num_key_value_heads or self.num_heads
        self.head_dim: int = config.head_dim or config.hidden_size // self.num_heads
        bias = config.attention_bias
        self.q_proj = nn.Linear(input_size, self.num_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(input_size, self.num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(input_size, self.num_kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.num_heads * self.head_dim, config.hidden_size, bias=bias)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, cache: DraftCache, layer: int
    ) -> Tensor:
        """Attends from n rows to past + n.

        Args:
            x: [n, input_size].
            rotary: cosines and sines, [n, head_dim] each.
            mask: [n, past + n] bool, True where a row may look.
            cache: gets the new keys and values.
            layer: which of the cache.

        Returns:
            [n, hidden_size].
        """
        q = self.q_proj(x).view(len(x), self.num_heads, self.head_dim).transpose(0, 1)  # [heads, n, d]
        k = self.k_proj(x).view(len(x), self.num_kv_heads, self.head_dim).transpose(0, 1)  # [kv, n, d]
        v = self.v_proj(x).view(len(x), self.num_kv_heads, self.head_dim).transpose(0, 1)  # [kv, n, d]
        keys, values = cache.append(layer, _rotated(k, rotary), v)  # [kv, past + n, d]
        groups = self.num_heads // self.num_kv_heads
        keys = keys.repeat_interleave(groups, dim=0)  # [heads, past + n, d]
        values = values.repeat_interleave(groups, dim=0)  # [heads, past + n, d]
        scores = _rotated(q, rotary) @ keys.transpose(1, 2) / self.head_dim**0.5  # [heads, n, past + n]
        scores = scores.float().masked_fill(~mask, float("-inf"))
        mixed = scores.softmax(-1).to(values.dtype) @ values  # [heads, n, d]
        joined: Tensor = self.o_proj(mixed.transpose(0, 1).flatten(1))  # [n, hidden_size]
        return joined


def _rotated(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding, [heads, n, head_dim]: halves are rotated against each other (Llama's layout)."""
    cos, sin = rotary
    first, second = x.chunk(2, dim=-1)  # [heads, n, head_dim / 2] each
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class MLP(nn.Module):
    """Gated MLP."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(size, inner, bias=bias)
        self.up_proj = nn.Linear(size, inner, bias=bias)
        self.down_proj = nn.Linear(inner, size, bias=bias)
        self.act = ACT2FN[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        """[n, hidden_size] -> [n, hidden_size]."""
        out: Tensor = self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))
        return out


class DraftLayer(nn.Module):
    """One transformer layer of the draft.

    The first reads the embedded token beside the state. Later ones are ordinary Llama layers on the
    residual stream, as in vLLM 0.33.0 model_executor/models/llama_eagle3.py, LlamaDecoderLayer.forward.
    """

    def __init__(self, config: HeadConfig, number: int) -> None:
        super().__init__()
        layer, self.number = config.layer, number
        size, eps = layer.hidden_size, layer.rms_norm_eps
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = RMSNorm(size, eps)
        if number == 0:
            self.hidden_norm = RMSNorm(size, eps)
        self.self_attn = Attention(layer, 2 * size if number == 0 else size)
        self.post_attention_layernorm = RMSNorm(size, eps)
        self.mlp = MLP(layer)

    def forward(
        self, embedded: Tensor, state: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, cache: DraftCache
    ) -> Tensor:
        """[n, hidden_size] token embeddings and states -> [n, hidden_size] states, before the final norm."""
        if self.number == 0:
            normed = self.hidden_norm(state)
            residual = normed if self.norm_before_residual else state
            x = torch.cat((self.input_layernorm(embedded), normed), dim=-1)  # [n, 2 * hidden_size]
        else:
            residual = state
            x = self.input_layernorm(state)
        state = residual + self.self_attn(x, rotary, mask, cache, self.number)
        out: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return out


class Eagle3Head(nn.Module):
    """The whole draft.

    Args:
        config: sizes and flags.
        num_taps: boundaries of the target that fc takes.
        target_hidden_size: width of a tap.
        draft_vocab_size: rows of the LM head.
        fc_bias: whether fc has one.
        num_embeddings: rows of the table of embeddings; as the config says by default.
    """

    def __init__(
        self,
        config: HeadConfig,
        *,
        num_taps: int,
        target_hidden_size: int,
        draft_vocab_size: int,
        fc_bias: bool = False,
        num_embeddings: int | None = None,
    ) -> None:
        super().__init__()
        layer = config.layer
        size, eps = layer.hidden_size, layer.rms_norm_eps
        self.config = config
        self.norm_output = config.norm_output
        self.embed_tokens = nn.Embedding(num_embeddings or layer.vocab_size, size)
        if config.norm_before_fc:
            self.input_norm = RMSNorm(num_taps * target_hidden_size, eps)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(RMSNorm(target_hidden_size, eps) for _ in range(num_taps))
        self.fc = nn.Linear(num_taps * target_hidden_size, size, bias=fc_bias)
        self.layers = nn.ModuleList(DraftLayer(config, number) for number in range(config.num_layers))
        self.norm = RMSNorm(size, eps)
        self.lm_head = nn.Linear(size, draft_vocab_size, bias=False)
        self.rotary = LlamaRotaryEmbedding(layer)

    def fuse(self, taps: Tensor) -> Tensor:
        """The target's states as one: [taps, n, target_hidden_size] in any dtype -> [n, hidden_size]."""
        taps = taps.to(self.fc.weight.dtype)
        if self.config.fc_norm:
            taps = torch.stack([norm(tap) for norm, tap in zip(self.fc_norm, taps, strict=True)])
        joined = taps.transpose(0, 1).flatten(1)  # [n, taps * target_hidden_size]
        if self.config.norm_before_fc:
            joined = self.input_norm(joined)
        fused: Tensor = self.fc(joined)
        return fused

    def forward(
        self, token_ids: Tensor, states: Tensor, positions: Tensor, mask: Tensor, cache: DraftCache
    ) -> tuple[Tensor, Tensor]:
        """Runs n rows.

        Args:
            token_ids: [n] target ids; that of row i is the token after position i.
            states: [n, hidden_size], from `fuse` or from an earlier call.
            positions: [n].
            mask: [n, past + n] bool, True where a row may look.
            cache: rows of earlier calls; gets these.

        Returns:
            Logits over raw ids [n, draft_vocab_size], and the states to feed back [n, hidden_size].
        """
        embedded = functional.embedding(token_ids, self.embed_tokens.weight)  # [n, hidden_size]
        cos, sin = self.rotary(embedded, positions.unsqueeze(0))  # [1, n, head_dim] each
        for layer in self.layers:
            states = layer(embedded, states, (cos[0], sin[0]), mask, cache)
        cache.length += len(token_ids)
        normed = self.norm(states)
        return self.lm_head(normed), normed if self.norm_output else states
