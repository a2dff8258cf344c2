"""A histogram over a growing range, and the ranges that can be read from it.

A histogram is three tensors: ``counts`` ``(bins,)``, and ``low`` and ``high``, scalars, the exact extremes of what was
counted (``inf`` and ``-inf`` before anything was). Bin ``i`` covers ``low + [i, i + 1) * (high - low) / bins``. When a
value beyond the range arrives, the old counts are spread over the wider bins; so memory is ``bins`` numbers whatever
was counted, and a value may move by at most one bin's width each time the range grows.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.affine import minmax
from zeropoint.numerics.blocks import dense, per_tensor
from zeropoint.numerics.qparams import qparams_from_range
from zeropoint.numerics.schemes import QScheme, per_tensor_affine

Range = tuple[Tensor, Tensor]

# The old counts are spread through `bins * upsample_rate` pieces, as PyTorch does it, up to this many; beyond, exactly.
MOST_PIECES = 1 << 20

# Candidate ranges whose errors are computed at once: few at first, because most searches end soon.
FIRST_CANDIDATES, MOST_CANDIDATES = 4, 128


def add_to_histogram(x: Tensor, counts: Tensor, low: Tensor, high: Tensor, upsample_rate: int = 16) -> None:
    """Count the values of `x`, in place, widening the range to hold them; infinities are left out, with a warning.

    One native pass over `x` while it stays inside the known range, two where the range grows.

    Args:
        x: float, any shape.
        counts: ``(bins,)``, float.
        low, high: ``()``, float.
        upsample_rate: into how many pieces an old bin is cut when the range grows.

    Raises:
        ValueError: if `x` holds NaN. Then nothing has changed.

    Example:
        >>> counts, low, high = torch.zeros(3), torch.tensor(math.inf), torch.tensor(-math.inf)
        >>> add_to_histogram(torch.tensor([2.0, 3.0, 4.0, 5.0]), counts, low, high)
        >>> add_to_histogram(torch.tensor([5.0, 6.0, 7.0, 8.0]), counts, low, high)
        >>> counts, low, high
        (tensor([2., 3., 3.]), tensor(2.), tensor(8.))
    """
    if x.numel() == 0:
        return
    x = dense(x.detach().to(counts.dtype))
    bins = counts.numel()
    old_low, old_high = low.item(), high.item()
    known = old_low <= old_high
    if known:
        now, new_low, new_high = _count(x, old_low, old_high, bins)
    else:
        new_low, new_high = _finite_range(x)
    if new_low > new_high:  # only infinities
        return
    if known and new_low >= old_low and new_high <= old_high:
        counts += now
        return
    if known:
        new_low, new_high = min(old_low, new_low), max(old_high, new_high)
    now, _, _ = _count(x, new_low, new_high, bins, checked=True)
    if known:
        now += spread(counts, old_low, old_high, new_low, new_high, upsample_rate)
    counts.copy_(now)
    low.fill_(new_low)
    high.fill_(new_high)


def _refuse(nans: int, infinities: int) -> None:
    if nans:
        raise ValueError(
            f"the input contains {nans} NaN and was not recorded. Find their source "
            "(torch.autograd.set_detect_anomaly, torch.isnan), or remove them before the observer"
        )
    if infinities:
        warnings.warn(f"{infinities} infinite values in the input were not added to the histogram", stacklevel=2)


def _finite_range(x: Tensor) -> tuple[float, float]:
    """The range of the finite values; (inf, -inf) if there are none."""
    low, high = (v.item() for v in minmax(x, per_tensor(x.shape)))
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    _refuse(int(x.isnan().sum()), int(x.isinf().sum()))
    finite = x[x.isfinite()]
    if finite.numel() == 0:
        return math.inf, -math.inf
    low, high = (v.item() for v in minmax(finite, per_tensor(finite.shape)))
    return low, high


def _count(x: Tensor, low: float, high: float, bins: int, checked: bool = False) -> tuple[Tensor, float, float]:
    """The counts of `x` in [low, high], and the range of all its finite values; `checked`: not again."""
    if x.device.type == "cpu" and x.dtype == torch.float32:
        counts = torch.empty(bins)
        least, most, nans, infinities = _native.histogram(x.data_ptr(), x.numel(), low, high, bins, counts.data_ptr())
        if not checked:
            _refuse(nans, infinities)
        return counts, least, most
    least, most = (low, high) if checked else _finite_range(x)
    return torch.histc(x[x.isfinite()], bins, min=low, max=high), least, most


def spread(counts: Tensor, low: float, high: float, new_low: float, new_high: float, upsample_rate: int = 16) -> Tensor:
    """The counts over ``[low, high]`` as counts of as many bins over the wider ``[new_low, new_high]``.

    Each bin is cut into `upsample_rate` pieces, and a piece goes where its middle lies. Where that would be more than
    a million pieces, or the range overflows the counts' dtype, each bin is shared out exactly instead.

    Example:
        >>> spread(torch.tensor([4.0, 4.0]), 0.0, 1.0, 0.0, 2.0)
        tensor([8., 0.])
    """
    bins = counts.numel()
    device, dtype = counts.device, counts.dtype
    too_wide = (new_high - new_low) * bins > torch.finfo(dtype).max
    if low == high:
        if too_wide:
            place = min(int((low - new_low) / (new_high - new_low) * bins), bins - 1)
            return torch.zeros_like(counts).index_fill_(0, torch.tensor(place, device=device), counts.sum().item())
        value = torch.tensor([low], device=device, dtype=dtype)
        return torch.histc(value, bins, min=new_low, max=new_high) * counts.sum()
    pieces = bins * upsample_rate
    if too_wide or pieces > MOST_PIECES:
        borders = torch.linspace(new_low, new_high, bins + 1, device=device, dtype=torch.float64)
        return _spread_exactly(counts, low, high, borders)
    borders = torch.linspace(new_low, new_high, bins + 1, device=device, dtype=dtype)
    width = (torch.tensor(high, device=device, dtype=dtype) - low) / pieces
    middles = torch.linspace(low, high, pieces + 1, device=device, dtype=dtype)[:-1] + 0.5 * width
    place = (torch.bucketize(middles, borders, right=True) - 1).clamp_(0, bins - 1)
    weights = counts.repeat_interleave(upsample_rate) / upsample_rate
    return torch.bincount(place, weights=weights, minlength=bins).to(dtype)


def _spread_exactly(counts: Tensor, low: float, high: float, borders: Tensor) -> Tensor:
    """Each bin's mass is even over the bin, so the mass below a border, float64, is linear between the old borders."""
    bins = counts.numel()
    below = torch.zeros(bins + 1, dtype=torch.float64, device=counts.device)
    torch.cumsum(counts.to(torch.float64), 0, out=below[1:])
    place = ((borders - low) / (high - low) * bins).clamp_(0, bins)
    bin = place.to(torch.int64).clamp_(max=bins - 1)
    mass = below[bin] + (below[bin + 1] - below[bin]) * (place - bin)
    mass[0], mass[-1] = 0, below[-1]
    return mass.diff().to(counts.dtype)


def merge_histograms(counts: Tensor, low: Tensor, high: Tensor, other: tuple[Tensor, Tensor, Tensor]) -> None:
    """Add another histogram, in place: the ranges join exactly, the counts up to one bin's width.

    Example:
        >>> one = torch.tensor([2.0, 2.0]), torch.tensor(0.0), torch.tensor(1.0)
        >>> merge_histograms(*one, (torch.tensor([3.0, 3.0]), torch.tensor(1.0), torch.tensor(2.0)))
        >>> one
        (tensor([4., 6.]), tensor(0.), tensor(2.))
    """
    sides = [(counts, low.item(), high.item()), (other[0].to(counts), other[1].item(), other[2].item())]
    filled = [side for side in sides if side[1] <= side[2]]
    if not filled:
        return
    new_low, new_high = min(side[1] for side in filled), max(side[2] for side in filled)
    counts.copy_(torch.stack([on_range(c, least, most, new_low, new_high) for c, least, most in filled]).sum(0))
    low.fill_(new_low)
    high.fill_(new_high)


def on_range(counts: Tensor, low: float, high: float, new_low: float, new_high: float) -> Tensor:
    """`counts` over another range that contains their own, moving no mass further than it must."""
    if (low, high) == (new_low, new_high):
        return counts
    if low == high:
        return spread(counts, low, high, new_low, new_high)
    borders = torch.linspace(new_low, new_high, counts.numel() + 1, device=counts.device, dtype=torch.float64)
    return _spread_exactly(counts, low, high, borders)


# ------------------------------------------------------------------------------------------------- ranges to keep


def least_l2_range(counts: Tensor, low: Tensor, high: Tensor, levels: int) -> Range:
    """The range that PyTorch's HistogramObserver chooses: narrowed while the l2 error of `levels` values shrinks.

    From the whole range, 1e-5 of the mass at a time is cut off the side where that removes more bins, until the
    quantization error, with the values of a bin spread evenly over it, would grow.

    Example:
        >>> bell = torch.exp(-torch.linspace(-8, 8, 64).square() / 2)
        >>> least_l2_range(bell, torch.tensor(-8.0), torch.tensor(8.0), 16)
        (tensor(-4.2500), tensor(2.5000))
    """
    bins = counts.numel()
    host = counts.detach().to("cpu", torch.float32).contiguous()
    cumulative, total = torch.cumsum(host, 0), host.sum().item()
    width = (high.item() - low.item()) / bins
    start, end, least = 0, bins - 1, math.inf
    at, some = (0.0, 1.0, start, end), FIRST_CANDIDATES
    # Which ranges are visited does not depend on the errors, only where the visit stops does.
    while True:
        starts, ends = torch.empty(some, dtype=torch.int64), torch.empty(some, dtype=torch.int64)
        count, at = _native.narrowing_ranges(cumulative.data_ptr(), total, at, some, starts.data_ptr(), ends.data_ptr())
        starts, ends = starts[:count], ends[:count]
        for s, e, error in zip(
            starts.tolist(), ends.tolist(), _range_errors(host, width, levels, starts, ends).tolist()
        ):
            if error > least:
                return _bins_to_range(low, high, bins, start, end)
            start, end, least = s, e, error
        if count < some:
            return _bins_to_range(low, high, bins, start, end)
        some = min(2 * some, MOST_CANDIDATES)


def _bins_to_range(low: Tensor, high: Tensor, bins: int, start: int, end: int) -> Range:
    width = (high - low) / bins
    if not bool(torch.isfinite(width)):
        width = high / bins - low / bins
    return low + width * start, low + width * (end + 1)


def _range_errors(host: Tensor, width: float, levels: int, starts: Tensor, ends: Tensor) -> Tensor:
    errors = torch.empty(len(starts), host.numel())
    _native.bin_errors(
        host.data_ptr(),
        host.numel(),
        width,
        levels,
        starts.data_ptr(),
        ends.data_ptr(),
        len(starts),
        errors.data_ptr(),
    )
    return errors.sum(1)  # torch's own order of summation decides near-ties as it does in PyTorch's observer


def l2_error(counts: Tensor, low: Tensor, high: Tensor, levels: int, start: int, end: int) -> float:
    """The squared error of quantizing what was counted to `levels` values spread evenly over bins `start` to `end`.

    Example:
        >>> counts = torch.tensor([1.0, 0.0, 0.0, 50.0, 100.0, 50.0, 0.0, 0.0])
        >>> l2_error(counts, torch.tensor(0.0), torch.tensor(8.0), 4, 3, 5)
        17.203125
    """
    host = counts.detach().to("cpu", torch.float32).contiguous()
    width = (high.item() - low.item()) / counts.numel()
    return _range_errors(host, width, levels, torch.tensor([start]), torch.tensor([end])).item()


def percentile_range(counts: Tensor, low: Tensor, high: Tensor, percentile: float) -> Range:
    """The range that holds `percentile` percent of the mass: half of the rest is cut off each end.

    Between the borders of a bin its mass is taken as even.

    Example:
        >>> percentile_range(torch.ones(10), torch.tensor(0.0), torch.tensor(10.0), 80.0)
        (tensor(1.), tensor(9.))
    """
    bins = counts.numel()
    below = torch.zeros(bins + 1, dtype=torch.float64, device=counts.device)
    torch.cumsum(counts.to(torch.float64), 0, out=below[1:])
    cut = (100.0 - percentile) / 200.0
    wanted = torch.tensor([cut, 1.0 - cut], dtype=torch.float64, device=counts.device) * below[-1]
    # The first bin that reaches the wanted mass; empty bins beside it are cut off, too.
    bin = torch.stack(
        [torch.searchsorted(below, wanted[0], right=True) - 1, torch.searchsorted(below, wanted[1]) - 1]
    ).clamp_(0, bins - 1)
    inside = (wanted - below[bin]) / (below[bin + 1] - below[bin])
    width = (high.to(torch.float64) - low.to(torch.float64)) / bins
    place = low.to(torch.float64) + (bin + inside.nan_to_num(0.0).clamp_(0, 1)) * width
    least, most = place.to(low.dtype)
    return torch.maximum(least, low), torch.minimum(most, high)


def least_error_range(
    counts: Tensor,
    low: Tensor,
    high: Tensor,
    qmin: int,
    qmax: int,
    *,
    eps: Tensor,
    scheme: QScheme = per_tensor_affine,
    symmetric_zero_point: int = 0,
    steps: int = 100,
) -> Range:
    """The range whose real quantization, rounding and clipping, has the least mean squared error.

    Candidates are ``low * i / steps`` with ``high * j / steps``: along the diagonal first, then each end alone. A
    bin's values stand at its middle. The range contains 0.

    Example:
        >>> counts = torch.cat([torch.full((99,), 1000.0), torch.zeros(100), torch.ones(1)])
        >>> eps = torch.tensor([1e-7])
        >>> least_error_range(counts, torch.tensor(0.0), torch.tensor(2.0), 0, 15, eps=eps)
        (tensor(0.), tensor(0.9600))
    """
    bins = counts.numel()
    if not bool(torch.isfinite(high - low)):
        return low, high
    middles = low + (high - low) * (torch.arange(bins, device=counts.device, dtype=counts.dtype) + 0.5) / bins
    # Quantization widens a range to contain 0, so candidates do, too: none is upside down.
    low, high = low.clamp(max=0), high.clamp(min=0)
    shrink = torch.arange(1, steps + 1, device=counts.device, dtype=counts.dtype) / steps

    def best(lows: Tensor, highs: Tensor) -> Range:
        scale, zero_point = qparams_from_range(
            lows, highs, qmin, qmax, eps=eps, scheme=scheme, symmetric_zero_point=symmetric_zero_point
        )
        scale, zero_point = scale[:, None], zero_point[:, None]
        q = (torch.round(middles / scale) + zero_point).clamp(qmin, qmax)
        errors = ((q - zero_point) * scale - middles).square().to(torch.float64) @ counts.to(torch.float64)
        at = len(errors) - 1 - errors.flip(0).argmin()  # of equals the widest
        return lows[at], highs[at]

    lows, highs = best(low * shrink, high * shrink)
    if not scheme.symmetric:
        lows, highs = best(low * shrink, highs.expand(steps))
        lows, highs = best(lows.expand(steps), high * shrink)
    return lows, highs


def least_divergence_range(counts: Tensor, low: Tensor, high: Tensor, levels: int) -> Range:
    """The clipping ``[-t, t]`` after which the quantized distribution tells most about the real one.

    For each threshold ``t`` at a bin's border, P is the distribution with everything beyond moved to the outermost bins
    kept, Q the one inside, averaged over `levels` equal parts of the range; the ``t`` with the least Kullback-Leibler
    divergence ``sum(P * log(P / Q))`` wins. Ranges on one side of zero are clipped at their far end only. Zero itself
    is quantized without error, so a peak there (after a ReLU, say) counts no more than its neighbours do.

    Example:
        >>> bell = torch.exp(-torch.linspace(-8, 8, 512).square() / 2) * 1000
        >>> least_divergence_range(bell, torch.tensor(-8.0), torch.tensor(8.0), 64)
        (tensor(-4.), tensor(4.))
    """
    bins, device = counts.numel(), counts.device
    least, most = low.item(), high.item()
    width = (most - least) / bins
    farthest = max(abs(least), abs(most))
    if width == 0 or farthest == 0:
        return low, high
    mass = counts.to(torch.float64)
    if least <= 0.0 <= most and bins > 2:
        zero = min(int(-least / width), bins - 1)
        beside = [mass[i] for i in (zero - 1, zero + 1) if 0 <= i < bins]
        mass = mass.clone()
        mass[zero] = torch.minimum(mass[zero], torch.stack(beside).mean())
    edges = least + width * torch.arange(bins + 1, dtype=torch.float64, device=device)
    steps = min(bins, 128)
    thresholds = farthest * torch.arange(1, steps + 1, dtype=torch.float64, device=device) / steps
    # Bins kept by each threshold: those whose middle is inside.
    middles = (edges[:-1] + edges[1:]) / 2
    kept = middles.abs() <= thresholds[:, None]
    first = kept.to(torch.int64).argmax(1)
    count = kept.sum(1)
    last = (first + count - 1).clamp_(min=0)
    possible = count >= min(levels, bins)

    inside = kept * mass
    below = torch.cat([torch.zeros(1, dtype=torch.float64, device=device), mass.cumsum(0)])
    real = inside.clone()
    rows = torch.arange(steps, device=device)
    real[rows, first] += below[first]
    real[rows, last] += below[-1] - below[last + 1]

    # Level of each kept bin; its mass is shared by the bins of the level that hold any.
    level = ((torch.arange(bins, device=device) - first[:, None]) * levels // count.clamp(min=1)[:, None]).clamp_(
        0, levels - 1
    )
    occupied = kept & (mass > 0)
    sums = torch.zeros(steps, levels, dtype=torch.float64, device=device).scatter_add_(1, level, inside)
    holders = torch.zeros(steps, levels, dtype=torch.float64, device=device).scatter_add_(
        1, level, occupied.to(torch.float64)
    )
    quantized = torch.where(occupied, (sums / holders.clamp(min=1)).gather(1, level), 0.0)

    p = real / real.sum(1, keepdim=True)
    q = quantized / quantized.sum(1, keepdim=True)
    smallest = torch.finfo(torch.float64).tiny
    divergence = torch.where(p > 0, p * (p.clamp(min=smallest).log() - q.clamp(min=1e-9).log()), 0.0).sum(1)
    divergence = torch.where(possible & divergence.isfinite(), divergence, math.inf)
    if not bool(divergence.isfinite().any()):
        return low, high
    at = steps - 1 - divergence.flip(0).argmin()
    t = thresholds[at].to(low.dtype)
    return torch.maximum(low, -t), torch.minimum(high, t)
