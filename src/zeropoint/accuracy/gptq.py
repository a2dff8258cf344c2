"""GPTQ: weights are rounded one input after the other, and what is lost is made up for by those still to be rounded.

A layer's squared error on what it gets is ``tr(D H D')``, with ``D = rounded - weight`` and ``H = X' X`` over all rows
X of its inputs. Moving input i by `d` costs least if the inputs j behind it move by ``d H^-1[i, j] / H^-1[i, i]``; the
Cholesky factor of the inverse has these numbers for all i (Frantar et al., 2023). Inputs go by falling ``H[i, i]``
(act-order): those that matter most are rounded while all others can still make up for them. Scales stay as they are,
those of groups too, so the order costs nothing when the model runs.

Then every weight is taken again, as long as that helps: with all others as they are, the best integer of input i is
``round(q - (D H)[i] / (scale H[i, i]))``. The error never grows by that.

H of few rows knows nothing about most directions: it lets weights go far where no row happened to look, and the layer
becomes worse on all other data. So a part of the batches is held out. H gets several amounts of damping, ``H + c I``,
which draws weights back to the nearest integer; the amount with the least error on what was held out is taken, and
integers rounded to the nearest stay where none is better there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.accuracy.layers import Change, TunableLayer, round_layers

__all__ = ["gptq", "hessian"]

_DAMPING = (0.01, 0.1, 1.0)  # of the mean diagonal
_BLOCK = 128  # inputs whose errors are handed on together: one large product is quicker than many small ones
_ROUNDS = 4  # over all weights, at most; the error hardly changes after the second
_ROWS = 1 << 14  # of unfolded inputs at a time


def gptq(
    float_model: Any, quantized: nn.Module, batches: Iterable[Any], seconds: float = math.inf
) -> tuple[Change, ...]:
    """Choose better integers for the weights of all linear layers and convolutions with GPTQ, layer by layer, in place.

    Supports 8-bit and 4-bit weights in static, dynamic and weight-only quantization. Skips transposed and 3d
    convolutions. Changes a layer only if its output gets closer to the float model on held-out data: every fourth
    batch, or the last rows of a single batch.

    Args:
        float_model: the original model.
        quantized: its quantized version, from `to_int8`, `convert_fx`, eager `convert` or `quantize_dynamic`.
        batches: input batches; labels are not needed. Use several rows for each input of the widest layer.
        seconds: time after which no further layer is started; the remaining layers stay as they are.

    Example:
        >>> import zeropoint
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(32, 8)).eval()
        >>> x = torch.randn(256, 4) @ torch.randn(4, 32)  # inputs that go together
        >>> qconfig = zeropoint.float_qparams_weight_only_qconfig_4bit
        >>> quantized = zeropoint.to_int8(model, (x,), qconfig=qconfig, mode="weight_only", progress=False)
        >>> [change] = gptq(model, quantized, [x])
        >>> change.after > change.before + 6  # dB
        True
    """
    return round_layers("gptq", _rounded, float_model, quantized, batches, seconds)


def hessian(layer: TunableLayer, inputs: list[Tensor]) -> Tensor:
    """``X' X`` of the rows that a layer multiplies its weights with: ``(groups, inputs, inputs)``."""
    total: Any = 0.0
    for x in inputs:
        samples = x.reshape(-1, x.shape[-1]) if layer.operation.dims == 0 else x
        for part in samples.split(_ROWS if layer.operation.dims == 0 else 1):
            columns = layer.operation.columns(part, layer.weight).double()
            total = total + columns.mT @ columns
    return total


def _rounded(layer: TunableLayer) -> Tensor | None:
    """The integers of a layer; None for one that is no product of matrices."""
    operation, shape = layer.operation, layer.weight.shape
    if not operation.has_matrix:
        return None
    weights = operation.matrix(layer.weight)
    scales, zero_points = (operation.matrix(t.expand(shape)) for t in (layer.scale, layer.zero_point))
    nearest = operation.matrix(layer.integers)
    found = []
    seen, held = hessian(layer, layer.to_fit(layer.inputs)), hessian(layer, layer.to_judge(layer.inputs))
    if not bool(seen.isfinite().all()):
        raise ValueError(
            "gptq: the inputs of a layer contain NaN or Inf: remove them from the batches, or find the layer that "
            "produces them"
        )
    for group, (h, judge) in enumerate(zip(seen, held)):
        parts = weights[group].double(), scales[group].double(), zero_points[group].double()
        best = nearest[group].double()
        least = _error(judge, *parts, best)
        improved = False
        for damping in _DAMPING if bool(h.any()) else ():  # of zeros alone there is nothing to learn
            damped = _damped(h, damping)
            q = _settled(damped, *parts, layer.low, layer.high, _greedy(damped, *parts, layer.low, layer.high))
            error = _error(judge, *parts, q)
            if error < least:
                best, least, improved = q, error, True
            elif improved:
                break
        found.append(best)
    return torch.stack(found).reshape(shape).to(torch.int32)


def _error(h: Tensor, weight: Tensor, scale: Tensor, zero_point: Tensor, q: Tensor) -> float:
    difference = (q - zero_point) * scale - weight
    return float(((difference @ h) * difference).sum())


def _greedy(h: Tensor, weight: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int) -> Tensor:
    """``(outputs, inputs)`` rounded in the order of the inputs' weight, each error handed on to the rest."""
    order = h.diagonal().argsort(descending=True)
    back = order.argsort()
    w, s, z = weight[:, order].clone(), scale[:, order], zero_point[:, order]
    upper = _inverse_factor(h[order][:, order])
    q = torch.empty_like(w)
    inputs = w.shape[1]
    for start in range(0, inputs, _BLOCK):
        end = min(start + _BLOCK, inputs)
        lost = torch.zeros_like(w[:, start:end])
        for i in range(start, end):
            q[:, i] = (w[:, i] / s[:, i] + z[:, i]).round().clamp(low, high)
            error = (w[:, i] - (q[:, i] - z[:, i]) * s[:, i]) / upper[i, i]
            w[:, i:end] -= error[:, None] * upper[i, i:end]
            lost[:, i - start] = error
        w[:, end:] -= lost @ upper[start:end, end:]
    return q[:, back]


def _damped(h: Tensor, part: float) -> Tensor:
    """H and some of its mean diagonal: inputs that were never seen apart leave it without an inverse."""
    return h + part * h.diagonal().mean() * torch.eye(len(h), dtype=h.dtype)


def _inverse_factor(h: Tensor) -> Tensor:
    """The upper Cholesky factor of the inverse of a damped H."""
    lower = torch.linalg.cholesky(h)
    return torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)


def _settled(h: Tensor, weight: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int, q: Tensor) -> Tensor:
    """`q` after some rounds over all inputs, each weight set to the best integer for what the others are."""
    order = h.diagonal().argsort(descending=True)
    back = order.argsort()
    h, weight, scale, zero_point, q = h[order][:, order], *(t[:, order] for t in (weight, scale, zero_point, q))
    curve = scale * h.diagonal()
    step = curve.reciprocal()
    slope = ((q - zero_point) * scale - weight) @ h
    inputs = q.shape[1]
    for _ in range(_ROUNDS):
        before = q.clone()
        for start in range(0, inputs, _BLOCK):
            end = min(start + _BLOCK, inputs)
            # Within a block only its own slopes are kept up; the others learn of all its changes at once.
            near, moved = slope[:, start:end].clone(), torch.zeros_like(q[:, start:end])
            for i in range(start, end):
                best = (q[:, i] - near[:, i - start] * step[:, i]).round().clamp(low, high)
                change = (best - q[:, i]) * scale[:, i]
                q[:, i] = best
                moved[:, i - start] = change
                near += change[:, None] * h[i, start:end]
            slope += moved @ h[start:end]
        if torch.equal(q, before):
            break
    return q[:, back]
