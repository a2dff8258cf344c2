"""Calibration on many machines: every rank sees a part of the data, and all end with the parameters of the whole.

::

    # torchrun --nproc-per-node=4 calibrate.py
    torch.distributed.init_process_group("gloo")
    for batch in my_part_of_the_data:
        prepared(batch)
    zeropoint.distributed.sync_observers(prepared)

Training needs nothing special: observers and fake-quantize modules change their buffers in place only, so
DistributedDataParallel, which broadcasts rank 0's buffers before each step, and DataParallel work as they are. Call
`sync_observers` before converting to let the other ranks' data count, too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from zeropoint.fake_quant.modules import FakeQuantize, FixedQParamsFakeQuantize, FusedMovingAvgObsFakeQuantize
from zeropoint.numerics.histogram import on_range
from zeropoint.observers.granularity import (
    AffineQuantizedMinMaxObserver,
    AffineQuantizedMovingAverageMinMaxObserver,
)
from zeropoint.observers.histogram import StreamingHistogramObserver
from zeropoint.observers.minmax import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)

RANGED = (MinMaxObserver, PerChannelMinMaxObserver, AffineQuantizedMinMaxObserver)
AVERAGED = (
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    AffineQuantizedMovingAverageMinMaxObserver,
)
INF = float("inf")


def sync_observers(model: nn.Module, group: Any = None) -> None:
    """Merge the observers of all ranks, so that every rank has the ranges of all data.

    - min/max observers: the range of all data, as if one process had seen it;
    - histograms: that range, and the sum of the counts over common bins; a value can be counted one bin away;
    - moving averages: the mean over the ranks that saw data, which is the average that one process would keep of the
      ranks' mean range at each step;
    - statistics of channels (`prepare_graph` with ``equalize_channels=True``): those of all data;
    - `FakeQuantize` modules: scale and zero point of their observer.

    Every rank ends with the same bytes. All ranks of `group` must call this, with the same observers in the same order.
    Ranks without data contribute nothing.

    Args:
        model: a module with observers, also inside DistributedDataParallel; or an observer.
        group: a process group; by default all ranks.

    Raises:
        RuntimeError: if no process group was initialized.
        ValueError: if the ranks' observers differ. Nothing is changed then.

    Example:
        >>> import tempfile
        >>> from zeropoint import MinMaxObserver
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        ...     observer = MinMaxObserver()
        ...     _ = observer(torch.tensor([1.0, 2.0]))
        ...     sync_observers(observer)
        ...     dist.destroy_process_group()
        >>> observer.max_val
        tensor(2.)
    """
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "sync_observers needs a process group: call torch.distributed.init_process_group first (under torchrun,"
            ' init_process_group("gloo") is enough)'
        )
    observers = list(_observers(model))
    _make_room(observers, _with_statistics(model), group)
    for _, observer in observers:
        low, high = observer.min_val, observer.max_val
        if isinstance(observer, AVERAGED):
            _average(low, high, group)
        elif isinstance(observer, StreamingHistogramObserver):
            _join_histograms(observer, group)
        else:
            dist.all_reduce(low, dist.ReduceOp.MIN, group=group)
            dist.all_reduce(high, dist.ReduceOp.MAX, group=group)
    for module in model.modules():
        if isinstance(module, HasOwnStatistics):
            module.sync_statistics(group)
        _refresh(module)


@dataclass(frozen=True)
class Observations:
    """What the observers of a prepared model saw, without the model: small, and made to be sent and merged.

    Args:
        observers: by their names in the model.
        batches: how many were seen.
    """

    observers: Mapping[str, nn.Module]
    batches: int

    def put_into(self, prepared: nn.Module) -> None:
        """Add them to the observers of a model that was prepared in the same way.

        Raises:
            ValueError: if its observers differ. Nothing is changed then.
        """
        own = dict(_observers(prepared))
        _require_same("put_into", {n: type(o) for n, o in own.items()}, {n: type(o) for n, o in self.observers.items()})
        for name, observer in own.items():
            _merge(observer, self.observers[name])


def observe(prepared: nn.Module, batches: Iterable[Any]) -> Observations:
    """Run a copy of a prepared model on some batches; the model itself is left as it is.

    Any engine can call it on its workers: it depends on nothing but its arguments, so a part whose worker was lost can
    be run again. `merge_observations` puts the parts together.

    Args:
        prepared: from `prepare_graph`, `prepare_fx` or `prepare`.
        batches: a batch is a tensor, a tuple of positional arguments, or a dictionary of keyword arguments.

    Raises:
        NotImplementedError: if an observer keeps what cannot be merged.
    """
    model = copy.deepcopy(prepared)
    others = [name for name, *_ in _with_statistics(model)]
    averaged = [name for name, observer in _observers(model) if isinstance(observer, AVERAGED)]
    if others or averaged:
        raise NotImplementedError(
            f"observe: {', '.join((others + averaged)[:3])} keep what depends on the order of batches, or statistics of"
            " channels: use sync_observers, or a QConfig with HistogramObserver or MinMaxObserver"
        )
    count = 0
    with torch.no_grad():
        for batch in batches:
            if isinstance(batch, Mapping):
                model(**batch)
            else:
                model(*(batch if isinstance(batch, (tuple, list)) else (batch,)))
            count += 1
    return Observations(dict(_observers(model)), count)


def merge_observations(one: Observations, two: Observations) -> Observations:
    """What both saw. Neither is changed; the order makes no difference to ranges, and none beyond a bin to histograms.

    Example:
        >>> from zeropoint import MinMaxObserver
        >>> x = torch.tensor([[1.0, 2.0], [-3.0, 0.0]])
        >>> merged = merge_observations(*(observe(MinMaxObserver(), [part]) for part in x))
        >>> merged.observers[""].min_val, merged.batches
        (tensor(-3.), 2)
    """
    kinds = [{name: type(observer) for name, observer in part.observers.items()} for part in (one, two)]
    _require_same("merge_observations", *kinds)
    merged = copy.deepcopy(dict(one.observers))
    for name, observer in merged.items():
        _merge(observer, two.observers[name])
    return Observations(merged, one.batches + two.batches)


def _require_same(who: str, ours: Mapping[str, type], theirs: Mapping[str, type]) -> None:
    if ours != theirs:
        differing = [name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)]
        raise ValueError(f"{who}: the models were prepared in different ways: {', '.join(sorted(differing)[:5])}")


def _merge(observer: Any, other: Any) -> None:
    """Merge `other` into an observer; one that saw nothing takes part with no range."""
    if other.min_val.numel() == 0:
        return
    if observer.min_val.numel() == 0:
        observer.min_val.resize_(other.min_val.shape).fill_(INF)
        observer.max_val.resize_(other.max_val.shape).fill_(-INF)
    observer.merge(other)


@runtime_checkable
class HasOwnStatistics(Protocol):
    """A module of graph mode that keeps more than ranges, and knows how those of all ranks are put together."""

    def sync_statistics(self, group: Any) -> None:
        """Take over what all ranks of a process group saw."""


def _observers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, module in model.named_modules():
        if isinstance(module, RANGED):
            yield name, module


def _with_statistics(model: nn.Module) -> list[tuple[str, str, int, tuple[int, ...]]]:
    """Modules with statistics of their own, described as observers are."""
    return [(name, type(m).__name__, 0, ()) for name, m in model.named_modules() if isinstance(m, HasOwnStatistics)]


def _make_room(observers: list[tuple[str, Any]], others: list[Any], group: Any) -> None:
    """Observers that saw nothing get as many channels as those of the other ranks.

    All ranks must walk the same observers, or they would wait for each other forever, or mix up ranges.
    """
    mine = [(name, type(o).__name__, len(getattr(o, "histogram", ())), tuple(o.min_val.shape)) for name, o in observers]
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine + others, group=group)
    for rank, theirs in enumerate(everyone):
        if [o[:3] for o in theirs] != [o[:3] for o in everyone[0]]:
            differing = next((pair for pair in zip(everyone[0], theirs) if pair[0][:3] != pair[1][:3]), None)
            counts = f"rank 0 has {len(everyone[0])}, rank {rank} has {len(theirs)}"
            raise ValueError(
                f"sync_observers: all ranks must prepare the same model, got different observers: {differing or counts}"
            )
    shapes = [{rank[at][3] for rank in everyone} - {(0,)} for at in range(len(observers))]
    for (name, _), seen in zip(observers, shapes):
        if len(seen) > 1:
            raise ValueError(f"sync_observers: all ranks must observe ranges of the same shape at {name!r}, got {seen}")
    for (_, observer), seen in zip(observers, shapes):
        if observer.min_val.numel() == 0 and seen:
            (shape,) = seen
            observer.min_val.resize_(shape).fill_(INF)
            observer.max_val.resize_(shape).fill_(-INF)


def _average(low: Tensor, high: Tensor, group: Any) -> None:
    """The mean over the ranks that saw data, element by element."""
    seen = low <= high
    sums = torch.stack([torch.where(seen, low, 0.0), torch.where(seen, high, 0.0), seen.to(low.dtype)])
    dist.all_reduce(sums, group=group)
    some = sums[2] > 0
    low.copy_(torch.where(some, sums[0] / sums[2], INF))
    high.copy_(torch.where(some, sums[1] / sums[2], -INF))


def _join_histograms(observer: StreamingHistogramObserver, group: Any) -> None:
    low, high, counts = observer.min_val, observer.max_val, observer.histogram
    mine = low.item(), high.item()
    dist.all_reduce(low, dist.ReduceOp.MIN, group=group)
    dist.all_reduce(high, dist.ReduceOp.MAX, group=group)
    everyone = low.item(), high.item()
    if everyone[0] > everyone[1]:
        return
    if mine[0] <= mine[1]:
        counts.copy_(on_range(counts, *mine, *everyone))
    dist.all_reduce(counts, group=group)


def _refresh(module: nn.Module) -> None:
    if not isinstance(module, FakeQuantize) or isinstance(module, FixedQParamsFakeQuantize):
        return
    if isinstance(module, FusedMovingAvgObsFakeQuantize):
        return  # derives them from the running range at every step
    observer = module.activation_post_process
    if not isinstance(observer, RANGED) or observer.min_val.numel() == 0 or bool((observer.min_val == INF).any()):
        return
    scale, zero_point = module.calculate_qparams()
    for buffer, value in ((module.scale, scale), (module.zero_point, zero_point)):
        buffer.resize_(value.shape)
        buffer.copy_(value)
