"""Decoders of transformers with a cache of a fixed size: one program for the prompt and for each token behind it."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from .packages import hugging

_NO_SCORE = -1e9  # of places behind the one that looks; added, so that eager attention takes it
DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {"num_key_value_heads": 2}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {"num_key_value_heads": 2}),
}


class Cached(nn.Module):
    """A decoder that keeps keys, values and the number of tokens it has seen; `ids` of shape ``(1, tokens)``.

    The mask is given, because transformers makes another for one token than for several. For the same reason the
    model needs ``attn_implementation="eager"``.
    """

    def __init__(self, model: Any, length: int) -> None:
        super().__init__()
        cache = importlib.import_module("transformers.cache_utils").StaticCache(model.config, length)
        heads = getattr(model.config, "num_key_value_heads", None) or model.config.num_attention_heads
        size = model.config.hidden_size // model.config.num_attention_heads
        cache.early_initialization(1, heads, size, torch.float32, torch.device("cpu"))
        self.model, self.cache, self.length = model, cache, length

    def forward(self, ids: Tensor) -> Tensor:
        at = self.cache.layers[0].cumulative_length + torch.arange(ids.shape[1])
        mask = torch.where(torch.arange(self.length) <= at[:, None], 0.0, _NO_SCORE)
        return self.model(
            ids, attention_mask=mask[None, None], position_ids=at[None], past_key_values=self.cache
        ).logits


def decoder(name: str, length: int) -> nn.Module:
    """One of `DECODERS` with a tiny configuration and fixed weights."""
    torch.manual_seed(20)
    model, config, options = DECODERS[name]
    return Cached(hugging(model, config, attn_implementation="eager", **options)().eval(), length).eval()
