"""The geometry of a convolution: stride, padding, dilation and groups in one to three dimensions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor

_KEPT_SIZES = 64


def three(values: Sequence[int], missing: int, dims: int) -> tuple[int, int, int]:
    """A value for each of three axes; one value counts for all, and axes that are not there get `missing`."""
    values = list(values) * dims if len(values) == 1 else list(values)
    first, second, third = [missing] * (3 - dims) + values
    return first, second, third


class Geometry:
    """The shape of a convolution: what PyTorch's functions take, in three dimensions."""

    def __init__(
        self,
        op: str,
        dims: int,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        output_padding: Sequence[int] | None = None,
    ) -> None:
        self.op, self.dims, self.groups = op, dims, groups
        self.transposed = output_padding is not None
        given = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding or [0]}
        least = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
        for name, values in given.items():
            if len(values) not in (1, dims) or any(v < least[name] for v in values):
                raise ValueError(
                    f"{op}: {name} must have {dims} values (or one) of at least {least[name]}, got {list(values)}"
                )
        self.stride = three(stride, 1, dims)
        self.padding = three(padding, 0, dims)
        self.dilation = three(dilation, 1, dims)
        self.output_padding = three(given["output_padding"], 0, dims)
        self._sizes: dict[tuple[Any, ...], tuple[int, ...]] = {}  # shapes of input and weight -> that of the output

    def key(self) -> tuple[Any, ...]:
        return self.dims, self.groups, self.transposed, self.stride, self.padding, self.dilation, self.output_padding

    def channels(self, weight: Tensor) -> tuple[int, int]:
        """(in, out) of a weight: ``(out, in / groups, ...)``, or, transposed, ``(in, out / groups, ...)``."""
        first, second = weight.shape[0], weight.shape[1] * self.groups
        return (first, second) if self.transposed else (second, first)

    def kernel(self, weight: Tensor) -> tuple[int, int, int]:
        return three(weight.shape[2:], 1, self.dims)

    def check_weight(self, weight: Tensor) -> None:
        if weight.dim() != self.dims + 2:
            raise ValueError(f"{self.op}: weight must have {self.dims + 2} dimensions, got shape {tuple(weight.shape)}")
        if self.groups < 1 or weight.shape[0] % self.groups:
            raise ValueError(
                f"{self.op}: groups {self.groups} must divide the {weight.shape[0]} channels of weight of shape"
                f" {tuple(weight.shape)}"
            )

    def known_output_size(self, x: Tensor, weight: Tensor) -> tuple[int, ...]:
        """`output_size`, remembered for shapes that were seen before."""
        seen = x.shape, weight.shape
        size = self._sizes.get(seen)
        if size is None:
            if len(self._sizes) >= _KEPT_SIZES:
                self._sizes.clear()
            size = self._sizes[seen] = self.output_size(x, weight)
        return size

    def has_small_output_padding(self) -> bool:
        """Whether the output padding is below the stride or the dilation, as a layer that runs needs it."""
        steps = map(max, self.stride, self.dilation)
        return all(more < step for more, step in zip(self.output_padding, steps, strict=True))

    def output_size(self, x: Tensor, weight: Tensor) -> tuple[int, ...]:
        """The shape of the output, ``(N, C, ...)``; ValueError if input and weight do not fit."""
        self.check_weight(weight)
        inputs, outputs = self.channels(weight)
        if x.dim() != self.dims + 2 or x.shape[1] != inputs:
            raise ValueError(
                f"{self.op}: input of shape {tuple(x.shape)} does not fit weight of shape {tuple(weight.shape)} with"
                f" groups={self.groups}: it must be (N, {inputs}{', L' if self.dims == 1 else ', ...'})"
            )
        sizes = []
        kernel = self.kernel(weight)
        for axis in range(3 - self.dims, 3):
            n = x.shape[axis - 3]
            reach = self.dilation[axis] * (kernel[axis] - 1)
            if self.transposed:
                size = (n - 1) * self.stride[axis] - 2 * self.padding[axis] + reach + self.output_padding[axis] + 1
            else:
                size = (n + 2 * self.padding[axis] - reach - 1) // self.stride[axis] + 1
            if size < 1:
                raise ValueError(
                    f"{self.op}: input of shape {tuple(x.shape)} is smaller than the kernel of weight of shape"
                    f" {tuple(weight.shape)}"
                )
            if self.output_padding[axis] >= max(self.stride[axis], self.dilation[axis]):
                raise ValueError(
                    f"{self.op}: output_padding {self.output_padding[axis]} must be smaller than stride"
                    f" {self.stride[axis]} or dilation {self.dilation[axis]}"
                )
            sizes.append(size)
        return (x.shape[0], outputs, *sizes)


@functools.lru_cache(maxsize=4096)
def _known(*arguments: Any) -> Geometry:
    return Geometry(*arguments)


def known_geometry(
    op: str,
    dims: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_padding: Sequence[int] | None = None,
) -> Geometry:
    """A Geometry, checked once for all calls with the same numbers."""
    last = None if output_padding is None else tuple(output_padding)
    return _known(op, dims, tuple(stride), tuple(padding), tuple(dilation), groups, last)
