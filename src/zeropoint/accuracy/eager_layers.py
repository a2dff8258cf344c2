"""Layers of eager mode: modules of a converted model, watched by hooks while both models run.

The whole model is run for each of its layers, so that only what one layer gets is held at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.accuracy.layers import TunableLayer
from zeropoint.accuracy.operation import Operation
from zeropoint.comparison.eager_pairs import EagerPairs
from zeropoint.nn import quantized as nnq
from zeropoint.nn.intrinsic import quantized as nniq
from zeropoint.nn.intrinsic.quantized import dynamic as nniqd
from zeropoint.nn.quantized import dynamic as nnqd
from zeropoint.tensor.create import make_per_channel_quantized_tensor, make_per_tensor_quantized_tensor
from zeropoint.tensor.qtensor import QTensor

_DIMS: dict[type, int] = {
    **dict.fromkeys((nnq.Linear, nniq.LinearReLU, nnqd.Linear, nniqd.LinearReLU), 0),
    **dict.fromkeys((nnq.Conv1d, nniq.ConvReLU1d), 1),
    **dict.fromkeys((nnq.Conv2d, nniq.ConvReLU2d), 2),
    **dict.fromkeys((nnq.Conv3d, nniq.ConvReLU3d), 3),
}


class EagerLayer(TunableLayer):
    """A module of `zeropoint.nn.quantized` or `zeropoint.nn.quantized.dynamic`."""

    def __init__(self, path: str, module: Any, weight: Tensor, given: list[Any], wanted: list[Tensor]) -> None:
        self.name = self.path = path
        self._module, self._given = module, given
        self.weight, self.wanted = weight, wanted
        self.inputs = [x.dequantize() if isinstance(x, QTensor) else x for x in given]
        names = ("stride", "padding", "dilation", "groups")
        dims = _DIMS[type(module)]
        numbers = {name: getattr(module, name) for name in names} if dims else {}
        self.operation = Operation.of_arguments(numbers, dims, "ReLU" in type(module).__name__)
        stored = module.weight()
        self._per_channel = "per_channel" in str(stored.qscheme())
        shape = [-1 if d == 0 else 1 for d in range(weight.dim())]
        if self._per_channel:
            scale, zero_point = stored.q_per_channel_scales(), stored.q_per_channel_zero_points()
        else:
            scale, zero_point = torch.tensor([stored.q_scale()]), torch.tensor([stored.q_zero_point()])
        self.scale, self.zero_point = scale.float().reshape(shape), zero_point.float().reshape(shape)
        integers = self.integers
        self.low, self.high = int(integers.min()), int(integers.max())

    @property
    def integers(self) -> Tensor:
        return self._module.weight().int_repr().to(torch.int32)

    @property
    def bias(self) -> Tensor | None:
        return self._module.bias()

    def store(self, integers: Tensor) -> None:
        old = self._module.weight()
        values = integers.to(old.int_repr().dtype)
        if self._per_channel:
            scales, zero_points = old.q_per_channel_scales(), old.q_per_channel_zero_points()
            new = make_per_channel_quantized_tensor(values, scales, zero_points, old.q_per_channel_axis())
        else:
            new = make_per_tensor_quantized_tensor(values, old.q_scale(), old.q_zero_point())
        self._module.set_weight_bias(new, self.bias)

    def store_bias(self, bias: Tensor) -> None:
        self._module.set_weight_bias(self._module.weight(), bias.detach().float())

    def run(self) -> list[Tensor]:
        with torch.no_grad():
            found = [self._module(x) for x in self._given]
        return [y.dequantize() if isinstance(y, QTensor) else y for y in found]


def eager_layers(model: nn.Module, quantized: nn.Module, batches: Iterable[Any], memory: int) -> Iterator[EagerLayer]:
    """The layers of `quantized`, which are changed in place; see `zeropoint.accuracy.layers.layers_of`."""
    pairs = EagerPairs(model, quantized)
    some = list(batches)
    for layer in pairs.layers():
        module: Any = quantized.get_submodule(layer.path) if layer.path else quantized
        if type(module) not in _DIMS or layer.weight is None or getattr(module, "padding_mode", "zeros") != "zeros":
            continue
        given: list[Any] = []
        wanted: list[Tensor] = []
        hook = module.register_forward_pre_hook(lambda _, args, given=given: given.append(args[0]))
        try:
            for batch in some:
                wanted += [pair.wanted for pair in pairs.run(batch) if pair.layer.name == layer.name]
                held = sum(t.numel() * 4 for t in (*given, *wanted))
                if held * 2 > memory:
                    break
        finally:
            hook.remove()
        if given:
            yield EagerLayer(layer.path, module, layer.weight, given[: len(wanted)], wanted)
