"""Observers that count: one streaming histogram, and several ways to read a range from it."""

import math
from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics.dtypes import quint8
from zeropoint.numerics.histogram import l2_error, merge_histograms
from zeropoint.numerics.schemes import per_tensor_affine
from zeropoint.observers.base import EPS, UniformQuantizationObserverBase, storage_bits
from zeropoint.observers.minmax import MinMaxObserver

INF = float("inf")


class StreamingHistogramObserver(MinMaxObserver):
    """Counts values into `bins` bins over the range of all values. Its memory does not grow with the data.

    Each tensor takes one native pass while it stays inside the range. When the range grows, the old counts are
    distributed over the wider bins. Infinities are ignored with a warning. NaN raises an error and leaves the counts
    unchanged.

    Args: `bins`, `upsample_rate` (parts that an old bin is split into when the range grows), and those of
        `MinMaxObserver`.
    """

    histogram: Tensor

    def __init__(
        self,
        bins: int = 2048,
        dtype: Any = quint8,
        qscheme: Any = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        upsample_rate: int = 16,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        if is_dynamic:
            raise NotImplementedError(
                f"{name}: dynamic quantization uses the range of each tensor; use MovingAverageMinMaxObserver with "
                "averaging_constant=1"
            )
        if bins < 1 or upsample_rate < 1:
            raise ValueError(f"{name}: bins and upsample_rate must be positive, got {bins} and {upsample_rate}")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.bins = bins
        self.upsample_rate = upsample_rate
        self.dst_nbins = 2 ** storage_bits(self.dtype)
        self.register_buffer("histogram", torch.zeros(bins, **torch.nn.factory_kwargs(factory_kwargs)))

    def forward(self, x_orig: Tensor) -> Tensor:
        torch.ops.zeropoint.observe_histogram_(
            x_orig.detach(), self.histogram, self.min_val, self.max_val, self.upsample_rate
        )
        return x_orig

    def _kept_range(self) -> tuple[Tensor, Tensor]:
        return self.min_val, self.max_val

    @torch.jit.export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point), each of shape ``(1,)``. Without data, 1 and 0 with a warning."""
        min_val, max_val = self.min_val, self.max_val
        if bool(min_val <= max_val):
            min_val, max_val = self._kept_range()
        return self._calculate_qparams(min_val, max_val)

    @torch.jit.export
    def reset_min_max_vals(self) -> None:
        """Reset the histogram."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))
        self.histogram.zero_()

    def merge(self, other: UniformQuantizationObserverBase) -> None:
        """Merge the histogram of `other` into this one. The range is exact; the counts are accurate to one bin width.

        Example:
            >>> one, two, all = HistogramObserver(), HistogramObserver(), HistogramObserver()
            >>> x = torch.randn(2, 10000, generator=torch.Generator().manual_seed(0))
            >>> _ = one(x[0]), two(x[1]), all(x)
            >>> one.merge(two)
            >>> bool(one.min_val == all.min_val), bool(one.max_val == all.max_val), one.histogram.sum()
            (True, True, tensor(20000.))
        """
        self._require_same_kind(other)
        if len(other.histogram) != len(self.histogram):
            raise ValueError(
                f"cannot merge a histogram of {len(other.histogram)} bins into one of {len(self.histogram)}"
            )
        merge_histograms(self.histogram, self.min_val, self.max_val, (other.histogram, other.min_val, other.max_val))


class HistogramObserver(StreamingHistogramObserver):
    """Chooses the range with the smallest l2 quantization error, by PyTorch's search over a histogram.

    Args: see `StreamingHistogramObserver`.

    Example:
        >>> observer = HistogramObserver(bins=3)
        >>> _ = observer(torch.tensor([2.0, 3.0, 4.0, 5.0])), observer(torch.tensor([5.0, 6.0, 7.0, 8.0]))
        >>> observer.histogram
        tensor([2., 3., 3.])
    """

    def _require_middle(self) -> None:
        """PyTorch's takes a reduced symmetric quint8, and answers a zero point of 128 for it, outside the range."""

    def _kept_range(self) -> tuple[Tensor, Tensor]:
        return self._narrowed_range()

    def _narrowed_range(self) -> tuple[Tensor, Tensor]:
        low, high = torch.ops.zeropoint.histogram_l2_range(self.histogram, self.min_val, self.max_val, self.dst_nbins)
        return low, high

    def _compute_quantization_error(self, next_start_bin: int, next_end_bin: int) -> float:
        return l2_error(self.histogram, self.min_val, self.max_val, self.dst_nbins, next_start_bin, next_end_bin)


class WidenedHistogramObserver(HistogramObserver):
    """A HistogramObserver that allows for unseen values; the default of `to_int8` for activations.

    After n values, two in n + 1 further values lie outside the observed range, and clipping these costs more than
    rounding all others. With fewer than 10,000 values, the observer therefore keeps the full range and widens it, by
    the ratio of the expected extremes of 10,000 and of n normally distributed values, at most by a factor of two. A
    range without negative (or positive) values grows on one side only.

    The smallest scale is 2^-60: HistogramObserver's, 2^-23, rounds values below 1e-7 to zero, even if a norm behind
    them makes them large again. Where all values are zero it stays 2^-23.

    Args: `whole` (keep the full range, whatever the number of values), `many` (number of values from which the range is
    not widened; 0 never widens), and those of `HistogramObserver`.

    Example:
        >>> observer = WidenedHistogramObserver()
        >>> _ = observer(torch.linspace(0, 1, 100))
        >>> round(255 * observer.calculate_qparams()[0].item(), 2)
        1.54
    """

    many: torch.jit.Final[int]  # values of a tensor that show its range

    def __init__(self, whole: bool = False, many: int = 10_000, eps: float = 2.0**-60, **kwargs: Any) -> None:
        super().__init__(eps=eps, **kwargs)
        self.many = int(many)
        self.whole = bool(whole)

    def _kept_range(self) -> tuple[Tensor, Tensor]:
        if not bool(self.min_val.any()) and not bool(self.max_val.any()):
            return self.min_val, torch.full_like(self.max_val, (self.quant_max - self.quant_min) * 2.0**-23)
        seen = self.histogram.sum()
        if bool(seen >= self.many):
            if self.whole:
                return self.min_val, self.max_val
            return self._narrowed_range()
        factor = _reached(torch.full_like(seen, self.many)) / _reached(seen)
        more = factor.clamp(1.0, 2.0) - 1.0
        if bool(self.min_val >= 0.0):
            return self.min_val, self.max_val + more * (self.max_val - self.min_val)
        if bool(self.max_val <= 0.0):
            return self.min_val - more * (self.max_val - self.min_val), self.max_val
        half = more * (self.max_val - self.min_val) / 2.0
        return self.min_val - half, self.max_val + half

    def extra_repr(self) -> str:
        return f"whole={self.whole}, {super().extra_repr()}"


def _reached(count: Tensor) -> Tensor:
    """What the largest of `count` values of a normal distribution is on average, in standard deviations."""
    return torch.special.ndtri((count - 0.375) / (count + 0.25))


class PercentileObserver(StreamingHistogramObserver):
    """Chooses the range that contains `percentile` percent of all values, clipping half of the rest at each end.

    Args: `percentile`, and those of `StreamingHistogramObserver`.

    Example:
        >>> observer = PercentileObserver(percentile=90.0)
        >>> _ = observer(torch.linspace(0, 1, 10001))
        >>> scale, zero_point = observer.calculate_qparams()
        >>> round(255 * scale.item(), 2)
        0.95
    """

    def __init__(self, percentile: float = 99.99, **kwargs: Any) -> None:
        if not 0.0 < percentile <= 100.0 or math.isnan(percentile):
            raise ValueError(f"PercentileObserver: percentile must be above 0 and at most 100, got {percentile}")
        super().__init__(**kwargs)
        self.percentile = float(percentile)

    def _kept_range(self) -> tuple[Tensor, Tensor]:
        low, high = torch.ops.zeropoint.histogram_percentile_range(
            self.histogram, self.min_val, self.max_val, self.percentile
        )
        return low, high

    def extra_repr(self) -> str:
        return f"percentile={self.percentile}, {super().extra_repr()}"


class MSEObserver(StreamingHistogramObserver):
    """Chooses the range with the smallest mean squared error after rounding and clipping.

    Args: see `StreamingHistogramObserver`.

    Example:
        >>> observer = MSEObserver(dtype="quint4x2")
        >>> x = torch.randn(100000, generator=torch.Generator().manual_seed(0))
        >>> _ = observer(x)
        >>> bool(15 * observer.calculate_qparams()[0] < x.max() - x.min())
        True
    """

    def _kept_range(self) -> tuple[Tensor, Tensor]:
        low, high = torch.ops.zeropoint.histogram_error_range(
            self.histogram,
            self.min_val,
            self.max_val,
            self.eps,
            self.quant_min,
            self.quant_max,
            self.symmetric,
            self.symmetric_zero_point,
        )
        return low, high


class EntropyObserver(StreamingHistogramObserver):
    """Chooses the range ``[-t, t]`` with the smallest Kullback-Leibler divergence between the original and the clipped
    values.

    Args: see `StreamingHistogramObserver`.

    Example:
        >>> observer = EntropyObserver()
        >>> x = torch.randn(100000, generator=torch.Generator().manual_seed(0))
        >>> x[0] = 100.0
        >>> _ = observer(x)
        >>> bool(255 * observer.calculate_qparams()[0] < 20)
        True
    """

    def _kept_range(self) -> tuple[Tensor, Tensor]:
        low, high = torch.ops.zeropoint.histogram_divergence_range(
            self.histogram, self.min_val, self.max_val, self.quant_max - self.quant_min + 1
        )
        return low, high
