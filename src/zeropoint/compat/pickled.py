"""Whole modules in files of the old stack: ``torch.save(model)`` by torch.ao, loaded as modules of zeropoint.

A pickle has the names of classes, which `zeropoint.compat` answers with ours, and their attributes, which differ: what
an old module kept as a buffer or as a C++ object is turned into what ours keep. Each function here does so for one
class and all that inherit from it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from zeropoint.compat.changes import Changes
from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.nn import quantizable
from zeropoint.nn.quantized import (
    LSTM,
    Embedding,
    EmbeddingBag,
    LayerNorm,
    PReLU,
    QFunctional,
    Quantize,
    dynamic,
)
from zeropoint.nn.quantized.conv import _ConvNd
from zeropoint.nn.quantized.dynamic.cells import RNNCellBase
from zeropoint.nn.quantized.dynamic.recurrent_weights import Matrix, PackedParameter
from zeropoint.nn.quantized.dynamic.rnn import RNNBase
from zeropoint.nn.quantized.embedding import _MODES, EmbeddingPackedParams
from zeropoint.nn.quantized.linear import LinearPackedParams
from zeropoint.nn.quantized.reference.weight import ReferenceModule
from zeropoint.nn.quantized.storage import QuantizedOutput, as_qtensor
from zeropoint.numerics.dtypes import DTYPES, quantized_dtype
from zeropoint.numerics.schemes import SCHEMES, qscheme as scheme_of
from zeropoint.observers.base import ObserverBase, UniformQuantizationObserverBase

_ADOPTED: dict[type, Callable[[Any], None]] = {}


def _adopts(cls: type) -> Any:
    def keep(function: Callable[[Any], None]) -> Callable[[Any], None]:
        _ADOPTED[cls] = function
        return function

    return keep


# A convolution is pickled as these, not as its attributes.
_CONVOLUTION = (
    *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "transposed", "output_padding"),
    *("groups", "padding_mode", "weight", "bias", "scale", "zero_point", "training"),
)


def adopt(module: Any, state: Any) -> None:
    """Give a module of zeropoint the state that a pickle has for it: one of zeropoint's, or of torch.ao's module."""
    if isinstance(state, tuple):
        old = SimpleNamespace(**dict(zip(_CONVOLUTION, state, strict=True)))
        made = type(module)._of(old, as_qtensor(old.weight), old.bias, float(old.scale), int(old.zero_point))
        state = vars(made.train(old.training))
    nn.Module.__setstate__(module, {name: _ours(value) for name, value in state.items()})
    for cls in reversed(type(module).__mro__):
        if cls in _ADOPTED:
            _ADOPTED[cls](module)


def _ours(value: Any) -> Any:
    """Our dtype or scheme for one of PyTorch's; everything else as it is."""
    name = str(value).removeprefix("torch.") if isinstance(value, (torch.dtype, torch.qscheme)) else ""
    return quantized_dtype(name) if name in DTYPES else scheme_of(name) if name in SCHEMES else value


# ----------------------------------------------------------------------------------------------- what has a scale


@_adopts(QuantizedOutput)
def _quantized_output(m: Any) -> None:
    for name, kind in (("scale", float), ("zero_point", int)):
        for place, key in ((m._buffers, name), (vars(m), f"output_{name}"), (vars(m), name)):
            if key in place:
                vars(m)[name] = kind(place.pop(key))
                break


@_adopts(Quantize)
def _quantize(m: Any) -> None:
    for name, kind in (("scale", float), ("zero_point", int)):
        if name in m._buffers:
            setattr(m, f"_{name}", kind(m._buffers.pop(name)))
    m._dtype_name = m.dtype.name


@_adopts(QFunctional)
def _functional(m: Any) -> None:
    m._modules.pop("activation_post_process", None)


@_adopts(LayerNorm)
def _layer_norm(m: Any) -> None:
    m._shape = list(m.normalized_shape)


@_adopts(PReLU)
def _prelu(m: Any) -> None:
    if "weight" in vars(m):
        m.set_weight(as_qtensor(vars(m).pop("weight")))


# -------------------------------------------------------------------------------------------------- what has weights


@_adopts(_ConvNd)
def _convolution(m: Any) -> None:
    """Nothing is left to do: see `adopt`."""


@_adopts(LinearPackedParams)
def _linear_weight(m: Any) -> None:
    packed = vars(m).pop("_packed_params", None)
    if packed is not None:
        weight, bias = packed.unpack()
        m.dtype = weight._qdtype if hasattr(weight, "_qdtype") else torch.float16
        m.set_weight_bias(weight, bias)


@_adopts(dynamic.Linear)
def _dynamic_linear(m: Any) -> None:
    # Layers of torch.ao quantize their input to 7 bits since version 4; zeropoint's say what they do.
    vars(m).setdefault("reduce_range", vars(m).get("version") is not None and m.version >= 4)


@_adopts(EmbeddingPackedParams)
def _table(m: Any) -> None:
    packed = vars(m).pop("_packed_weight", None)
    if packed is not None:
        weight = packed.unpack()
        m.dtype = weight._qdtype
        m.set_weight(weight)


@_adopts(Embedding)
def _embedding(m: Any) -> None:
    vars(m).pop("dtype", None)  # the table knows it
    vars(m).setdefault("padding_idx", None)
    if isinstance(m, EmbeddingBag):
        m._mode = _MODES[m.mode]


@_adopts(RNNBase)
def _recurrent(m: Any) -> None:
    vars(m).pop("dtype", None)  # the weights know it


@_adopts(PackedParameter)
def _recurrent_weights(m: Any) -> None:
    param = vars(m).pop("param", None)
    if param is not None:
        m._set(param.w_ih.unpack(), param.w_hh.unpack(), param.reduce_range)


@_adopts(RNNCellBase)
def _cell(m: Any) -> None:
    for name in ("ih", "hh"):
        packed = vars(m).pop(f"_packed_weight_{name}", None)
        vars(m).pop(f"bias_{name}", None)  # packed with the weight
        m._parameters.pop(f"bias_{name}", None)
        if packed is not None:
            setattr(m, f"_{name}", Matrix(*packed.unpack()))
    m._made = None


@_adopts(ReferenceModule)
def _reference(m: Any) -> None:
    for name in m._names:
        vars(m).setdefault("is_decomposed", False)
        m._refresh(name)


@_adopts(LSTM)
def _static_lstm(m: Any) -> None:
    m._take_parts()


@_adopts(quantizable.LSTMCell)
def _cell_states(m: Any) -> None:
    for name in ("hidden", "cell"):
        vars(m).setdefault(f"initial_{name}_state_qparams", (1.0, 0))


# ------------------------------------------------------------------------------------------- observers and training


@_adopts(ObserverBase)
@_adopts(FakeQuantizeBase)
def _observer(m: Any) -> None:
    vars(m).setdefault("is_dynamic", False)


@_adopts(UniformQuantizationObserverBase)
def _uniform_observer(m: Any) -> None:
    if "symmetric" not in vars(m):
        m.prepared_elsewhere = True
        m._set_plain_numbers()


def adopt_pickled_modules(changes: Changes) -> None:
    """Let our modules take the states of torch.ao's."""
    for cls in _ADOPTED:
        changes.attribute(cls, "__setstate__", adopt)
