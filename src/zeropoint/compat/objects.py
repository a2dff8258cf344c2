"""C++ objects in files of the old stack: weights packed by PyTorch, which become packed weights of zeropoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zeropoint.compat.packed_versions import conv_state
from zeropoint.qfunctions.embedding import EmbeddingPackedParams
from zeropoint.qfunctions.packed import ConvPackedParams, LinearPackedParams, LinearPackedParamsFp16
from zeropoint.qfunctions.recurrent import CellParams
from zeropoint.tensor.qtensor import QTensor

PACKED = (LinearPackedParams, LinearPackedParamsFp16, ConvPackedParams, EmbeddingPackedParams, CellParams)

# What a file calls the class, and what a pickle does.
PREFIX = "__torch__.torch.classes."
PICKLED = ("torch.ScriptObject", "torch._C.ScriptObject")


def _linear(weight: Any, bias: Any) -> Any:
    return LinearPackedParams(weight, bias) if isinstance(weight, QTensor) else LinearPackedParamsFp16(weight, bias)


def _conv(*state: Any) -> Any:
    (dims, *numbers), weight, bias = conv_state(state)
    stride, padding, dilation, output_padding = (numbers[i * dims : (i + 1) * dims] for i in range(4))
    groups, transposed = numbers[4 * dims :]
    more = output_padding if transposed else None
    return ConvPackedParams(weight, bias, stride, padding, dilation, groups, more)


def _embedding(version: int, tensors: Any, doubles: Any, longs: Any) -> Any:
    return EmbeddingPackedParams(tensors[0])


def _cell(kind: str, tensors: Any, doubles: Any, longs: Any, weights: Any) -> Any:
    w_ih, w_hh = weights
    return CellParams(w_ih, w_hh, reduce_range=bool(longs and longs[0]))


_READERS: dict[str, Callable[..., Any]] = {
    "quantized.LinearPackedParamsBase": _linear,
    "quantized.Conv2dPackedParamsBase": _conv,
    "quantized.Conv3dPackedParamsBase": _conv,
    "quantized.EmbeddingPackedParamsBase": _embedding,
    "rnn.CellParamsBase": _cell,
}


def packed_weight(parts: Any, name: str) -> Any:
    """The packed weight that PyTorch's class `name` wrote as `parts`.

    Example:
        >>> import torch, zeropoint
        >>> weight = zeropoint.quantize_per_tensor(torch.ones(2, 3), 0.5, 0, zeropoint.qint8)
        >>> packed_weight((weight, None), "__torch__.torch.classes.quantized.LinearPackedParamsBase").unpack()[0].shape
        torch.Size([2, 3])
    """
    reader = _READERS.get(name.removeprefix(PREFIX))
    if reader is None:
        raise NotImplementedError(
            f"the file contains an object of the C++ class {name.removeprefix(PREFIX)}, which zeropoint does not "
            "support: load it with the PyTorch that wrote it, and save its weights as tensors"
        )
    return reader(*parts)


def is_packed_weight(name: str) -> bool:
    """Whether PyTorch's class of this name is one of packed weights; others are of other libraries."""
    return name.removeprefix(PREFIX) in _READERS


class OldObject:
    """What a pickle calls torch.ScriptObject; with its state it becomes a packed weight of zeropoint."""

    def __setstate__(self, state: Any) -> None:
        made = packed_weight(*state)
        self.__class__, self.__dict__ = type(made), vars(made)
