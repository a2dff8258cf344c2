"""Ranges of few values: kept whole and widened for the values that calibration did not show."""

import pytest
import torch

from zeropoint.observers import HistogramObserver, WidenedHistogramObserver

_STEPS = 255
_MANY = 10_000  # values that show a range


def _range(observer):
    scale, zero_point = observer.calculate_qparams()
    return -int(zero_point) * scale.item(), (_STEPS - int(zero_point)) * scale.item()


@pytest.mark.parametrize(("count", "widened"), [(5, 2.0), (20, 2.0), (100, 1.54), (1000, 1.19), (5000, 1.05)])
def test_few_values_get_room_for_those_to_come(count, widened):
    observer = WidenedHistogramObserver()
    observer(torch.linspace(-1, 1, count))
    low, high = _range(observer)
    assert high - low == pytest.approx(2 * widened, rel=0.01)
    assert low == pytest.approx(-high, rel=0.02)  # both sides, up to a zero point that is an integer


@pytest.mark.parametrize("sign", [1, -1])
def test_what_has_one_sign_grows_at_one_side(sign):
    observer = WidenedHistogramObserver()
    observer(sign * torch.linspace(0, 1, 20))
    low, high = sorted(sign * bound for bound in _range(observer))
    assert (low, high) == (0, pytest.approx(2, rel=0.01))


def test_many_values_have_the_range_of_the_histogram():
    x = torch.randn(_MANY, generator=torch.Generator().manual_seed(0)) ** 3
    widened, narrowed, whole = WidenedHistogramObserver(), HistogramObserver(), WidenedHistogramObserver(whole=True)
    for observer in (widened, narrowed, whole):
        observer(x)
    assert widened.calculate_qparams() == narrowed.calculate_qparams()
    low, high = _range(whole)
    step = (high - low) / _STEPS
    assert low == pytest.approx(float(x.min()), abs=step)
    assert high == pytest.approx(float(x.max()), abs=step)


def test_one_value_that_is_seen_is_not_clipped():
    observer = WidenedHistogramObserver()
    observer(torch.tensor([3.0]))
    assert _range(observer)[1] == pytest.approx(3.0)


def test_scripted_it_finds_the_same():
    scripted, plain = torch.jit.script(WidenedHistogramObserver()), WidenedHistogramObserver()
    for observer in (scripted, plain):
        observer(torch.linspace(-3, 1, 50))
    assert scripted.calculate_qparams() == plain.calculate_qparams()
