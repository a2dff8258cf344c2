"""Lightning: a callback for quantization-aware training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import nn

from zeropoint.distributed import sync_observers
from zeropoint.graph.workflow import InTraining, Quantized, convert_graph, prepare_qat_graph
from zeropoint.integrations.training_schedule import TrainingSchedule
from zeropoint.qconfig_mapping import QConfigMapping, get_default_qat_qconfig_mapping


class QuantizationAwareTraining(Callback):
    """Trains a part of a LightningModule with simulated quantization.

    The part is replaced before optimizers are made and checkpoints are read, so both have its parameters and observers,
    and a run that was stopped goes on in the state that its epoch has.

    Args:
        example_inputs: what the part is called with.
        attribute: the name of the part in the LightningModule.
        qconfig_mapping: by default that of zeropoint's kernels.
        freeze_observers, freeze_batch_norm: see `TrainingSchedule`.
    """

    def __init__(
        self,
        example_inputs: Any,
        attribute: str = "model",
        qconfig_mapping: QConfigMapping | Mapping[str, Any] | None = None,
        freeze_observers: int | None = None,
        freeze_batch_norm: int | None = None,
    ) -> None:
        self._example_inputs, self._attribute, self._mapping = example_inputs, attribute, qconfig_mapping
        self._schedule = TrainingSchedule(freeze_observers, freeze_batch_norm)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Prepare the part, unless it was prepared before."""
        if isinstance(trainer.strategy, (FSDPStrategy, ModelParallelStrategy)):
            raise NotImplementedError(
                f"QuantizationAwareTraining: {type(trainer.strategy).__name__} cuts weights into parts, whose ranges"
                ' are not those of the whole; use strategy="ddp"'
            )
        part = self._part(pl_module)
        if not isinstance(part, InTraining):
            mapping = self._mapping or get_default_qat_qconfig_mapping("native")
            setattr(pl_module, self._attribute, prepare_qat_graph(part, mapping, self._example_inputs))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Apply the schedule."""
        self._schedule.begin_epoch(self._part(pl_module), trainer.current_epoch)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give all processes the ranges of all data."""
        if trainer.world_size > 1 and dist.is_initialized():
            sync_observers(self._part(pl_module))

    def convert(self, pl_module: LightningModule) -> Quantized:
        """The trained part as a quantized model, for `zeropoint.compile`."""
        return convert_graph(self._part(pl_module).eval())

    def _part(self, pl_module: LightningModule) -> Any:
        part = getattr(pl_module, self._attribute, None)
        if not isinstance(part, nn.Module):
            raise ValueError(
                f"QuantizationAwareTraining: {type(pl_module).__name__} has no module {self._attribute!r}; name it with"
                " attribute="
            )
        return part
