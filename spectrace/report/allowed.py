"""Words that may leave the machine: engines, types, settings, parts of parameter names, public publishers.

A word on no list is dropped, or shown as *other*: none of these says anything about a text or a person.
"""

from __future__ import annotations

from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


METHODS = _words("draft_model ngram early_exit eagle eagle2 eagle3 mtp medusa dflash suffix other")
ENGINES = _words(
    "transformers vllm sglang llama.cpp tensorrt_llm spectrace_transformers spectrace_eagle3 "
    "spectrace_vllm spectrace_sglang spectrace_loop spectrace"
)
RUNNERS = frozenset(("chain", "dynamic tree", "static tree", "loop", "V1", "V2", "sync", "async"))
CONTROLS = _words("self-draft predictable-text no-draft")
DTYPES = _words(
    "none float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 uint8 bool "
    "fp32 fp16 bf16 fp8 fp4 nvfp4 mxfp4 mxfp8 int4 w4a16 w8a8 awq gptq gguf bitsandbytes "
    "compressed-tensors modelopt hqq quanto torchao"
)
MAP_WORDS = _words("checkpoint file missing offset direct identity none tokenizers")
TAP_WORDS = frozenset(["input", "output", "config", "default", "argument", "guess"])
VERIFICATION = _words("greedy match rejection_sampling target_only typical block synthetic other")
MODES = frozenset(("eager", "graph", "unknown"))
PROCESSORS = _words(
    "temperature top_k top_p min_p typical_p repetition_penalty presence_penalty frequency_penalty "
    "no_repeat_ngram bad_words grammar min_tokens logit_bias allowed_token_ids structured_outputs"
)
STEP_WORDS: Mapping[str, frozenset[str]] = {
    "logits_kind": frozenset(("raw", "processed")),
    "final_kind": frozenset(("bonus", "recovered", "corrected", "draft", "none")),
    "stop": frozenset(("eos", "length", "stop_string")),
    "segment": frozenset(("prompt", "think", "answer", "tool", "grammar")),
    "mask": frozenset(("on", "off")),
    "taps.dtype": DTYPES,
    "flags": frozenset(("prefill", "replay", "dummy", "truncated", "simulated", "summed")),
}
"""Words of a step's text columns."""
GAP_REASONS = frozenset(
    ("disk full", "queue full", "too large", "malformed", "rotated", "damaged", "left out by pack")
)
ROPE = _words(
    "theta base rope_theta rope_type type factor scaling_factor original_max_position_embeddings "
    "max_position_embeddings low_freq_factor high_freq_factor attention_factor beta_fast beta_slow "
    "mscale mscale_all_dim partial_rotary_factor rotary_dim head_dim interleaved is_neox_style"
)
FLAGS = _words(
    "torch transformers vllm sglang cuda attention attention_backend num_speculative_tokens "
    "num_draft_tokens num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold "
    "scikit_learn max_matching_ngram_size prompt_lookup_num_tokens speculative_num_steps "
    "speculative_eagle_topk speculative_num_draft_tokens speculative_algorithm method "
    "tensor_parallel_size pipeline_parallel_size data_parallel_size draft_tensor_parallel_size tp_size "
    "pp_size dp_size enforce_eager max_num_seqs max_num_batched_tokens max_model_len "
    "enable_prefix_caching enable_chunked_prefill async_scheduling kv_cache_dtype block_size page_size "
    "gpu_memory_utilization disable_padded_drafter_batch parallel_drafting norm_before_residual "
    "norm_before_fc fc_norm norm_output from_target dtype quantization cuda_graph use_cuda_graph "
    "rejection_sample_method draft_sample_method prompt_lookup_max prompt_lookup_min max_new_tokens chat "
    "disable_overlap_schedule disable_radix_cache chunked_prefill_size max_running_requests "
    "speculative_attention_mode speculative_accept_threshold_single speculative_accept_threshold_acc "
    "speculative_use_rejection_sampling speculative_use_block_verification synthetic_acceptance_rates "
    "suffix_decoding_max_tree_depth suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor "
    "suffix_decoding_min_token_prob dspark_draft_topk speculative_ngram_max_trie_depth "
    "speculative_ngram_min_bfs_breadth speculative_ngram_max_bfs_breadth speculative_ngram_match_type "
    "SPECTRACE_CAPTURE SPECTRACE_SAMPLE SPECTRACE_MAX_BYTES"
)
REPORTED = _words(
    "accept_length acceptance_rate accept_length_without_bonus first_position_accuracy accuracy loss "
    "token_ns num_samples epochs"
)
SETTING_WORDS = (
    DTYPES
    | METHODS
    | _words(
        "auto default linear dynamic yarn longrope llama3 su proportional constant heuristic "
        "heuristic_transient eager sdpa flash_attention_2 flash_attention_3 flex_attention flashinfer "
        "flash_attn triton fa3 xformers EAGLE EAGLE3 NEXTN STANDALONE NGRAM strict probabilistic "
        "torch_native prefill decode greedy standard block synthetic ngram_gpu dspark mlp_speculator "
        "custom_class FROZEN_KV_MTP DFLASH DSPARK UNO BFS PROB ids"
    )
)
PUBLISHERS = _words(
    "meta-llama Qwen deepseek-ai openai google mistralai microsoft nvidia ibm-granite tiiuae allenai "
    "HuggingFaceTB EleutherAI zai-org moonshotai MiniMaxAI lmsys yuhuili RedHatAI AngelSlim baidu "
    "tencent openbmb bigcode bigscience stabilityai CohereLabs TinyLlama openai-community facebook "
    "JackFram spectrace_demo"
)
"""Names under which nobody else can publish a model, and the models bundled here."""
PARAMETER_WORDS = _words(
    "model layers layer midlayer decoder self attn self_attn attention q_proj k_proj v_proj o_proj "
    "qkv_proj q_norm k_norm mlp gate_proj up_proj down_proj gate_up_proj input_layernorm "
    "post_attention_layernorm hidden_norm norm final_norm fc fc1 fc2 lm_head target_lm_head "
    "embed_tokens embed embedding head weight bias weight_scale weight_packed weight_shape input_scale "
    "qweight qzeros scales g_idx d2t t2d rotary_emb inv_freq enorm hnorm eh_proj shared_head mtp "
    "medusa_head linear target draft experts shared_experts gate draft_model transformer h wte wpe ln_f "
    "ln_1 ln_2 c_attn c_proj c_fc position_ids blocks lm_heads token_map mask_embedding markov_head "
    "markov_w1 markov_w2 confidence_head proj"
)
