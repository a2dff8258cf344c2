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

Time grows with the third power of the inputs and memory with the second. So a layer with more than `_WIDEST` inputs, as
a convolution with a large window, is cut into parts of so many; inputs make up only for those of their part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.accuracy.layers import Change, TunableLayer, round_layers

_DAMPING = (0.01, 0.1, 1.0)  # of the mean diagonal
_BLOCK = 64  # inputs that the others learn of together: one large product is quicker than many small ones
_ROUNDS = 4  # over all weights, at most; the error hardly changes after the second
_ROWS = 1 << 14  # of unfolded inputs at a time
_WIDEST = 2048  # inputs that make up for each other


def gptq(
    float_model: Any,
    quantized: nn.Module,
    batches: Iterable[Any],
    seconds: float = math.inf,
    *,
    found: dict[Any, Any] | None = None,
) -> tuple[Change, ...]:
    """Choose better integers for the weights of all linear layers and convolutions with GPTQ, layer by layer, in place.

    Supports 8-bit and 4-bit weights in static, dynamic and weight-only quantization. Skips transposed and 3d
    convolutions. Changes a layer only if its output gets closer to the float model on held-out data: every fourth
    batch, or the last rows of a single batch.

    Args:
        float_model: the original model.
        quantized: its quantized version, from `to_int8`, `convert_graph`, eager `convert` or `quantize_dynamic`.
        batches: input batches; labels are not needed. Use several rows for each input of the widest layer.
        seconds: time after which no further layer is started; the remaining layers stay as they are.
        found: the integers of earlier calls, for layers whose weights and scales are the same; new ones are added.

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
    return round_layers("gptq", _rounded, float_model, quantized, batches, seconds, found)


def hessian(layer: TunableLayer, inputs: list[Tensor]) -> list[Tensor]:
    """``X' X`` of the rows that a layer multiplies its weights with, in float64: ``(groups, inputs, inputs)`` for each
    part of its inputs."""
    total: list[Tensor] = []
    for x in inputs:
        for part in _samples(layer, x):
            columns = layer.operation.columns(part, layer.weight)
            found = [(cut.mT @ cut).double() for cut in columns.split(_part(columns.shape[-1]), -1)]
            total = [before + new for before, new in zip(total, found)] if total else found
    return total


def _part(inputs: int) -> int:
    """How many inputs a part has."""
    return -(-inputs // -(-inputs // _WIDEST))


def _samples(layer: TunableLayer, x: Tensor) -> tuple[Tensor, ...]:
    """What a layer gets, in parts that unfold to about `_ROWS` rows."""
    dims = layer.operation.dims
    if dims == 0:
        return x.reshape(-1, x.shape[-1]).split(_ROWS)
    if x.dim() == dims + 1:
        return (x,)
    inputs = layer.weight[0].numel()
    places = max(1, x[0].numel() // layer.weight.shape[1] // math.prod(layer.operation.stride))
    return x.split(max(1, min(_ROWS, (_ROWS << 10) // inputs) // places))


@dataclass(frozen=True)
class _Weights:
    """What is rounded: for each group, a row for each input and a column for each output."""

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
    seen, held = hessian(layer, layer.to_fit(layer.inputs)), hessian(layer, layer.to_judge(layer.inputs))
    if not all(bool(h.isfinite().all()) for h in seen):
        raise ValueError(
            "gptq: the inputs of a layer contain NaN or Inf: remove them from the batches, or find the layer that "
            "produces them"
        )
    tensors = (layer.weight, layer.scale, layer.zero_point, layer.integers)
    rows = [operation.matrix(t.expand(shape)).mT.detach().float() for t in tensors]
    found = []
    for h, judge, w, scale, zero_point, nearest in zip(seen, held, *(t.split(seen[0].shape[-1], 1) for t in rows)):
        found.append(_best(h, judge, _Weights(w, scale, zero_point, layer.low, layer.high), nearest))
    return torch.cat(found, 1).mT.reshape(shape).to(torch.int32)


def _best(h: Tensor, judge: Tensor, weights: _Weights, best: Tensor) -> Tensor:
    """The integers of some inputs, with the damping that is best on what was held out, in each group."""
    order = h.diagonal(dim1=1, dim2=2).argsort(1, descending=True)
    h, judge = (_along(_along(m, order, 1), order, 2) for m in (h, judge))
    w, scale, zero_point, best = (
        _along(t, order, 1) for t in (weights.floats, weights.scale, weights.zero_point, best)
    )
    weights = _Weights(w, scale, zero_point, weights.low, weights.high)
    least = _errors(judge, weights, best)
    improved = False
    for damping in _DAMPING if bool(h.any()) else ():  # of zeros alone there is nothing to learn
        damped = _damped(h, damping)
        q = _settled(damped.float(), weights, _greedy(damped, weights))
        errors = _errors(judge, weights, q)
        better = errors < least
        if bool(better.any()):
            best, least, improved = torch.where(better[:, None, None], q, best), torch.minimum(errors, least), True
        elif improved:
            break
    return _along(best, order.argsort(1), 1)


def _along(t: Tensor, order: Tensor, axis: int) -> Tensor:
    """Each group of `t` in an order of its own."""
    index = order.unsqueeze(2 if axis == 1 else 1).expand(t.shape)
    return t.gather(axis, index)


def _errors(h: Tensor, weights: _Weights, q: Tensor) -> Tensor:
    """Of each group."""
    lost = weights.lost(q).double()
    return ((h @ lost) * lost).sum((1, 2))


def _damped(h: Tensor, part: float) -> Tensor:
    """H and some of its mean diagonal: inputs that were never seen apart leave it without a factor."""
    diagonal = h.diagonal(dim1=1, dim2=2)
    mean = diagonal.mean(1)
    damped = h.clone()
    # A group whose inputs are all zero has nothing to be damped with.
    damped.diagonal(dim1=1, dim2=2).add_(torch.where(mean > 0, part * mean, torch.ones_like(mean))[:, None])
    return damped


def _greedy(h: Tensor, weights: _Weights) -> Tensor:
    """Integers, one input after the other, each with what those before it have lost."""
    factor = torch.linalg.cholesky(h.flip(1, 2)).flip(1, 2)  # upper, and ``factor @ factor.mT`` is h
    shares = (factor / factor.diagonal(dim1=1, dim2=2)[:, None]).float()  # of what j has lost, that i makes up for
    w, scale, zero_point = weights.floats, weights.scale, weights.zero_point
    q, lost = torch.empty_like(w), torch.empty_like(w)
    for start in range(0, w.shape[1], _BLOCK):
        end = min(start + _BLOCK, w.shape[1])
        wanted = torch.baddbmm(w[:, start:end], shares[:, :start, start:end].mT, lost[:, :start], alpha=-1)
        for i in range(start, end):
            target = wanted[:, i - start]
            target -= (shares[:, start:i, i, None].mT @ lost[:, start:i]).squeeze(1)
            torch.addcdiv(zero_point[:, i], target, scale[:, i], out=target).round_().clamp_(weights.low, weights.high)
            q[:, i] = target
            lost[:, i] = target.sub_(zero_point[:, i]).mul_(scale[:, i]).sub_(w[:, i])
    return q


def _settled(h: Tensor, weights: _Weights, q: Tensor) -> Tensor:
    """`q` after some rounds over all inputs, each weight set to the best integer for what the others are."""
    scale = weights.scale
    step = (scale * h.diagonal(dim1=1, dim2=2)[..., None]).reciprocal()
    slope = h @ weights.lost(q)
    for _ in range(_ROUNDS):
        before = q.clone()
        for start in range(0, q.shape[1], _BLOCK):
            end = min(start + _BLOCK, q.shape[1])
            # Within a block each input learns of what those before it did; the others learn of it at once.
            moved = torch.empty_like(q[:, start:end])
            for i in range(start, end):
                own = slope[:, i] + (h[:, start:i, i, None].mT @ moved[:, : i - start]).squeeze(1)
                torch.addcmul(q[:, i], own, step[:, i], value=-1, out=own).round_().clamp_(weights.low, weights.high)
                torch.sub(own, q[:, i], out=moved[:, i - start]).mul_(scale[:, i])
                q[:, i] = own
            slope.baddbmm_(h[:, :, start:end], moved)
        if torch.equal(q, before):
            break
    return q
