"""Functions that make one module of several: ``(is_qat, *modules) -> module``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from zeropoint.compat.fx.patterns import MatchAllNode
from zeropoint.eager.fuse import fold_batch_norm, fuse_parts
from zeropoint.nn import intrinsic as nni
from zeropoint.operators import fusions

Fuser = Callable[..., Any]


def fuse_conv_bn(is_qat: bool, conv: nn.Module, bn: nn.Module) -> nn.Module:
    """A convolution with the batch norm behind it: folded, or, for training, both as one.

    Example:
        >>> fuse_conv_bn(False, nn.Conv2d(1, 1, 1).eval(), nn.BatchNorm2d(1).eval())
        Conv2d(1, 1, kernel_size=(1, 1), stride=(1, 1))
    """
    return fuse_parts((conv, bn), is_qat)


def fuse_conv_bn_relu(is_qat: bool, conv: nn.Module, bn: nn.Module, relu: nn.Module) -> nn.Module:
    """As `fuse_conv_bn`, with a ReLU behind them."""
    return fuse_parts((conv, bn, relu), is_qat)


def fuse_linear_bn(is_qat: bool, linear: nn.Module, bn: nn.Module) -> nn.Module:
    """A linear layer with the batch norm behind it."""
    return fuse_parts((linear, bn), is_qat)


def fuse_convtranspose_bn(is_qat: bool, convt: nn.Module, bn: nn.Module) -> nn.Module:
    """A transposed convolution with the batch norm behind it; not for training."""
    return fuse_parts((convt, bn), is_qat)


def fuse_linear_bn_leaky_relu(is_qat: bool, linear: nn.Module, bn: nn.Module, leaky_relu: nn.Module) -> nn.Module:
    """A linear layer with a batch norm and a leaky ReLU behind it; not for training."""
    if is_qat:
        raise NotImplementedError("Linear + BatchNorm1d + LeakyReLU is not supported in quantization-aware training")
    return nni.LinearLeakyReLU(fold_batch_norm(linear, bn), leaky_relu)


def sequential_wrapper2(sequential: Callable[..., nn.Module]) -> Fuser:
    """``(is_qat, m1, m2) -> sequential(m1, m2)``."""

    def fuser_method(is_qat: bool, m1: nn.Module, m2: nn.Module) -> nn.Module:
        return sequential(m1, m2)

    return fuser_method


def nested(fuser_method: Fuser, parts: int) -> Fuser:
    """The same function for modules in the shape of a nested pattern: ``(is_qat, relu, (bn, conv))``.

    Example:
        >>> nested(lambda is_qat, *modules: modules, 3)(False, "relu", ("bn", "conv"))
        ('conv', 'bn', 'relu')
    """

    def of_two(is_qat: bool, last: Any, first: Any) -> Any:
        return fuser_method(is_qat, first, last)

    def of_three(is_qat: bool, last: Any, others: Any) -> Any:
        second, first = others
        return fuser_method(is_qat, first, second, last)

    return of_two if parts == 2 else of_three


def get_fuser_method(op_list: Any, additional_fuser_method_mapping: Mapping[Any, Fuser] | None = None) -> Fuser:
    """What fuses modules of these types; ValueError if nothing does."""
    more = additional_fuser_method_mapping or {}
    if op_list in more:
        return more[op_list]
    if not any(fusion.parts == tuple(op_list) for fusion in fusions()):
        names = " + ".join(getattr(t, "__name__", str(t)) for t in op_list)
        raise ValueError(f"no fuser method for {names}: set one in the BackendConfig")

    def fuser_method(is_qat: bool, *modules: nn.Module) -> nn.Module:
        return fuse_parts(modules, is_qat)

    return fuser_method


# Types of modules in a row -> what makes one of them.
FUSER_METHODS = MappingProxyType({fusion.parts: get_fuser_method(fusion.parts) for fusion in fusions()})


def _with_wildcards(pattern: Any) -> list[Any]:
    """A nested pattern, and those in which some of its calls are anything."""
    if isinstance(pattern, (tuple, list)):
        return list(itertools.product(*map(_with_wildcards, pattern)))
    return [pattern, MatchAllNode]


def get_fuser_method_new(op_pattern: Any, fuser_method_mapping: Mapping[Any, Fuser]) -> Fuser:
    """What fuses a nested pattern, also where the mapping has `MatchAllNode`; ValueError if nothing does."""
    for pattern in _with_wildcards(op_pattern):
        if pattern in fuser_method_mapping:
            return fuser_method_mapping[pattern]
    raise ValueError(f"no fuser method for {op_pattern}: set one in the BackendConfig")
