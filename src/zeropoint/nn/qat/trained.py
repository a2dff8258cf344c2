"""What layers in quantization-aware training share: a float layer whose weight goes through fake quantization."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import (
    is_parametrized,
    transfer_parametrizations_and_params,
    type_before_parametrizations,
)

from zeropoint.mistakes import MistakenType, MistakenValue


def require_qconfig(cls: type, qconfig: Any) -> Any:
    """`qconfig`, which a layer in training cannot do without."""
    if not qconfig:
        raise MistakenValue(
            f"qconfig must be provided for QAT module {cls.__name__}, for the fake quantization of its weight; got"
            f" {qconfig!r}"
        )
    return qconfig


def require_float(cls: type, mod: nn.Module, *expected: type) -> Any:
    """The qconfig of `mod`, which must be a float module of one of these types."""
    if type_before_parametrizations(mod) not in expected:
        names = " or ".join(t.__name__ for t in expected)
        raise MistakenType(f"qat.{cls.__name__}.from_float only works for {names}, got a {type(mod).__name__}")
    if not hasattr(mod, "qconfig"):
        raise MistakenValue(
            f"Input float module must have qconfig defined, and this {type(mod).__name__} has none: call"
            " zeropoint.prepare_qat, which sets it"
        )
    if not mod.qconfig:
        raise MistakenValue(
            f"Input float module must have a valid qconfig, and that of this {type(mod).__name__} is {mod.qconfig!r}"
        )
    return mod.qconfig


def take_over(made: nn.Module, layer: nn.Module) -> Any:
    """Let `made` have the parameters of `layer`, the same ones, so that optimizers keep them."""
    if is_parametrized(layer, "weight"):
        transfer_parametrizations_and_params(layer, made, "weight")
    else:
        made.weight = layer.weight
    if is_parametrized(layer, "bias"):
        transfer_parametrizations_and_params(layer, made, "bias")
    elif getattr(layer, "bias", None) is not None:
        made.bias = layer.bias
    return made.train(layer.training)


def plain(layer: Any, kind: type[nn.Module], *arguments: Any, **options: Any) -> Any:
    """A float module of type `kind` with copies of the weight and bias of `layer`."""
    made: Any = kind(*arguments, **options)
    made.weight = nn.Parameter(layer.weight.detach().clone())
    if layer.bias is not None:
        made.bias = nn.Parameter(layer.bias.detach().clone())
    return made.to(layer.weight.device).train(layer.training)


def along(weights: Tensor, factor: Tensor) -> Tensor:
    """`factor`, one for each output channel, in a shape that broadcasts with the weights."""
    return factor.reshape([-1] + [1] * (weights.dim() - 1))


def folding(bn: Any, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """What batch norm `bn`, once its statistics stand still, makes of a layer before it: a factor for its weight, and
    the new bias.

    ``factor = bn.weight * d`` and ``new bias = (bias - running_mean) * d * bn.weight + bn.bias`` with
    ``d = 1 / sqrt(running_var + eps)``, in this order: so weights are, to the bit, those of torch.

    Example:
        >>> bn = nn.BatchNorm1d(1, eps=0.0).eval()
        >>> bn.running_mean[:], bn.running_var[:] = 2.0, 4.0
        >>> factor, bias = folding(bn, None)
        >>> factor.item(), bias.item()
        (0.5, -1.0)
    """
    return folding_by(bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, bias)


def folding_by(
    mean: Tensor, variance: Tensor, eps: float, weight: Tensor | None, shift: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`folding` by the parts of a batch norm, for torch.jit.script."""
    factor = torch.rsqrt(variance + eps)
    offset = (-mean if bias is None else bias - mean) * factor
    if weight is not None:
        factor, offset = weight * factor, offset * weight
    if shift is not None:
        offset = offset + shift
    return factor, offset


def folded(weight: Tensor, bias: Tensor | None, bn: Any, transposed_groups: int = 0) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer with the batch norm `bn` after it in them.

    Args:
        weight: ``(out, in / groups, ...)``; with `transposed_groups`, the groups of a transposed convolution,
            ``(in, out / groups, ...)``.

    Example:
        >>> weight, bias = folded(torch.ones(1, 2), None, nn.BatchNorm1d(1, eps=0.0).eval())
        >>> weight.tolist(), bias.tolist()
        ([[1.0, 1.0]], [0.0])
    """
    factor, new_bias = folding(bn, bias)
    return scaled(weight, factor, transposed_groups), new_bias


def scaled(weight: Tensor, factor: Tensor, transposed_groups: int = 0) -> Tensor:
    """A weight times a factor for each output channel; arguments as for `folded`.

    Example:
        >>> scaled(torch.ones(2, 1), torch.tensor([1.0, 2.0])).tolist()
        [[1.0], [2.0]]
    """
    if not transposed_groups:
        return weight * along(weight, factor)
    by_group = weight.unflatten(0, (transposed_groups, -1))
    return (by_group * factor.reshape(transposed_groups, 1, -1, *[1] * (by_group.dim() - 3))).flatten(0, 1)
