"""What a model may not do between its quantized layers: it is said when the model is prepared or calibrated.

The message names the function, the module with its path in the model, the line, and ways out.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zeropoint


class Block(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.function(y, self.second(y))


class Model(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()
        self.blocks = nn.Sequential(nn.Linear(4, 4), Block(function))

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(self.blocks(self.quant(x)))


def in_place(x: Tensor, y: Tensor) -> Tensor:
    x += y
    return x


FAILS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "x + y": ("add", lambda x, y: x + y),
    "x + 1.0": ("add", lambda x, y: x + 1.0),
    "1.0 - x": ("__rsub__", lambda x, y: 1.0 - x),
    "x * 2.0": ("mul", lambda x, y: x * 2.0),
    "x * y": ("mul", lambda x, y: x * y),
    "x += y": ("add_|__iadd__", in_place),
    "torch.add": ("add", lambda x, y: torch.add(x, y)),
    "x @ y": ("matmul", lambda x, y: x @ y.transpose(0, 1)),
    "torch.matmul": ("matmul", lambda x, y: torch.matmul(x, y.transpose(0, 1))),
    "sum": ("sum", lambda x, y: x.sum()),
    "softplus": ("softplus", lambda x, y: F.softplus(x)),
    "softmax": ("softmax", lambda x, y: torch.softmax(x, 1)),
    "layer_norm": ("layer_norm", lambda x, y: F.layer_norm(x, (4,))),
    "exp": ("exp", lambda x, y: x.exp()),
    "cat with floats": ("cat", lambda x, y: torch.cat([x, torch.ones(8, 4)])),
}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(8, 4)


def with_qconfig(model: Any) -> Any:
    model.eval().qconfig = zeropoint.default_qconfig
    return model


@pytest.mark.parametrize(("name", "function"), FAILS.values(), ids=list(FAILS))
def test_a_function_is_named_with_its_path_and_line(name: str, function: Any, x: Tensor) -> None:
    line = inspect.getsourcelines(function)[1]
    where = rf"^({name}) does not .* in blocks\.1 \(Block\), .*test_prepare_errors\.py:({line}|{line + 1})\. Instead: "
    model = with_qconfig(Model(function))
    with pytest.raises(NotImplementedError, match=where) as error:
        zeropoint.prepare(model, example_inputs=(x,))
    assert all(way in str(error.value) for way in ("FloatFunctional", "DeQuantStub", "QuantStub", "qconfig"))
    with pytest.raises(NotImplementedError, match=where):
        zeropoint.prepare(model)(x)


def test_the_converted_model_would_indeed_fail(x: Tensor) -> None:
    model = with_qconfig(Model(lambda x, y: x + y))
    prepared = zeropoint.prepare(model)
    model.blocks[1].function = prepared.blocks[1].function = lambda x, y: x
    prepared(x)
    done = zeropoint.convert(prepared)
    done.blocks[1].function = lambda x, y: x + y
    with pytest.raises(NotImplementedError, match="quantized"):
        done(x)


def test_in_training_too(x: Tensor) -> None:
    model = Model(lambda x, y: x + y).train()
    model.qconfig = zeropoint.get_default_qat_qconfig()
    with pytest.raises(NotImplementedError, match=r"add does not .* in blocks\.1 \(Block\)"):
        zeropoint.prepare_qat(model, example_inputs=(x,))


def test_a_module_without_a_quantized_form_is_named(x: Tensor) -> None:
    model = with_qconfig(
        nn.Sequential(zeropoint.QuantStub(), nn.Sequential(nn.Linear(4, 4), nn.Softplus()), zeropoint.DeQuantStub())
    )
    with pytest.raises(NotImplementedError, match=r"softplus does not .* in 1\.1 \(Softplus\), .*test_prepare_errors"):
        zeropoint.prepare(model)(x)


def test_a_float_module_in_a_quantized_region_is_named(x: Tensor) -> None:
    model = with_qconfig(Model(lambda x, y: x))
    model.blocks[0].qconfig = None
    with pytest.raises(NotImplementedError, match=r"linear does not .* in blocks\.0 \(Linear\), .*its qconfig is None"):
        zeropoint.prepare(model)(x)


def test_a_view_that_fits_floats_only_is_named() -> None:
    # quantized convolutions put the channels last in memory, as torch.ao's do
    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()
            self.conv, self.relu = nn.Conv2d(4, 4, 1), nn.ReLU()
            self.first = True

        def forward(self, x: Tensor) -> Tensor:
            x = self.quant(x)
            if self.first:
                x = x.view(-1, 4, 8, 8)
            y = self.relu(self.conv(x)).view(x.shape[0], 4, -1)  # fits both
            z = self.relu(self.conv(x)).view(x.shape[0], -1) if self.first else y
            return self.dequant(z)

    image = torch.randn(2, 4, 8, 8)
    model = with_qconfig(Viewed())
    with pytest.raises(NotImplementedError, match=r"view does not work .* in the model \(Viewed\), .*Use reshape"):
        zeropoint.prepare(model)(image)
    model.first = False
    prepared = zeropoint.prepare(model)
    prepared(image)
    assert zeropoint.convert(prepared)(image).shape == (2, 4, 64)


def test_a_missing_quant_stub_is_named_with_every_layer_that_needs_it(x: Tensor) -> None:
    model = with_qconfig(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4))))
    with pytest.raises(ValueError, match=r"get float tensors: 0 \(Linear\)\. Put a QuantStub before"):
        zeropoint.prepare(model, example_inputs=(x,))

    model = with_qconfig(nn.Sequential(nn.Linear(4, 4), zeropoint.DeQuantStub(), nn.Sequential(nn.Linear(4, 4))))
    with pytest.raises(ValueError, match=r"get float tensors: 0 \(Linear\), 2\.0 \(Linear\)\. Put"):
        zeropoint.prepare(model, example_inputs=(x,))


def test_an_lstm_that_gets_floats_is_named(x: Tensor) -> None:
    model = with_qconfig(nn.Sequential(nn.LSTM(4, 4)))
    with pytest.raises(ValueError, match=r"0\.layers\.0\.layer_fw\.cell\.igates \(Linear\)"):
        zeropoint.prepare(model, example_inputs=(x,))


def test_a_forgotten_dequant_stub_is_a_warning(x: Tensor) -> None:
    # such a model works; its results are quantized tensors
    model = with_qconfig(nn.Sequential(zeropoint.QuantStub(), nn.Linear(4, 4)))
    with pytest.warns(UserWarning, match="will return quantized tensors; .* DeQuantStub at the end"):
        zeropoint.prepare(model, example_inputs=(x,))


def test_joining_tensors_of_different_ranges_is_a_warning_once_for_each_place(x: Tensor) -> None:
    model = with_qconfig(Model(lambda x, y: torch.cat([x, y])))
    prepared = zeropoint.prepare(model)
    with pytest.warns(UserWarning, match=r"cat uses .* in blocks\.1 \(Block\), .*FloatFunctional\(\)\.cat"):
        prepared(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared(x)
    assert zeropoint.convert(prepared)(x).shape == (16, 4)


def test_no_qconfig_at_all_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="no module has a qconfig"):
        zeropoint.prepare(nn.Sequential(nn.Linear(4, 4)))
