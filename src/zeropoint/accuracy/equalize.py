"""Cross-layer equalization: the channels between two layers are scaled until their weights have the same ranges.

With factors ``s``, ``layer2(f(layer1(x)))`` is the same for weights ``W1 / s`` and ``W2 * s`` and bias ``b1 / s``, if
`f` is linear in pieces through 0 (ReLU, PReLU, nothing). ``s = sqrt(range(W1) / range(W2))`` makes both ranges equal,
channel by channel (Nagel et al., 2019, section 4.1), so that one scale for a whole weight loses less.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.described import described
from zeropoint.nn.intrinsic import ConvReLU1d, ConvReLU2d, LinearReLU

_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Linear)
_FUSED = (ConvReLU1d, ConvReLU2d, LinearReLU)
# Below this, the weights of a channel count as equal.
_SMALLEST_RANGE = 1e-9


def _layer(module: Any) -> Any:
    """The module that has the weight: itself, or the first of a fused one."""
    if type(module) in _LAYERS:
        return module
    if type(module) in _FUSED:
        return module[0]
    known = ", ".join(kind.__name__ for kind in (*_LAYERS, *_FUSED))
    raise ValueError(f"equalize: layers must be {known}, got {type(module).__name__}")


def channel_range(input: Tensor, axis: int = 0) -> Tensor:
    """Largest minus smallest value of each slice along `axis`.

    Example:
        >>> channel_range(torch.tensor([[1.0, 4.0], [2.0, 2.0]]))
        tensor([3., 0.])
    """
    others = [d for d in range(input.dim()) if d != axis]
    return input.amax(others) - input.amin(others)


def cross_layer_equalization(module1: nn.Module, module2: nn.Module, output_axis: int = 0, input_axis: int = 1) -> None:
    """Scale the channels between two layers so that the weights of both have the same range in every channel.

    Raises:
        ValueError: if a module is no convolution of 1 or 2 dimensions or linear layer, or its weight is not finite.
        TypeError: if the second does not take as many channels as the first gives.

    Example:
        >>> first, second = nn.Linear(2, 3), nn.Linear(3, 2)
        >>> cross_layer_equalization(first, second)
        >>> torch.allclose(channel_range(first.weight, 0), channel_range(second.weight, 1))
        True
    """
    first, second = _layer(module1), _layer(module2)
    for layer in (first, second):
        if not bool(layer.weight.isfinite().all()):
            shape = tuple(layer.weight.shape)
            raise ValueError(f"equalize: a weight of {type(layer).__name__} of shape {shape} contains inf or NaN")
    channels = first.weight.shape[output_axis]
    if channels != second.weight.shape[input_axis]:
        raise TypeError(
            f"equalize: the second layer must take the {channels} channels of the first, got a weight of shape "
            f"{tuple(second.weight.shape)} with {second.weight.shape[input_axis]}"
        )
    with torch.no_grad():
        given, taken = channel_range(first.weight, output_axis), channel_range(second.weight, input_axis)
        # A channel without a range on one side has nothing to share: it stays as it is.
        has_ranges = (given > _SMALLEST_RANGE) & (taken > _SMALLEST_RANGE)
        factors = torch.sqrt(given / taken).where(has_ranges, 1.0)
        inverse = torch.reciprocal(factors)
        first.weight = nn.Parameter(first.weight * _along(inverse, first.weight.dim(), output_axis))
        second.weight = nn.Parameter(second.weight * _along(factors, second.weight.dim(), input_axis))
        if first.bias is not None:
            first.bias = nn.Parameter(first.bias * inverse)


def _along(values: Tensor, dims: int, axis: int) -> Tensor:
    return values.reshape([-1 if d == axis else 1 for d in range(dims)])


def _pairs(model: nn.Module, groups: Iterable[Sequence[Any]]) -> list[tuple[str, str]]:
    """Neighbours in each group, by their paths."""
    paths = {module: path for path, module in model.named_modules()}
    pairs: list[tuple[str, str]] = []
    for group in groups:
        if len(group) < 2:
            raise ValueError(f"equalize: a group needs at least two layers, got {len(group)}")
        names = []
        for item in group:
            name = paths.get(item) if isinstance(item, nn.Module) else item
            if not isinstance(name, str):
                what = f"{type(item).__name__}, which is not in the model" if name is None else described(item)
                raise TypeError(f"equalize: pass layers as module paths or as modules, got {what}")
            names.append(name)
        pairs += itertools.pairwise(names)
    return pairs


def equalize(
    model: nn.Module, paired_modules_list: Iterable[Sequence[Any]], threshold: float = 1e-4, inplace: bool = True
) -> nn.Module:
    """`cross_layer_equalization` of all pairs, again and again, until the weights stay as they are.

    Args:
        model: in float.
        paired_modules_list: groups of layers that follow each other, with nothing but ReLU and the like between
            them; modules or their paths.
        threshold: how much the weights may still change in a round.
        inplace: change `model`, not a copy.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> x = torch.randn(4, 2)
        >>> torch.allclose(equalize(model, [["0", "2"]], inplace=False)(x), model(x), atol=1e-5)
        True
    """
    pairs = _pairs(model, paired_modules_list)
    if not inplace:
        model = copy.deepcopy(model)
    modules = {name: model.get_submodule(name) for pair in pairs for name in pair}
    before: dict[str, nn.Module | None] = dict.fromkeys(modules)
    while not converged(modules, before, threshold):
        for first, second in pairs:
            before[first], before[second] = copy.deepcopy(modules[first]), copy.deepcopy(modules[second])
            cross_layer_equalization(modules[first], modules[second])
    return model


def converged(curr_modules: dict[str, Any], prev_modules: dict[str, Any], threshold: float = 1e-4) -> bool:
    """Whether all weights together changed by less than `threshold`, in the Euclidean norm of each.

    Raises:
        ValueError: if the dictionaries do not name the same modules.
    """
    if curr_modules.keys() != prev_modules.keys():
        raise ValueError(
            f"converged: both dictionaries must have the same modules, got {sorted(curr_modules)} and "
            f"{sorted(prev_modules)}"
        )
    if None in prev_modules.values():
        return False
    changes = (
        torch.linalg.vector_norm(_layer(module).weight - _layer(prev_modules[name]).weight)
        for name, module in curr_modules.items()
    )
    return bool(sum(changes, torch.tensor(0.0)) < threshold)
