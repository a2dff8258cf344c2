"""Embedding tables of 8, 4 or 2 bits: indices in, float32 out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from zeropoint.nn import qat
from zeropoint.nn.quantized.storage import as_qtensor, has_observed, quantize_weight, with_same_dtype
from zeropoint.numerics.dtypes import quantized_dtype, quint8
from zeropoint.numerics.named_constant import in_files
from zeropoint.observers import default_float_qparams_observer
from zeropoint.ops import embedding as ops
from zeropoint.qfunctions import embedding as packed
from zeropoint.tensor.create import quantize_per_channel
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.recording import is_recorded

_SUFFIX = {8: "byte", 4: "4bit", 2: "2bit"}
_MODES = {"sum": 0, "mean": 1, "max": 2}


class EmbeddingPackedParams(nn.Module):
    """A quantized embedding table, packed row by row.

    In a state_dict it is two entries, `dtype` and `_packed_weight`, the quantized weight, as in torch.ao.
    """

    if TYPE_CHECKING:  # torch.jit.script would read annotations
        _table: Tensor
        _scales: Tensor
        _zero_points: Tensor

    _version = 1
    __jit_unused_properties__ = ("_packed_weight",)

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = quint8) -> None:
        super().__init__()
        self.dtype = quantized_dtype(dtype)
        zeros = torch.zeros(num_embeddings, embedding_dim)
        self.set_weight(
            quantize_per_channel(zeros, torch.ones(num_embeddings), torch.zeros(num_embeddings), 0, self.dtype)
        )

    def set_weight(self, weight: QTensor) -> None:
        """Keep a packed copy of `weight`: quint8, quint4x2 or quint2x4, float zero points along axis 0."""
        made = packed.EmbeddingPackedParams(weight)
        if made._dtype is not self.dtype:
            raise ValueError(f"the weight must be {self.dtype.name}, the dtype of the module, got {made._dtype.name}")
        self._bits, self._columns = made.bit_rate(), made._columns
        self._is_padded = self._columns * self._bits % 8 != 0  # rows end with a whole byte
        for name, t in (("table", made._table), ("scales", made._scales), ("zero_points", made._zero_points)):
            self.register_buffer(f"_{name}", t, persistent=False)

    def _weight(self) -> QTensor:
        return packed.unpacked(self._table, self._columns, self.dtype, self._scales.clone(), self._zero_points.clone())

    @property
    def _packed_weight(self) -> packed.EmbeddingPackedParams:
        """What `zeropoint.qfunctions.embedding_byte` and relatives take; a copy."""
        return packed.EmbeddingPackedParams(self._weight())

    def forward(self, x: Tensor) -> Tensor:
        """`x` itself: the module around this one looks rows up."""
        return x

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return super()._apply(with_same_dtype(fn), recurse)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = in_files(self.dtype.name)
        destination[prefix + "_packed_weight"] = self._weight()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        _, strict, missing_keys, *_ = args
        state_dict.pop(prefix + "dtype", None)  # the weight knows it
        weight = state_dict.pop(prefix + "_packed_weight", None)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if weight is not None:
            weight = as_qtensor(weight)
            self.dtype = weight._qdtype
            self.set_weight(weight)
        elif strict:
            missing_keys.append(prefix + "_packed_weight")

    def __repr__(self) -> str:
        return repr(self._weight())


def _refuse_max_norm(name: str, max_norm: float | None) -> None:
    if max_norm is not None:
        raise NotImplementedError(
            f"{name}: rows of a quantized table cannot be scaled to max_norm={max_norm} when they are looked up: "
            "from_float scales all rows once"
        )


class Embedding(nn.Module):
    """Rows of a quantized table, as float32: ``(*indices.shape, embedding_dim)``.

    Args:
        num_embeddings, embedding_dim: the shape of the table.
        padding_idx, norm_type, scale_grad_by_freq, sparse: about training, which a quantized table is past.
        max_norm: None; `from_float` applies that of a float module.
        dtype: quint8, quint4x2 or quint2x4.

    Example:
        >>> import zeropoint
        >>> table = torch.tensor([[0.0, 1.5], [1.0, 2.0]])
        >>> layer = Embedding(2, 2)
        >>> layer.set_weight(
        ...     zeropoint.quantize_per_channel(table, torch.full((2,), 0.5), torch.zeros(2), 0, zeropoint.quint8)
        ... )
        >>> layer(torch.tensor([1, 0]))
        tensor([[1.0000, 2.0000],
                [0.0000, 1.5000]])
    """

    _version = 1
    _NAME = "QuantizedEmbedding"
    _FLOAT: ClassVar[tuple[type, ...]] = (nn.Embedding, qat.Embedding)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: QTensor | None = None,
        dtype: Any = quint8,
    ) -> None:
        super().__init__()
        _refuse_max_norm(type(self).__name__, max_norm)
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self._packed_params = EmbeddingPackedParams(num_embeddings, embedding_dim, dtype)
        if _weight is not None:
            self.set_weight(_weight)

    @property
    def dtype(self) -> Any:
        """Of the table."""
        return self._packed_params.dtype

    __jit_unused_properties__ = ("dtype",)

    def _get_name(self) -> str:
        return self._NAME

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, dtype={self.dtype},"
            " qscheme=per_channel_affine_float_qparams"
        )

    def forward(self, indices: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            return self._graph(indices)
        else:
            return self._graph(indices) if is_recorded() else self._eager(indices)

    def _eager(self, indices: Tensor) -> Tensor:
        w = self._packed_params
        return ops.run_embedding(f"embedding_{_SUFFIX[w._bits]}", w._table, w._columns, w._bits, indices)

    def _graph(self, indices: Tensor) -> Tensor:
        w = self._packed_params
        if w._bits == 8:
            return torch.ops.zeropoint.embedding_byte(w._table, indices)
        if w._bits == 4:
            y = torch.ops.zeropoint.embedding_4bit(w._table, indices)
        else:
            y = torch.ops.zeropoint.embedding_2bit(w._table, indices)
        return y.narrow(-1, 0, w._columns) if w._is_padded else y

    def set_weight(self, w: QTensor) -> None:
        """Keep a packed copy of the quantized weight."""
        if tuple(w.shape) != (self.num_embeddings, self.embedding_dim):
            raise ValueError(
                f"{type(self).__name__}: the weight must have shape {(self.num_embeddings, self.embedding_dim)}, got"
                f" {tuple(w.shape)}"
            )
        self._packed_params.set_weight(w)

    def weight(self) -> QTensor:
        """A copy of the quantized weight."""
        return self._packed_params._weight()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The quantized table of a float module; without a qconfig it gets 8 bits.

        Its qconfig is `float_qparams_weight_only_qconfig`, or that with 4bit at the end.
        """
        if type(mod) not in cls._FLOAT:
            raise TypeError(f"{cls.__name__}.from_float takes a {cls._FLOAT[0].__name__}, got a {type(mod).__name__}")
        weight = cls._renormed(mod)
        observer = getattr(mod, "weight_fake_quant", None)
        if observer is None or not has_observed(observer):
            qconfig = getattr(mod, "qconfig", None)
            observer = observer or (default_float_qparams_observer() if qconfig is None else qconfig.weight())
            observer(weight)
        if "float_qparams" not in str(observer.qscheme) or quantized_dtype(observer.dtype).name not in packed.DTYPES:
            raise ValueError(
                f"{cls.__name__}: the weight's observer must have qscheme per_channel_affine_float_qparams and "
                f"dtype {', '.join(packed.DTYPES)}, got {observer.qscheme} and {observer.dtype}: set the module's "
                "qconfig to zeropoint.float_qparams_weight_only_qconfig, or to None to keep it in float"
            )
        return cls._of(mod, quantize_weight(weight, observer))

    @classmethod
    def _renormed(cls, mod: Any) -> Tensor:
        """The float weight with what a lookup would do to its rows."""
        weight: Tensor = mod.weight.detach()
        return weight if mod.max_norm is None else torch.renorm(weight, mod.norm_type, 0, mod.max_norm)

    @classmethod
    def from_reference(cls, ref_embedding: Any) -> Any:
        """The quantized table of a reference module."""
        _refuse_max_norm(f"{cls.__name__}.from_reference", ref_embedding.max_norm)
        return cls._of(ref_embedding, as_qtensor(ref_embedding.get_quantized_weight()))

    @classmethod
    def _of(cls, like: Any, weight: QTensor) -> Any:
        return cls(like.num_embeddings, like.embedding_dim, like.padding_idx, _weight=weight, dtype=weight._qdtype)


class EmbeddingBag(Embedding):
    """Sums, means or maxima of rows of a quantized table, as float32: ``(bags, embedding_dim)``.

    Args:
        mode: "sum", "mean" or "max" (torch.ao takes sums, whatever it says).
        include_last_offset: whether the number of indices stands at the end of the offsets.

    Example:
        >>> import zeropoint
        >>> table = torch.tensor([[0.0, 1.5], [1.0, 2.0]])
        >>> weight = zeropoint.quantize_per_channel(table, torch.full((2,), 0.5), torch.zeros(2), 0, zeropoint.quint8)
        >>> EmbeddingBag(2, 2, _weight=weight)(torch.tensor([0, 1, 1]), torch.tensor([0, 2]))
        tensor([[1.0000, 3.5000],
                [1.0000, 2.0000]])
    """

    _NAME = "QuantizedEmbeddingBag"
    _FLOAT = (nn.EmbeddingBag, qat.EmbeddingBag)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "sum",
        sparse: bool = False,
        _weight: QTensor | None = None,
        include_last_offset: bool = False,
        dtype: Any = quint8,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, max_norm=max_norm, _weight=_weight, dtype=dtype)
        if mode not in _MODES:
            raise ValueError(f"EmbeddingBag: mode must be 'sum', 'mean' or 'max', got {mode!r}")
        self.mode, self._mode = mode, _MODES[mode]
        self.pruned_weights, self.include_last_offset = False, include_last_offset

    def forward(
        self,
        indices: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        compressed_indices_mapping: Tensor | None = None,
    ) -> Tensor:
        if torch.jit.is_scripting() or is_recorded():
            return self._bags_graph(indices, offsets, per_sample_weights, compressed_indices_mapping)
        else:
            return self._bags_eager(indices, offsets, per_sample_weights, compressed_indices_mapping)

    def _bags_eager(self, indices: Tensor, offsets: Tensor | None, weights: Tensor | None, mapping: Any) -> Tensor:
        w = self._packed_params
        rest = self.pruned_weights, weights, mapping, self.include_last_offset
        op = f"embedding_bag_{_SUFFIX[w._bits]}"
        return ops.run_bags(op, w._table, w._columns, w._bits, indices, offsets, self._mode, *rest)

    def _bags_graph(
        self, indices: Tensor, offsets: Tensor | None, weights: Tensor | None, mapping: Tensor | None
    ) -> Tensor:
        w = self._packed_params
        if w._bits == 8:
            y = torch.ops.zeropoint.embedding_bag_byte_rowwise_offsets(
                w._table, indices, offsets, False, self._mode, self.pruned_weights, weights, mapping,
                self.include_last_offset,
            )  # fmt: skip
        elif w._bits == 4:
            y = torch.ops.zeropoint.embedding_bag_4bit_rowwise_offsets(
                w._table, indices, offsets, False, self._mode, self.pruned_weights, weights, mapping,
                self.include_last_offset,
            )  # fmt: skip
        else:
            y = torch.ops.zeropoint.embedding_bag_2bit_rowwise_offsets(
                w._table, indices, offsets, False, self._mode, self.pruned_weights, weights, mapping,
                self.include_last_offset,
            )  # fmt: skip
        return y.narrow(-1, 0, w._columns) if w._is_padded else y

    @classmethod
    def _renormed(cls, mod: Any) -> Tensor:
        """As for `Embedding`; a row that is padding adds nothing to a sum, as one of zeros."""
        weight = super()._renormed(mod)
        if mod.padding_idx is None:
            return weight
        if mod.mode != "sum":
            raise NotImplementedError(
                f"EmbeddingBag: padding_idx={mod.padding_idx} is supported with mode='sum', got mode={mod.mode!r}: "
                "change the mode, or set the module's qconfig to None"
            )
        weight = weight.clone()
        weight[mod.padding_idx] = 0
        return weight

    @classmethod
    def _of(cls, like: Any, weight: QTensor) -> EmbeddingBag:
        return cls(
            like.num_embeddings,
            like.embedding_dim,
            mode=like.mode,
            _weight=weight,
            include_last_offset=like.include_last_offset,
            dtype=weight._qdtype,
        )
