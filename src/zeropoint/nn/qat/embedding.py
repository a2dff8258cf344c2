"""Embedding tables in quantization-aware training."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from zeropoint.mistakes import MistakenValue
from zeropoint.nn.qat.trained import require_float, require_qconfig


def _fake_quant(cls: type, qconfig: Any, device: Any, dtype: Any) -> nn.Module:
    """What rounds the table: with a scale and a float zero point for each row, as the quantized one has."""
    made: Any = require_qconfig(cls, qconfig).weight(factory_kwargs={"device": device, "dtype": dtype})
    if "float_qparams" not in str(made.qscheme):
        table = "Embedding Bag" if issubclass(cls, nn.EmbeddingBag) else "Embedding"
        raise MistakenValue(
            f"{table} weights requires a qscheme of torch.per_channel_affine_float_qparams, got {made.qscheme}: use"
            " zeropoint.default_embedding_qat_qconfig, or the one with 4bit"
        )
    return made


class _Table:
    """What the tables share; goes before torch's class."""

    _FLOAT_MODULE: ClassVar[type[nn.Module]]
    _ARGUMENTS: ClassVar[tuple[str, ...]]  # what a float module of the kind is made with

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The module in training of a float one that has a qconfig; they share their weight."""
        qconfig = require_float(cls, mod, cls._FLOAT_MODULE)
        arguments = {name: getattr(mod, name) for name in cls._ARGUMENTS}
        made = cls(**arguments, device=mod.weight.device, qconfig=qconfig)
        made.weight = mod.weight
        return made.train(mod.training)

    def to_float(self: Any) -> Any:
        """A float module with a copy of the weight."""
        arguments = {name: getattr(self, name) for name in self._ARGUMENTS}
        return self._FLOAT_MODULE(**arguments, _weight=self.weight.detach().clone()).train(self.training)


class Embedding(_Table, nn.Embedding):
    """torch.nn.Embedding whose weight is fake-quantized by what `qconfig.weight` makes.

    Example:
        >>> import torch, zeropoint
        >>> Embedding(10, 4, qconfig=zeropoint.default_embedding_qat_qconfig)(torch.tensor([1, 2])).shape
        torch.Size([2, 4])
    """

    _FLOAT_MODULE = nn.Embedding
    _ARGUMENTS = (
        "num_embeddings",
        "embedding_dim",
        "padding_idx",
        "max_norm",
        "norm_type",
        "scale_grad_by_freq",
        "sparse",
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
        qconfig: Any = None,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.weight_fake_quant = _fake_quant(type(self), qconfig, device, dtype)
        self.qconfig = qconfig

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight_fake_quant(self.weight),
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


class EmbeddingBag(_Table, nn.EmbeddingBag):
    """torch.nn.EmbeddingBag whose weight is fake-quantized by what `qconfig.weight` makes.

    Example:
        >>> import torch, zeropoint
        >>> bag = EmbeddingBag(10, 4, mode="sum", qconfig=zeropoint.default_embedding_qat_qconfig)
        >>> bag(torch.tensor([1, 2, 3]), torch.tensor([0, 2])).shape
        torch.Size([2, 4])
    """

    _FLOAT_MODULE = nn.EmbeddingBag
    _ARGUMENTS = (
        "num_embeddings", "embedding_dim", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse",
        "include_last_offset", "padding_idx",
    )  # fmt: skip

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, mode, sparse, _weight,
            include_last_offset, padding_idx, device=device, dtype=dtype,
        )  # fmt: skip
        self.weight_fake_quant = _fake_quant(type(self), qconfig, device, dtype)
        self.qconfig = qconfig

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight_fake_quant(self.weight),
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
