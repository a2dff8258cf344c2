"""Embedding tables that are rounded to what quantization will make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from zeropoint.nn.quantized.reference.weight import OneWeight


class Embedding(OneWeight, nn.Embedding):
    """Rows of ``dequantize(quantize(weight))``; arguments as for torch.nn.Embedding, and see `reference.Linear`.

    Example:
        >>> import torch
        >>> qparams = {"qscheme": "per_tensor_affine", "dtype": "quint8", "scale": 0.5, "zero_point": 8}
        >>> table = Embedding(3, 2, weight_qparams=qparams)
        >>> _ = nn.init.constant_(table.weight, 0.7)
        >>> table(torch.tensor([1]))
        tensor([[0.5000, 0.5000]])
    """

    _FLOAT: ClassVar[tuple[type, ...]] = (nn.Embedding,)

    def __init__(self, *args: Any, weight_qparams: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        nn.Embedding.__init__(self, *args, **kwargs)
        self._init_weight_qparams(weight_qparams, kwargs.get("device"))

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.get_weight(), self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip

    @classmethod
    def from_float(
        cls, mod: Any, weight_qparams: Mapping[str, Any] | None = None, use_precomputed_fake_quant: bool = False
    ) -> Embedding:
        """The reference table of a float one; without `weight_qparams`, what its qconfig finds."""
        layer, qparams = cls._found(mod, weight_qparams)
        made = cls(
            mod.num_embeddings, mod.embedding_dim, mod.padding_idx, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq,
            mod.sparse, device=layer.weight.device, weight_qparams=qparams,
        )  # fmt: skip
        return made._take(layer)


class EmbeddingBag(OneWeight, nn.EmbeddingBag):
    """Sums, means or maxima of rows of ``dequantize(quantize(weight))``; arguments as for torch.nn.EmbeddingBag."""

    _FLOAT: ClassVar[tuple[type, ...]] = (nn.EmbeddingBag,)

    def __init__(self, *args: Any, weight_qparams: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        nn.EmbeddingBag.__init__(self, *args, **kwargs)
        self._init_weight_qparams(weight_qparams, kwargs.get("device"))

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.get_weight(), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    @classmethod
    def from_float(
        cls, mod: Any, weight_qparams: Mapping[str, Any] | None = None, use_precomputed_fake_quant: bool = False
    ) -> EmbeddingBag:
        """The reference table of a float one; without `weight_qparams`, what its qconfig finds."""
        layer, qparams = cls._found(mod, weight_qparams)
        made = cls(
            mod.num_embeddings, mod.embedding_dim, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq, mod.mode,
            mod.sparse, include_last_offset=mod.include_last_offset, padding_idx=mod.padding_idx,
            device=layer.weight.device, weight_qparams=qparams,
        )  # fmt: skip
        return made._take(layer)
