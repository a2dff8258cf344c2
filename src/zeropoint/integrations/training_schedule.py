"""When quantization-aware training fixes its ranges and its batch norms, for the callbacks of trainers."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed
from torch import nn

from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.fake_quant.switches import disable_observer, enable_observer
from zeropoint.nn.intrinsic.qat import freeze_bn_stats, update_bn_stats


@dataclass(frozen=True)
class TrainingSchedule:
    """Epochs, counted from 0, from which on something no longer changes. None: it changes to the end.

    Args:
        freeze_observers: the ranges of activations and weights.
        freeze_batch_norm: the statistics of batch norms.
    """

    freeze_observers: int | None = None
    freeze_batch_norm: int | None = None

    def __post_init__(self) -> None:
        for name in ("freeze_observers", "freeze_batch_norm"):
            epoch = getattr(self, name)
            if epoch is not None and (not isinstance(epoch, int) or epoch < 0):
                raise ValueError(f"{name} is an epoch, counted from 0, or None; got {epoch!r}")

    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        """Bring a model into the state that this epoch trains in, wherever training began or went on.

        Raises:
            ValueError: if nothing in the model simulates quantization.
            NotImplementedError: if FSDP keeps its weights in parts.
        """
        if torch.distributed.is_available():
            _require_whole(model)
        if not any(isinstance(module, FakeQuantizeBase) for module in model.modules()):
            raise ValueError(
                f"{type(model).__name__} has no fake quantization to schedule: prepare it before the trainer gets it,"
                " with prepare_qat_graph or prepare_qat"
            )
        model.apply(disable_observer if _reached(self.freeze_observers, epoch) else enable_observer)
        model.apply(freeze_bn_stats if _reached(self.freeze_batch_norm, epoch) else update_bn_stats)


def _require_whole(model: nn.Module) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    parts = [name for name, parameter in model.named_parameters() if isinstance(parameter, DTensor)]
    parts += [name for name, module in model.named_modules() if isinstance(module, FullyShardedDataParallel)]
    if parts:
        raise NotImplementedError(
            f"{type(model).__name__}: FSDP keeps {parts[0] or 'the model'} in parts, which cannot be converted to"
            " integers: use DistributedDataParallel"
        )


def _reached(limit: int | None, epoch: int) -> bool:
    return limit is not None and epoch >= limit
