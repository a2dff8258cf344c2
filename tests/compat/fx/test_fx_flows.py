"""prepare_fx and convert_fx: names, modules, values, checkpoints, against torch.ao."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

import zeropoint
from zeropoint import fx


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.relu = nn.ReLU()  # used twice, as in torchvision's residual networks

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.layer1 = nn.Sequential(Block(), Block())
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer1(self.stem(x))
        x = torch.cat([x, x * 2], 1)
        x = torch.flatten(self.pool(x), 1)
        return self.fc(x)


def model() -> Network:
    torch.manual_seed(0)
    made = Network()
    with torch.no_grad():
        made(torch.randn(16, 3, 8, 8))  # statistics for the batch norms
    return made.eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def pair(images: Tensor, backend: str = "x86") -> tuple[Any, Any, Any, Any]:
    """Prepared by us and by torch.ao, and both converted."""
    ours = fx.prepare_fx(model(), zeropoint.get_default_qconfig_mapping(backend), (images,))
    theirs = prepare_fx(model(), get_default_qconfig_mapping(backend), (images,))
    with torch.no_grad():
        ours(images), theirs(images)
    prepared = copy.deepcopy(ours), copy.deepcopy(theirs)
    return *prepared, fx.convert_fx(ours), convert_fx(theirs)


def test_nodes_and_state_dict_keys_are_those_of_torch_ao(images: Tensor) -> None:
    ours, theirs, quantized, expected = pair(images)
    assert [(n.op, n.name) for n in ours.graph.nodes] == [(n.op, n.name) for n in theirs.graph.nodes]
    assert [(n.op, n.name) for n in quantized.graph.nodes] == [(n.op, n.name) for n in expected.graph.nodes]
    assert set(quantized.state_dict()) == set(expected.state_dict())
    assert type(quantized.layer1.get_submodule("0").conv1) is zeropoint.nn.intrinsic.quantized.ConvReLU2d
    assert "layer1_0_relu_scale_0" in quantized.state_dict()


@pytest.mark.parametrize("backend", ["x86", "fbgemm", "qnnpack"])
def test_integers_are_those_of_torch_ao_up_to_one_step(images: Tensor, backend: str) -> None:
    *_, quantized, expected = pair(images, backend)
    scale = float(quantized.fc.scale)
    steps = (quantized(images) - expected(images)).abs() / scale
    assert steps.max() < 1.5
    assert (steps < 0.5).float().mean() >= 0.99


def test_a_checkpoint_of_torch_ao_loads_into_an_uncalibrated_model(images: Tensor) -> None:
    *_, expected = pair(images)
    file = io.BytesIO()
    torch.save(expected.state_dict(), file)
    restored = fx.convert_fx(fx.prepare_fx(model(), zeropoint.get_default_qconfig_mapping("x86"), (images,)))
    file.seek(0)
    restored.load_state_dict(torch.load(file, weights_only=False))
    steps = (restored(images) - expected(images)).abs() / float(restored.fc.scale)
    assert steps.max() < 1.5


def test_a_converted_model_is_copied_and_saved(images: Tensor, tmp_path: Any) -> None:
    *_, quantized, _ = pair(images)
    expected = quantized(images)
    assert torch.equal(copy.deepcopy(quantized)(images), expected)
    torch.save(quantized, tmp_path / "model.pt")
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)(images), expected)
    again = fx.convert_fx(fx.prepare_fx(model(), zeropoint.get_default_qconfig_mapping("x86"), (images,)))
    again.load_state_dict(quantized.state_dict())
    assert torch.equal(again(images), expected)


def test_fuse_fx_takes_a_relu_that_is_used_twice() -> None:
    block = Block().eval()
    fused = fx.fuse_fx(copy.deepcopy(block))
    assert type(fused.conv1) is zeropoint.nn.intrinsic.ConvReLU2d
    x = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(fused(x), block(x))


def test_a_model_in_training_is_deployed_as_it_was_trained(images: Tensor) -> None:
    prepared = fx.prepare_qat_fx(model().train(), zeropoint.get_default_qat_qconfig_mapping("x86"), (images,))
    prepared(images).sum().backward()
    prepared.eval().apply(zeropoint.disable_observer)
    with torch.no_grad():
        trained = prepared(images)
        deployed = fx.convert_fx(copy.deepcopy(prepared))(images)
    assert (trained - deployed).abs().max() <= 2 * float(prepared.activation_post_process_0.scale) + 0.5


def test_convert_refuses_what_prepare_did_not_give() -> None:
    with pytest.raises(ValueError, match="prepare_fx"):
        fx.convert_fx(nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prepare_fx"):
        fx.convert_fx(torch.fx.symbolic_trace(nn.Sequential(nn.ReLU())))


def test_a_number_stands_behind_the_tensor_in_sums() -> None:
    class Sum(nn.Module):
        def __init__(self, is_first: bool) -> None:
            super().__init__()
            self.is_first = is_first

        def forward(self, x: Tensor) -> Tensor:
            y = torch.cat([x, x])
            return 0.5 + (2.0 * y) if self.is_first else (y * 2.0) + 0.5

    x, results = torch.randn(3, 4), []
    for is_first in (True, False):
        mapping = zeropoint.QConfigMapping().set_global(zeropoint.default_qconfig)
        prepared = fx.prepare_fx(Sum(is_first).eval(), mapping, (x,))
        prepared(x)
        converted = fx.convert_fx(prepared)
        sums = [n for n in converted.graph.nodes if getattr(n.target, "__name__", "") in ("add", "mul")]
        assert [n.args[1] for n in sums] == [2.0, 0.5]
        results.append(converted(x))
    assert torch.equal(*results)


def test_a_module_whose_name_has_a_slash_or_a_colon_is_quantized() -> None:
    model, x = nn.Sequential(), torch.randn(2, 4)
    model.add_module("block/3", nn.Linear(4, 2))
    model.add_module("block: 4", nn.Linear(2, 2))
    mapping = zeropoint.get_default_qconfig_mapping("x86")
    prepared = fx.prepare_fx(model.eval(), mapping, (x,))
    prepared(x)
    quantized = fx.convert_fx(prepared)
    for name in ("block/3", "block: 4"):
        assert type(quantized.get_submodule(name)) is zeropoint.nn.quantized.Linear
    assert quantized(x).shape == (2, 2)
