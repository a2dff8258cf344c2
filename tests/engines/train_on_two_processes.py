"""Trains with Lightning on two processes, each of which sees other data, and keeps what each ends with."""

from __future__ import annotations

import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
from test_trainers import IMAGES, LABELS, Classifier
from torch.utils.data import DataLoader, TensorDataset

from zeropoint.integrations.lightning import QuantizationAwareTraining

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    module = Classifier()
    trainer = pl.Trainer(
        default_root_dir=folder, max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        callbacks=[QuantizationAwareTraining((IMAGES[:2],), freeze_observers=1)],
    )  # fmt: skip
    trainer.fit(module, DataLoader(TensorDataset(IMAGES, LABELS), batch_size=4))
    torch.save(module.model.state_dict(), folder / f"rank{trainer.global_rank}.pt")
