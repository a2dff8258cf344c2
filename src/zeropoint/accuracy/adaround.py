"""AdaRound: which way each weight is rounded is learned, so that a layer's result comes nearest to the float model's.

A weight becomes ``floor(w / s) + h``, with ``h = clip(1.2 sigmoid(v) - 0.1, 0, 1)`` learned by gradient descent on the
squared error of the layer's result, its ReLU included, on what the layer gets in the quantized model (Nagel et al.,
2020). ``lambda * sum(1 - |2h - 1|^beta)`` drives each h to 0 or 1, with beta falling while it learns. Then every h is
one or the other, and the layer is run as it will be deployed: it keeps the new integers only if they are better there,
on batches that it did not learn from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.accuracy.layers import Change, TunableLayer, round_layers

_RATE = 0.03  # of Adam: h crosses its whole range in a few hundred steps
_STRETCH = (-0.1, 1.1)  # of the sigmoid, so that its ends are reached
_WARM = 0.2  # of the steps are without the term that drives h to its ends
_BETA = (20.0, 2.0)
_LAMBDA = 3.0  # against an error of 1 for each weight, which is that of rounding to the nearest
_UNIT_STEPS = 50  # that the error of rounding to the nearest is measured on
_ROWS = 256  # of a linear layer's inputs in one step
_SAMPLES = 16  # of a convolution's


def adaround(
    float_model: Any,
    quantized: nn.Module,
    batches: Iterable[Any],
    steps: int = 1000,
    seed: int = 0,
    seconds: float = math.inf,
) -> tuple[Change, ...]:
    """Learn the rounding of the weights of all linear layers and convolutions, layer by layer, in place.

    Args:
        float_model: the original model.
        quantized: its quantized version, from `to_int8`, `convert_graph`, eager `convert` or `quantize_dynamic`.
        batches: input batches; labels are not needed.
        steps: number of gradient descent steps for each layer.
        seed: seed for the choice of rows.
        seconds: time after which no further layer is started; the remaining layers stay unchanged.

    Example:
        >>> import zeropoint
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(32, 8)).eval()
        >>> x = torch.randn(256, 4) @ torch.randn(4, 32)  # inputs that go together
        >>> qconfig = zeropoint.float_qparams_weight_only_qconfig_4bit
        >>> quantized = zeropoint.to_int8(model, (x,), qconfig=qconfig, mode="weight_only", progress=False)
        >>> [change] = adaround(model, quantized, [x])
        >>> change.after > change.before + 3  # dB
        True
    """
    if steps < 1:
        raise ValueError(f"adaround: steps must be positive, got {steps}")
    generator = torch.Generator().manual_seed(seed)

    def learned(layer: TunableLayer) -> Tensor | None:
        return _learned(layer, steps, generator) if layer.gives_wanted else None

    return round_layers("adaround", learned, float_model, quantized, batches, seconds)


def _learned(layer: TunableLayer, steps: int, generator: torch.Generator) -> Tensor:
    grid = layer.weight / layer.scale + layer.zero_point
    down = grid.floor()
    rest = (grid - down).clamp(1e-3, 1 - 1e-3)
    low, high = _STRETCH
    v = torch.log((rest - low) / (high - rest)).requires_grad_()
    learner = torch.optim.Adam([v], lr=_RATE)
    bias = None if layer.bias is None else layer.bias.detach()
    nearest = layer.rounded()
    count = grid.numel()
    unit = 0.0  # the mean error of rounding to the nearest
    for step, (x, wanted) in zip(range(steps), _batches(layer, generator)):
        h = ((high - low) * torch.sigmoid(v) + low).clamp(0, 1)
        q = (down + h).clamp(layer.low, layer.high)
        got = layer.operation(x, (q - layer.zero_point) * layer.scale, bias)
        if step < _UNIT_STEPS:
            with torch.no_grad():
                lost = (layer.operation(x, nearest, bias) - wanted).square().mean()
            unit += (float(lost) - unit) / (step + 1)
        loss = (got - wanted).square().mean() * (count / max(unit, torch.finfo(torch.float32).tiny))
        done = step / steps
        if done >= _WARM:
            beta = _BETA[1] + (_BETA[0] - _BETA[1]) * 0.5 * (1 + math.cos(math.pi * (done - _WARM) / (1 - _WARM)))
            loss = loss + _LAMBDA * (1 - (2 * h - 1).abs().pow(beta)).sum()
        learner.zero_grad()
        loss.backward()
        learner.step()
    up = torch.sigmoid(v.detach()) * (high - low) + low >= 0.5
    return (down + up).clamp(layer.low, layer.high).to(torch.int32)


def _batches(layer: TunableLayer, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Some rows or samples at a time, by chance, without end."""
    pairs = list(zip(layer.to_fit(layer.inputs), layer.to_fit(layer.wanted)))
    if layer.operation.dims == 0:
        pairs = [(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])) for x, y in pairs]
        pairs = [(torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]))]
    elif pairs[0][0].dim() == layer.operation.dims + 1:
        pairs = [(x[None], y[None]) for x, y in pairs]
    at_once = _ROWS if layer.operation.dims == 0 else _SAMPLES
    while True:
        which = int(torch.randint(len(pairs), (1,), generator=generator))
        x, y = pairs[which]
        if len(x) > at_once:
            chosen = torch.randint(len(x), (at_once,), generator=generator)
            x, y = x[chosen], y[chosen]
        yield x, y
