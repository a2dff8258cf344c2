"""Lightning and transformers' Trainer as they are on PyPI, with quantization-aware training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer, TrainingArguments

import zeropoint
from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.integrations.lightning import QuantizationAwareTraining
from zeropoint.integrations.transformers_trainer import QuantizationAwareTraining as OfTransformers

IMAGES = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = (IMAGES.mean((1, 2, 3)) > 0).long()


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2)
    )


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = _network()

    def training_step(self, batch: Any, _: int) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def _observing(model: nn.Module) -> set[bool]:
    return {bool(m.observer_enabled) for m in model.modules() if isinstance(m, FakeQuantizeBase)}


class Watch(pl.Callback):
    def __init__(self) -> None:
        self.seen: list[tuple[int, set[bool]]] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:
            self.seen.append((trainer.current_epoch, _observing(pl_module.model)))


def _fit(folder: Path, epochs: int, resume: str | None = None, **options: Any) -> tuple[Any, Any, Watch]:
    torch.manual_seed(1)
    callback = QuantizationAwareTraining((IMAGES[:2],), freeze_observers=2, freeze_batch_norm=3)
    watch, module = Watch(), Classifier()
    trainer = pl.Trainer(
        default_root_dir=folder, max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback, watch, pl.callbacks.ModelCheckpoint(folder, save_last=True)],
        **options,
    )  # fmt: skip
    trainer.fit(module, DataLoader(TensorDataset(IMAGES, LABELS), batch_size=8), ckpt_path=resume)
    return callback, module, watch


def test_lightning_trains_on_a_schedule_and_the_result_is_deployed(tmp_path: Path) -> None:
    callback, module, watch = _fit(tmp_path, 4)
    assert watch.seen == [(0, {True}), (1, {True}), (2, {False}), (3, {False})]
    deployed = callback.convert(module)
    assert torch.equal(deployed(IMAGES), module.model.eval()(IMAGES))
    program = zeropoint.compile(deployed, (IMAGES,))
    assert torch.equal(program(IMAGES), deployed(IMAGES))
    assert (deployed(IMAGES).argmax(1) == LABELS).float().mean() > 0.5


def test_lightning_goes_on_from_a_checkpoint_to_the_same_weights(tmp_path: Path) -> None:
    _, whole, _ = _fit(tmp_path / "whole", 4)
    _fit(tmp_path / "parts", 2)
    _, again, watch = _fit(tmp_path / "parts", 4, str(tmp_path / "parts" / "last.ckpt"))
    assert watch.seen == [(2, {False}), (3, {False})]
    for (name, one), two in zip(whole.state_dict().items(), again.state_dict().values()):
        assert torch.equal(one, two), name


def test_lightning_names_a_part_that_is_not_there() -> None:
    callback = QuantizationAwareTraining((IMAGES[:2],), attribute="net")
    with pytest.raises(ValueError, match="Classifier has no module 'net'"):
        callback.setup(pl.Trainer(logger=False, accelerator="cpu"), Classifier(), "fit")


def test_two_processes_end_with_the_same_ranges(tmp_path: Path) -> None:
    script = Path(__file__).with_name("train_on_two_processes.py")
    ran = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    one, two = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    assert one.keys() == two.keys()
    ranges = [name for name in one if name.endswith(("min_val", "max_val"))]
    assert len(ranges) >= 4
    assert all(torch.equal(one[name], two[name]) for name in ranges)


def test_the_trainer_of_transformers_follows_the_schedule(tmp_path: Path) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            mapping = zeropoint.get_default_qat_qconfig_mapping("native")
            self.part = zeropoint.prepare_qat_graph(_network().train(), mapping, (IMAGES[:2],))
            self.seen: list[set[bool]] = []

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            self.seen.append(_observing(self))
            scores = self.part(x)
            return {"loss": nn.functional.cross_entropy(scores, labels), "scores": scores}

    model = Network()
    data = [{"x": image, "labels": label} for image, label in zip(IMAGES, LABELS)]
    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=3, per_device_train_batch_size=8, report_to=[], use_cpu=True, save_strategy="no"
    )
    Trainer(model, arguments, train_dataset=data, callbacks=[OfTransformers(freeze_observers=2)]).train()
    assert model.seen == [{True}] * 8 + [{False}] * 4
    deployed = zeropoint.convert_graph(model.part.eval())
    assert torch.equal(deployed(IMAGES), model.part(IMAGES))


def test_a_model_without_fake_quantization_is_refused() -> None:
    with pytest.raises(ValueError, match="has no fake quantization to schedule"):
        OfTransformers().on_epoch_begin(None, type("State", (), {"epoch": 0})(), None, model=nn.Linear(2, 2))


SHARDED = """
import torch, torch.distributed as distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import TrainerState, TrainingArguments
import zeropoint
from zeropoint.integrations.transformers_trainer import QuantizationAwareTraining
distributed.init_process_group("gloo", init_method="file://FOLDER/group", rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
mapping = zeropoint.get_default_qat_qconfig_mapping("native")
prepared = zeropoint.prepare_qat_graph(model, mapping, (torch.randn(2, 4),))
arguments = TrainingArguments("FOLDER", use_cpu=True, report_to=[])
QuantizationAwareTraining().on_epoch_begin(arguments, TrainerState(), None, model=prepared)
fully_shard(prepared, mesh=init_device_mesh("cpu", (1,)))
try:
    QuantizationAwareTraining().on_epoch_begin(arguments, TrainerState(), None, model=prepared)
except NotImplementedError as error:
    print(error)
distributed.destroy_process_group()
"""


def test_weights_that_fsdp2_keeps_in_parts_are_refused_in_words(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", SHARDED.replace("FOLDER", str(tmp_path))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert "FSDP keeps graph_module." in ran.stdout, ran.stderr
    assert "use DistributedDataParallel" in ran.stdout


def test_lightning_is_told_that_its_sharding_strategies_are_refused() -> None:
    trainer = pl.Trainer(strategy=ModelParallelStrategy(), accelerator="cpu", devices=1, logger=False)
    with pytest.raises(NotImplementedError, match=r'ModelParallelStrategy cuts weights.*strategy="ddp"'):
        QuantizationAwareTraining((IMAGES[:2],)).setup(trainer, Classifier(), "fit")
