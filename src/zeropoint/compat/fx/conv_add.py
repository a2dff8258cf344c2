"""Convolutions with a sum behind them, and perhaps a batch norm between and a ReLU after: one layer of two inputs."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from zeropoint.compat.fx.backend_config import BackendPatternConfig, DTypeConfig
from zeropoint.compat.fx.patterns import MatchAllNode
from zeropoint.eager.fuse import fold_batch_norm
from zeropoint.nn import intrinsic as nni
from zeropoint.nn.quantized import reference as nnqr


class _Shape:
    """Where the parts stand in ``[relu,] (add, left, right)``: the convolution is on one side, with or without norm."""

    def __init__(self, side: int, norm: bool, relu: bool) -> None:
        self.side, self.norm, self.relu = side, norm, relu

    def pattern(self, add: Any) -> Any:
        layer: Any = (nn.BatchNorm2d, nn.Conv2d) if self.norm else nn.Conv2d
        summed = (add, layer, MatchAllNode) if self.side == 0 else (add, MatchAllNode, layer)
        return (nn.ReLU, summed) if self.relu else summed

    def _summed(self, nodes: Any) -> Any:
        return nodes[1] if self.relu else nodes

    def root(self, nodes: Any) -> Any:
        layer = self._summed(nodes)[1 + self.side]
        return layer[1] if self.norm else layer

    def extra_inputs(self, nodes: Any) -> list[Any]:
        return [self._summed(nodes)[2 - self.side]]

    def fuse(self, is_qat: bool, *modules: Any) -> nn.Module:
        add, *sides = self._summed(modules)
        layer = sides[self.side]
        if self.norm:
            if is_qat:
                raise NotImplementedError("Conv2d + BatchNorm2d + add is not supported in quantization-aware training")
            norm, conv = layer
            layer = fold_batch_norm(conv, norm)
        return nni.ConvAddReLU2d(layer, add, modules[0]) if self.relu else nni.ConvAdd2d(layer, add)


def conv_add_configs(dtypes: list[DTypeConfig]) -> Iterator[BackendPatternConfig]:
    """The patterns, and the modules that they are fused into."""
    for side, norm, relu, add in itertools.product((0, 1), (True, False), (True, False), (torch.add, operator.add)):
        shape = _Shape(side, norm, relu)
        yield (
            BackendPatternConfig()
            ._set_pattern_complex_format(shape.pattern(add))
            .set_dtype_configs(dtypes)
            .set_fuser_method(shape.fuse)
            ._set_root_node_getter(shape.root)
            ._set_extra_inputs_getter(shape.extra_inputs)
            .set_fused_module(nni.ConvAddReLU2d if relu else nni.ConvAdd2d)
        )
    for fused in (nni.ConvAdd2d, nni.ConvAddReLU2d):
        yield (
            BackendPatternConfig(fused)
            .set_dtype_configs(dtypes)
            .set_root_module(nn.Conv2d)
            .set_reference_quantized_module(nnqr.Conv2d)
        )
