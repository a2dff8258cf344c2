"""TorchScript models through prepare, calibration and convert."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from eight_bit_steps import steps_between
from forked import run_forked
from script_graphs import kinds, reloaded, scripted
from torch import Tensor, nn
from torch.nn import functional as F

import zeropoint

QCONFIG = {"": zeropoint.get_default_qconfig("native")}


class Small(nn.Module):
    """A convolution with batch norm and ReLU, a pool, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn(self.conv(x)))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(y, (1, 1)), 1))


def small() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = Small().eval()
    model.bn.running_mean.uniform_(-1, 1)
    model.bn.running_var.uniform_(0.5, 2)
    return model, torch.randn(4, 3, 8, 8)


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
def test_a_model_becomes_integers(traced: bool) -> None:
    model, x = small()
    prepared = zeropoint.prepare_jit(scripted(model, traced, x), QCONFIG)
    assert torch.equal(prepared(x), model(x)) or (prepared(x) - model(x)).abs().max() < 1e-5  # batch norm is folded
    quantized = zeropoint.convert_jit(prepared)
    found = kinds(quantized)
    assert [k for k in found if k.startswith("zeropoint::")] == [
        "zeropoint::quantize_per_tensor",
        "zeropoint::conv2d_relu",
        "zeropoint::stored_adaptive_average_pool",
        "zeropoint::linear",
        "zeropoint::dequantize",
    ]
    assert not {"aten::conv2d", "aten::_convolution", "aten::batch_norm", "aten::relu", "aten::linear"} & set(found)
    assert steps_between(quantized(x), model(x)) <= 4
    assert zeropoint.summary(quantized).counts() == {"int8": 2}
    again = reloaded(quantized)
    assert torch.equal(again(x), quantized(x))
    assert str(zeropoint.summary(again)) == str(zeropoint.summary(quantized))


def test_both_views_give_the_same_numbers() -> None:
    model, x = small()
    prepared = zeropoint.prepare_jit(torch.jit.script(model), QCONFIG)
    prepared(x)
    exported = zeropoint.prepare_graph(model, zeropoint.QConfigMapping().set_global(QCONFIG[""]), (x,))
    exported(x)
    assert torch.equal(zeropoint.convert_jit(prepared)(x), zeropoint.convert_graph(exported)(x))


def test_the_original_and_the_prepared_model_stay_as_they_were() -> None:
    model, x = small()
    script = torch.jit.script(model)
    before = str(script.inlined_graph)
    prepared = zeropoint.prepare_jit(script, QCONFIG)
    prepared(x)
    watched = str(prepared.graph)
    zeropoint.convert_jit(prepared)
    assert str(script.inlined_graph) == before
    assert str(prepared.graph) == watched
    assert torch.equal(script(x), model(x))


def test_inplace_changes_the_model_itself() -> None:
    model, x = small()
    script = torch.jit.script(model)
    assert zeropoint.quantize_jit(script, QCONFIG, lambda m: m(x), (), inplace=True) is script
    assert "zeropoint::conv2d_relu" in kinds(script)


def test_a_prepared_model_can_be_saved_in_between() -> None:
    model, x = small()
    prepared = zeropoint.prepare_jit(torch.jit.script(model), QCONFIG)
    prepared(x)
    assert torch.equal(zeropoint.convert_jit(reloaded(prepared))(x), zeropoint.convert_jit(prepared)(x))


def test_debug_keeps_float_operators() -> None:
    model, x = small()
    prepared = zeropoint.prepare_jit(torch.jit.script(model), QCONFIG)
    prepared(x)
    debug = zeropoint.convert_jit(prepared, debug=True)
    found = kinds(debug)
    assert {"aten::conv2d", "aten::linear", "zeropoint::quantize_per_tensor"} <= set(found)
    assert "zeropoint::conv2d_relu" not in found
    assert (debug(x) - zeropoint.convert_jit(prepared)(x)).abs().max() < 0.03


@pytest.mark.parametrize("torch_first", [True, False])
def test_a_saved_model_runs_in_another_process(tmp_path: Path, torch_first: bool) -> None:
    """Whichever was imported first: what zeropoint registers, it registers when there is a PyTorch."""
    model, x = small()
    quantized = zeropoint.quantize_jit(torch.jit.script(model), QCONFIG, lambda m: m(x), ())
    torch.jit.save(quantized, tmp_path / "model.pt")
    torch.save((x, quantized(x)), tmp_path / "data.pt")
    code = (
        "import zeropoint, torch\nx, y = torch.load('data.pt')\nassert torch.equal(torch.jit.load('model.pt')(x), y)\n"
    )
    if torch_first:
        ran = run_forked(code, cwd=tmp_path)
    else:
        ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


def test_not_a_script_module_is_refused() -> None:
    model, _ = small()
    with pytest.raises(TypeError, match=r"takes a ScriptModule, got Small: use torch\.jit\.script"):
        zeropoint.prepare_jit(model, QCONFIG)


def test_convert_needs_what_prepare_gave() -> None:
    model, _ = small()
    with pytest.raises(ValueError, match="expects a model from prepare_jit"):
        zeropoint.convert_jit(torch.jit.script(model))


def test_convert_needs_data() -> None:
    model, _ = small()
    with pytest.raises(ValueError, match="saw no data"):
        zeropoint.convert_jit(zeropoint.prepare_jit(torch.jit.script(model), QCONFIG))


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_converted_is_past_training(dynamic: bool) -> None:
    x = torch.randn(64, 8)
    layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 8), nn.Sequential(nn.Dropout()))
    scripted = torch.jit.script(layers.train())
    if dynamic:
        made = zeropoint.quantize_dynamic_jit(scripted, {"": zeropoint.default_dynamic_qconfig})
    else:
        made = zeropoint.quantize_jit(scripted, {"": zeropoint.default_qconfig}, lambda model, data: model(data), [x])
    assert torch.equal(made(x), made(x))
    assert not made.training
    assert scripted.training
