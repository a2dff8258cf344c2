"""Lightning 1.9: the callback QuantizationAwareTraining, on a model of its own demos."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import QuantizationAwareTraining

PACKAGES = (
    "pytorch-lightning==1.9.5",
    "setuptools<81",
    "lightning-utilities",
    "torchmetrics",
    "tqdm",
    "pillow",
    "torchvision",
)


class _Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self(batch).pow(2).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


def _trained() -> Any:
    data, x = list(torch.randn(4, 8, 16)), torch.randn(8, 16)
    model = _Model()
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = Trainer(max_epochs=1, accelerator="cpu", callbacks=[QuantizationAwareTraining(qconfig="fbgemm")], **quiet)
    with torch.enable_grad():
        trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=None))
    model.eval()
    return model, lambda: model(x)


CASES = {"training": _trained}
