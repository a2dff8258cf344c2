"""GPTQ: weights are rounded one input after the other, and what is lost is made up for by those still to be rounded.

A layer's squared error on what it gets is ``tr(D' H D)``, with ``D = rounded - weight``, a row for each input, and
``H = X' X`` over all rows X of what it gets. With ``H = R R'`` and R upper triangular, row i of ``R' D`` has no input
behind i in it, so inputs one after the other can bring it to zero: the best number for input i, when those before it
are integers and those behind it are still free, is ``weight[i] - sum(R[j, i] D[j] for j < i) / R[i, i]``. That is what
Frantar et al. (2023) write with the inverse of H; here no inverse is needed. Inputs go by falling ``H[i, i]``
(act-order): those that matter most are rounded while all others can still make up for them. Scales stay as they are,
those of groups too, so the order costs nothing when the model runs.

Then every weight is taken again, as long as that helps: with all others as they are, the best integer of input i is
``round(q - (H D)[i] / (scale H[i, i]))``. The error never grows by that.

H of few rows knows nothing about most directions: it lets weights go far where no row happened to look, and the layer
becomes worse on all other data. So a part of the batches is held out. H gets several amounts of damping, ``H + c I``,
which draws weights back to the nearest integer; the amount with the least error on what was held out is taken, and
integers rounded to the nearest stay where none is better there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.accuracy.layers import Change, TunableLayer, round_layers

__all__ = ["gptq", "hessian"]

_DAMPING = (0.01, 0.1, 1.0)  # of the mean diagonal
_BLOCK = 64  # inputs that the others learn of together: one large product is quicker than many small ones
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
    """``X' X`` of the rows that a layer multiplies its weights with: ``(groups, inputs, inputs)``, in float64."""
    total: Any = 0.0
    for x in inputs:
        samples = x.reshape(-1, x.shape[-1]) if layer.operation.dims == 0 else x
        for part in samples.split(_ROWS if layer.operation.dims == 0 else 1):
            columns = layer.operation.columns(part, layer.weight)
            total = total + (columns.mT @ columns).double()
    return total


@dataclass(frozen=True)
class _Weights:
    """What is rounded, a row for each input and a column for each output, the inputs that matter most first."""

    floats: Tensor
    scale: Tensor
    zero_point: Tensor
    low: int
    high: int

    def lost(self, q: Tensor) -> Tensor:
        """How far integers are from the weights."""
        return (q - self.zero_point) * self.scale - self.floats


def _rounded(layer: TunableLayer) -> Tensor | None:
    """The integers of a layer; None for one that is no product of matrices."""
    operation, shape = layer.operation, layer.weight.shape
    if not operation.has_matrix:
        return None
    tensors = [operation.matrix(t.expand(shape)) for t in (layer.weight, layer.scale, layer.zero_point, layer.integers)]
    found = []
    seen, held = hessian(layer, layer.to_fit(layer.inputs)), hessian(layer, layer.to_judge(layer.inputs))
    if not bool(seen.isfinite().all()):
        raise ValueError(
            "gptq: the inputs of a layer contain NaN or Inf: remove them from the batches, or find the layer that "
            "produces them"
        )
    for group, (h, judge) in enumerate(zip(seen, held)):
        order = h.diagonal().argsort(descending=True)
        h, judge = (m[order][:, order] for m in (h, judge))
        weight, scale, zero_point, best = (t[group].T[order].detach().float() for t in tensors)
        weights = _Weights(weight, scale, zero_point, layer.low, layer.high)
        least = _error(judge, weights, best)
        improved = False
        for damping in _DAMPING if bool(h.any()) else ():  # of zeros alone there is nothing to learn
            damped = _damped(h, damping)
            q = _settled(damped.float(), weights, _greedy(damped, weights))
            error = _error(judge, weights, q)
            if error < least:
                best, least, improved = q, error, True
            elif improved:
                break
        found.append(best[order.argsort()].T)
    return torch.stack(found).reshape(shape).to(torch.int32)


def _error(h: Tensor, weights: _Weights, q: Tensor) -> float:
    lost = weights.lost(q).double()
    return float(((h @ lost) * lost).sum())


def _damped(h: Tensor, part: float) -> Tensor:
    """H and some of its mean diagonal: inputs that were never seen apart leave it without a factor."""
    return h + part * h.diagonal().mean() * torch.eye(len(h), dtype=h.dtype)


def _greedy(h: Tensor, weights: _Weights) -> Tensor:
    """Integers, one input after the other, each with what those before it have lost."""
    factor = torch.linalg.cholesky(h.flip(0, 1)).flip(0, 1)  # upper, and ``factor @ factor.T`` is h
    shares = (factor / factor.diagonal()).float()  # of what input j has lost, that input i makes up for
    w, scale, zero_point = weights.floats, weights.scale, weights.zero_point
    q, lost = torch.empty_like(w), torch.empty_like(w)
    for start in range(0, len(w), _BLOCK):
        end = min(start + _BLOCK, len(w))
        wanted = torch.addmm(w[start:end], shares[:start, start:end].T, lost[:start], alpha=-1)
        for i in range(start, end):
            target = torch.addmv(wanted[i - start], lost[start:i].T, shares[start:i, i], alpha=-1)
            torch.addcdiv(zero_point[i], target, scale[i], out=q[i]).round_().clamp_(weights.low, weights.high)
            torch.sub(q[i], zero_point[i], out=target).mul_(scale[i])
            torch.sub(target, w[i], out=lost[i])
    return q


def _settled(h: Tensor, weights: _Weights, q: Tensor) -> Tensor:
    """`q` after some rounds over all inputs, each weight set to the best integer for what the others are."""
    scale = weights.scale
    step = (scale * h.diagonal()[:, None]).reciprocal()
    slope = h @ weights.lost(q)
    for _ in range(_ROUNDS):
        before = q.clone()
        for start in range(0, len(q), _BLOCK):
            end = min(start + _BLOCK, len(q))
            # Within a block each input learns of what those before it did; the others learn of it at once.
            moved = torch.empty_like(q[start:end])
            for i in range(start, end):
                own = torch.addmv(slope[i], moved[: i - start].T, h[start:i, i])
                torch.addcmul(q[i], own, step[i], value=-1, out=own).round_().clamp_(weights.low, weights.high)
                torch.sub(own, q[i], out=moved[i - start]).mul_(scale[i])
                q[i] = own
            slope.addmm_(h[:, start:end], moved)
        if torch.equal(q, before):
            break
    return q
