"""The weights of recurrent layers and cells: two matrices with their biases, int8 or float16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zeropoint import _native
from zeropoint.nn.quantized.storage import StoredWeight, as_qtensor, quantize_weight
from zeropoint.numerics.dtypes import qint8, quantized_dtype
from zeropoint.ops import layers, recurrent as ops, rounding
from zeropoint.qconfig import default_dynamic_qconfig
from zeropoint.qfunctions import packed, recurrent
from zeropoint.tensor.create import empty_affine_quantized
from zeropoint.tensor.qtensor import QTensor


def pack_weight_bias(qweight: Any, bias: Tensor | None, dtype: Any = qint8) -> recurrent.Packed:
    """A weight and its bias as `zeropoint.qfunctions.quantized_lstm_cell_dynamic` and relatives take them.

    Example:
        >>> pack_weight_bias(torch.ones(4, 1), None, torch.float16).unpack()[0].shape
        torch.Size([4, 1])
    """
    if weight_kind(dtype) == torch.float16:
        return packed.LinearPackedParamsFp16(qweight, bias)
    return packed.LinearPackedParams(qweight, bias)


def weight_kind(dtype: Any) -> Any:
    """qint8 or torch.float16; others are refused."""
    if dtype == torch.float16 or str(dtype) == "float16":
        return torch.float16
    if quantized_dtype(dtype) is not qint8:
        raise ValueError(f"the weights of recurrent layers must be qint8 or float16, got {dtype}")
    return qint8


class Matrix(StoredWeight):
    """One weight of a cell, with its bias."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.set_weight_bias(weight, bias)

    def set_weight_bias(self, weight: Tensor, bias: Tensor | None) -> None:
        """Keep copies; a float weight is kept in float16."""
        self._store(weight if isinstance(weight, QTensor) else layers.to_fp16_weight(weight), bias)

    def fits(self, key: str, weight: Tensor, errors: list[str]) -> bool:
        """Whether a weight from a state_dict has the shape of this one; if not, `errors` say so."""
        if weight.shape == self._weight_values.shape:
            return True
        shapes = f"{tuple(weight.shape)} in the state_dict, {tuple(self._weight_values.shape)} in the module"
        errors.append(f"size mismatch for a weight in {key}: {shapes}.")
        return False

    def matrix(self) -> ops.Matrix:
        """The parts, as the native core takes them."""
        if self._weight_dtype == "float16":
            return ops.Matrix(self._weight_values, None, None, self._bias)
        return ops.Matrix(self._weight_values, self._weight_scales, self._weight_zero_points, self._bias)

    def packed(self) -> recurrent.Packed:
        """A copy, as the functions of `zeropoint.qfunctions` take it."""
        weight, bias = self._stored()
        return pack_weight_bias(weight, bias, qint8 if isinstance(weight, QTensor) else torch.float16)


def blank_weight(rows: int, columns: int, dtype: Any) -> Tensor:
    """A weight of zeros."""
    if dtype == torch.float16:
        return torch.zeros(rows, columns)
    weight = empty_affine_quantized([rows, columns], scale=1.0, zero_point=0, dtype=dtype)
    weight._data.zero_()
    return weight


def replace_weight(
    module: nn.Module, name: str, matrix: Matrix, weight: Tensor, bias: Tensor | None, dtype: Any
) -> None:
    """Let `matrix` keep `weight` and `bias`, if they are what it holds."""
    if isinstance(weight, QTensor) == (dtype == torch.float16):
        wanted = "a float tensor" if dtype == torch.float16 else "a quantized tensor"
        raise TypeError(f"{type(module).__name__}: {name} must be {wanted}, got {type(weight).__name__}")
    if weight.shape != matrix._weight_values.shape:
        shapes = f"{tuple(matrix._weight_values.shape)}, got {tuple(weight.shape)}"
        raise ValueError(f"{type(module).__name__}: {name} must have shape {shapes}")
    matrix.set_weight_bias(weight, bias)


def unpacked(stored: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a packed linear layer: ours, or one of torch.ao's, from its state_dict."""
    if isinstance(stored, (packed.LinearPackedParams, packed.LinearPackedParamsFp16)):
        return stored.unpack()
    weight, bias = stored.__getstate__()[0]
    return as_qtensor(weight), bias


class PackedOnce(nn.Module):
    """A module with something packed for this CPU, which does not outlive a move or a copy."""

    if TYPE_CHECKING:  # torch.jit.script would read annotations
        _made: Any  # (instruction set, native layer)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._made = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}


class NamedWeights(nn.Module):
    """A module with several weights, which have the names that torch.nn has for them."""

    if TYPE_CHECKING:
        bias: bool

    def _matrices(self) -> dict[str, Matrix]:
        """The weights and biases by the ends of their names."""
        raise NotImplementedError

    def _weight_bias(self) -> dict[str, dict[str, Any]]:
        stored = {name: m._stored() for name, m in self._matrices().items()}
        return {
            "weight": {f"weight_{name}": w for name, (w, _) in stored.items()},
            "bias": {f"bias_{name}": b for name, (_, b) in stored.items()} if self.bias else {},
        }

    def get_weight(self) -> dict[str, Any]:
        """Copies of the weights, by the names that torch.nn has for them."""
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Any]:
        """Copies of the biases, by the names that torch.nn has for them."""
        return self._weight_bias()["bias"]


class PackedParameter(PackedOnce):
    """The two weights of one direction of a layer. In a state_dict it is one entry, `param`, as in torch.ao."""

    __jit_unused_properties__ = ("param",)

    def __init__(self, param: recurrent.CellParams) -> None:
        super().__init__()
        self._set(unpacked(param.w_ih), unpacked(param.w_hh), param.reduce_range)

    def _set(self, ih: tuple[Tensor, Tensor | None], hh: tuple[Tensor, Tensor | None], reduce_range: bool) -> None:
        self.ih, self.hh, self.reduce_range = Matrix(*ih), Matrix(*hh), reduce_range
        self._made = None

    @property
    def param(self) -> recurrent.CellParams:
        """What `zeropoint.qfunctions.quantized_lstm` and relatives take; a copy."""
        return recurrent.CellParams(self.ih.packed(), self.hh.packed(), reduce_range=self.reduce_range)

    def layer(self, op: str, kind: ops.Kind) -> _native.RecurrentLayer:
        """The native layer for the instruction set in use."""
        isa = _native.isa()
        if self._made is None or self._made[0] != isa:
            reduce_range = rounding.takes_7_bits(self.reduce_range, self.ih._rounding)
            made = ops.make_recurrent_layer(op, kind, self.ih.matrix(), self.hh.matrix(), reduce_range)
            self._made = isa, made
        return self._made[1]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "param"] = self.param

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        _, strict, missing_keys, _, errors = args
        param = state_dict.pop(prefix + "param", None)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if param is None:
            if strict:
                missing_keys.append(prefix + "param")
            return
        if isinstance(param, recurrent.CellParams):
            reduce_range, weights = param.reduce_range, (param.w_ih, param.w_hh)
        else:  # torch.ao's
            _, _, _, numbers, weights = param.__getstate__()[0]
            reduce_range = bool(numbers and numbers[0])
        ih, hh = (unpacked(w) for w in weights)
        if self.ih.fits(prefix + "param", ih[0], errors) and self.hh.fits(prefix + "param", hh[0], errors):
            self._set(ih, hh, reduce_range)


def observed_weight(mod: Any, name: str) -> Any:
    """The weight `name` of a float module as its qconfig wants it: a QTensor, or float to keep in float16."""
    weight = getattr(mod, name).detach().float()
    observer = weight_observer(mod)()
    if weight_kind(observer.dtype) == torch.float16:
        return weight
    observer(weight)
    return quantize_weight(weight, observer)


def weight_observer(mod: Any) -> Any:
    qconfig = getattr(mod, "qconfig", None)
    return (default_dynamic_qconfig if qconfig is None or qconfig.weight is None else qconfig).weight


def require_float(cls: Any, mod: nn.Module) -> None:
    if type(mod) is not cls._FLOAT_MODULE:
        raise TypeError(f"{cls.__name__}.from_float takes a {cls._FLOAT_MODULE.__name__}, got a {type(mod).__name__}")
