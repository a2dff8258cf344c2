"""transformers: a callback of `Trainer` for quantization-aware training."""

from __future__ import annotations

import math
from typing import Any

from torch import nn
from transformers import TrainerCallback

from zeropoint.integrations.training_schedule import TrainingSchedule


class QuantizationAwareTraining(TrainerCallback):
    """Fixes ranges and batch norms of a model that `prepare_qat_graph` or `prepare_qat` prepared.

    A run that goes on from a checkpoint is in the state that its epoch has.

    Args: see `TrainingSchedule`.
    """

    def __init__(self, freeze_observers: int | None = None, freeze_batch_norm: int | None = None) -> None:
        self._schedule = TrainingSchedule(freeze_observers, freeze_batch_norm)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, model: nn.Module | None = None, **given: Any) -> None:
        """Apply the schedule."""
        if model is None:
            raise ValueError("QuantizationAwareTraining: the trainer has no model")
        self._schedule.begin_epoch(model, math.floor(state.epoch or 0))
