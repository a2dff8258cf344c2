"""TorchScript models that quantize themselves on the device: `_quantize_ondevice_dynamic_jit`."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.jit.mobile import _load_for_lite_interpreter

import zeropoint
from zeropoint.compat import on_device

QCONFIGS = {"tensor": zeropoint.default_dynamic_qconfig, "channel": zeropoint.per_channel_dynamic_qconfig}


class Model(nn.Module):
    """A convolution, layers in a list, and a linear function without a bias that reads a weight of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 1)
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 6))
        self.weight = nn.Parameter(torch.randn(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.layers(self.conv(x)), self.weight)


def scripted() -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    return torch.jit.script(Model().eval()), torch.randn(1, 2, 3, 6)


def saved_and_loaded(model: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(model, file)
    return torch.jit.load(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("qconfig", QCONFIGS.values(), ids=QCONFIGS)
@pytest.mark.parametrize("store", [lambda model: model, saved_and_loaded], ids=["made", "loaded"])
def test_the_quantized_method_gives_the_results_of_dynamic_quantization(
    installed: None, qconfig: Any, store: Any
) -> None:
    model, x = scripted()
    made = store(on_device._quantize_ondevice_dynamic_jit(model, {"": qconfig}))
    made.reset_observers_forward()
    assert torch.equal(made.observe_forward(x), model(x))
    made.quantize_forward(x)
    assert torch.equal(made.quantized_forward(x), zeropoint.quantize_dynamic_jit(model, {"": qconfig})(x))


def test_float_weights_are_gone_after_quantization(installed: None) -> None:
    model, x = scripted()
    made = on_device._quantize_ondevice_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig})
    with pytest.raises(RuntimeError, match="not quantized yet"):
        made.quantized_forward(x)
    made.observe_forward(x)
    made.quantize_forward(x)
    with pytest.raises(RuntimeError):
        made(x)


def test_modules_without_a_qconfig_stay_float(installed: None) -> None:
    model, _ = scripted()
    rules = {"": zeropoint.default_dynamic_qconfig, "layers": None}
    prepared = on_device._prepare_ondevice_dynamic_jit(model, rules)
    names = [name for name, _ in prepared.named_children()]
    assert [name for name in names if name.startswith("_observer_")] == ["_observer_0"]


def test_the_interpreter_for_phones_runs_it(installed: None) -> None:
    model, x = scripted()
    made = on_device._quantize_ondevice_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig})
    mobile = _load_for_lite_interpreter(io.BytesIO(made._save_to_buffer_for_lite_interpreter()))
    mobile.run_method("observe_forward", x)
    mobile.run_method("quantize_forward", x)
    expected = zeropoint.quantize_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig})(x)
    assert torch.equal(mobile.run_method("quantized_forward", x), expected)


def test_only_dynamic_quantization_to_qint8_is_accepted(installed: None) -> None:
    model, _ = scripted()
    with pytest.raises(ValueError, match="only dynamic quantization"):
        on_device._prepare_ondevice_jit(model, {"": zeropoint.default_dynamic_qconfig})
    with pytest.raises(NotImplementedError, match=r"weight' asks for torch\.float16"):
        on_device._prepare_ondevice_dynamic_jit(model, {"": zeropoint.float16_dynamic_qconfig})
    with pytest.raises(ValueError, match="'forward' was prepared"):
        on_device._convert_ondevice_dynamic_jit(model, "forward")
    prepared = on_device._prepare_ondevice_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig})
    with pytest.raises(ValueError, match="already prepared"):
        on_device._prepare_ondevice_dynamic_jit(prepared, {"": zeropoint.default_dynamic_qconfig})


def test_dynamic_scripts_have_the_convolutions_of_torch_in_float(installed: None) -> None:
    model, _ = scripted()
    counts = zeropoint.summary(zeropoint.quantize_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig})).counts()
    assert counts["int8, dynamic"] == 3
