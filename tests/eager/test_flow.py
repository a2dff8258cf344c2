"""What a model may do between its quantized layers: nothing is said, and the converted model works."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zeropoint
from zeropoint.nn import quantized as nnq
from zeropoint.nn.quantized import FloatFunctional
from zeropoint.nn.simulated_tensor import SimulatedTensor, has_standing, plain

CONV = nn.Conv2d(4, 4, 3, padding=1)


class Between(nn.Module):
    """A function between two quantized convolutions."""

    def __init__(self, function: Callable[..., Tensor], last: nn.Module | None = None) -> None:
        super().__init__()
        self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()
        self.first, self.second = copy.deepcopy(CONV), copy.deepcopy(CONV)
        self.function = function
        self.functional = FloatFunctional()
        self.last = nn.Identity() if last is None else last

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(self.quant(x))
        return self.dequant(self.last(self.function(y, self.second(y))))


# What works on quantized tensors as it does on floats.
WORKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda x, y: x.mean((2, 3)),
    "torch.mean": lambda x, y: torch.mean(x, dim=(2, 3), keepdim=True),
    "flatten": lambda x, y: torch.flatten(x, 1),
    "view": lambda x, y: x.view(x.shape[0], 4, -1),
    "reshape": lambda x, y: x.reshape(-1, 4),
    "permute": lambda x, y: x.permute(0, 2, 3, 1),
    "transpose": lambda x, y: x.transpose(1, 2),
    "chunk": lambda x, y: x.chunk(2, 1)[1],
    "split": lambda x, y: x.split(1, 1)[2],
    "unbind": lambda x, y: x.unbind(1)[0],
    "slice": lambda x, y: x[:, :, ::2, 1:],
    "index": lambda x, y: x[0],
    "interpolate": lambda x, y: F.interpolate(x, scale_factor=2, mode="nearest"),
    "bilinear": lambda x, y: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    "max_pool2d": lambda x, y: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x, y: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x, y: F.adaptive_avg_pool2d(x, 1),
    "relu": lambda x, y: F.relu(x),
    "Tensor.relu": lambda x, y: x.relu(),
    "clamp": lambda x, y: x.clamp(-0.2, 0.2),
    "hardtanh": lambda x, y: F.hardtanh(x, -0.2, 0.2),
    "dropout": lambda x, y: F.dropout(x, 0.5, training=False),
    "contiguous": lambda x, y: x.transpose(1, 2).contiguous(),
    "unsqueeze": lambda x, y: x.unsqueeze(1).squeeze(1),
    "pixel_shuffle": lambda x, y: F.pixel_shuffle(x, 2),
    "max": lambda x, y: x.max(1).values,
    "flip": lambda x, y: x.flip(1),
    "sigmoid": lambda x, y: torch.sigmoid(x),
    "tanh": lambda x, y: x.tanh(),
    "leaky_relu": lambda x, y: F.leaky_relu(x, 0.1),
    "leaky_relu in place": lambda x, y: F.leaky_relu(x, 0.1, inplace=True),
    "elu in place": lambda x, y: F.elu(x, inplace=True),
    "clamp_, then what it wrote": lambda x, y: (x.clamp_(-0.21, 0.23), x)[1],
    "clip": lambda x, y: x.clip(-0.21),
    "relu6": lambda x, y: F.relu6(x),
    "threshold": lambda x, y: F.threshold(x, 0.1, 0.1),
    "topk": lambda x, y: x.topk(2, 1).values,
    "pad": lambda x, y: F.pad(x, (1, 1)),
    "stack of one": lambda x, y: torch.stack([x, x]),
    "cat of one": lambda x, y: torch.cat([x, x.relu()], 1),
    "shapes and devices": lambda x, y: x.reshape(x.size(0), x.shape[1], x.numel() // x.shape[0] // x.shape[1]),
}
MODULES: dict[str, nn.Module] = {
    "Identity": nn.Identity(),
    "Dropout": nn.Dropout(),
    "ReLU": nn.ReLU(),
    "MaxPool2d": nn.MaxPool2d(2),
    "AvgPool2d": nn.AvgPool2d(2),
    "AdaptiveAvgPool2d": nn.AdaptiveAvgPool2d(1),
    "Flatten": nn.Flatten(),
    "Upsample": nn.Upsample(scale_factor=2),
    "Sigmoid": nn.Sigmoid(),
    "Tanh": nn.Tanh(),
    "Hardtanh": nn.Hardtanh(),
    "ReLU6": nn.ReLU6(),
    "nested": nn.Sequential(nn.Sequential(nn.ReLU(), nn.Sequential(nn.Conv2d(4, 4, 1))), nn.Identity()),
}


def quiet(model: nn.Module, x: Tensor) -> None:
    """Prepare with example inputs and convert without a word, and the results are near.

    Near: two roundings of what the convolutions give, and of their inputs and weights, are within two steps of the
    coarsest of them, and half a step on average; one that is shifted by a step is not.
    """
    model.eval().qconfig = zeropoint.default_qconfig
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared = zeropoint.prepare(model, example_inputs=(x,))
        prepared(x)
        done = zeropoint.convert(prepared)
        errors = (done(x) - model(x)).abs()
    step = max(m.scale for m in done.modules() if isinstance(m, (nnq.Conv2d, nnq.QFunctional)))
    assert errors.max() <= 2 * step
    assert errors.mean() <= step / 2


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 4, 8, 8)


@pytest.mark.filterwarnings("ignore:calculate_qparams was called before")
@pytest.mark.parametrize("function", WORKS.values(), ids=list(WORKS))
def test_functions_that_quantized_tensors_have(function: Any, x: Tensor) -> None:
    model = Between(function)
    model.functional = None
    quiet(model, x)


@pytest.mark.parametrize("module", MODULES.values(), ids=list(MODULES))
def test_modules_that_take_quantized_tensors(module: nn.Module, x: Tensor) -> None:
    model = Between(lambda x, y: y, copy.deepcopy(module))
    model.functional = None
    quiet(model, x)


@pytest.mark.parametrize("name", ["add", "mul", "add_relu"])
def test_functionals(name: str, x: Tensor) -> None:
    class Functional(Between):
        def forward(self, x: Tensor) -> Tensor:
            y = self.first(self.quant(x))
            return self.dequant(getattr(self.functional, name)(y, self.second(y)))

    quiet(Functional(lambda a, b: a), x)


def test_module_lists_and_shared_modules(x: Tensor) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()
            conv = copy.deepcopy(CONV)
            self.layers = nn.ModuleList([conv, nn.ReLU(), copy.deepcopy(CONV)])
            self.again = conv

        def forward(self, x: Tensor) -> Tensor:
            x = self.quant(x)
            for layer in self.layers:
                x = layer(x)
            return self.dequant(self.again(x))

    quiet(Shared(), x)


@pytest.mark.filterwarnings("ignore:calculate_qparams was called before")
@pytest.mark.parametrize("kind", WORKS)
def test_training_has_the_values_that_the_integers_will_have(kind: str, x: Tensor) -> None:
    model = Between(WORKS[kind]).train()
    model.functional = None
    model.qconfig = zeropoint.get_default_qat_qconfig()
    prepared = zeropoint.prepare_qat(model)
    prepared(x).square().mean().backward()
    assert prepared.first.weight.grad.abs().max() > 0
    prepared.eval().apply(zeropoint.disable_observer)
    torch.testing.assert_close(prepared(x), zeropoint.convert(prepared)(x), atol=1e-5, rtol=0)


MODULES_IN_TRAINING: dict[str, nn.Module] = {
    **MODULES,
    "PReLU": nn.PReLU(),
    "PReLU of channels": nn.PReLU(4),
    "Softshrink": nn.Softshrink(),
    "Dropout2d": nn.Dropout2d(),
    "LeakyReLU": nn.LeakyReLU(inplace=True),
}


@pytest.mark.parametrize("module", MODULES_IN_TRAINING.values(), ids=list(MODULES_IN_TRAINING))
def test_modules_are_deployed_as_trained(module: nn.Module, x: Tensor) -> None:
    torch.manual_seed(0)
    model = Between(lambda x, y: y, copy.deepcopy(module)).train()
    model.functional = None
    model.qconfig = zeropoint.get_default_qat_qconfig("native")
    prepared = zeropoint.prepare_qat(model)
    prepared(x).square().mean().backward()
    assert prepared.first.weight.grad.abs().max() > 0
    prepared.eval().apply(zeropoint.disable_observer)
    torch.testing.assert_close(prepared(x), zeropoint.convert(prepared)(x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("layer", [nn.ConvTranspose2d(4, 6, 3), nn.ConvTranspose2d(4, 4, 2, groups=2)], ids=str)
def test_a_transposed_convolution_has_a_scale_for_each_output(layer: nn.Module, x: Tensor) -> None:
    """Its weight trains in float, as in torch.ao: results are a step away."""
    model = Between(lambda x, y: y, copy.deepcopy(layer)).train()
    model.functional = None
    model.qconfig = zeropoint.get_default_qat_qconfig("native")
    prepared = zeropoint.prepare_qat(model)
    prepared(x)
    prepared.eval().apply(zeropoint.disable_observer)
    converted = zeropoint.convert(prepared)
    assert converted.last.weight().q_per_channel_axis() == 1
    torch.testing.assert_close(prepared(x), converted(x), atol=1.01 * converted.last.scale, rtol=0)


@pytest.mark.parametrize("function", [nn.Softsign(), nn.Softshrink(), nn.Hardshrink()], ids=str)
def test_functions_that_torch_ao_leaves_alone_take_floats_too(function: nn.Module) -> None:
    """Old models have them between a DeQuantStub and a QuantStub."""
    torch.manual_seed(0)
    stubs = [zeropoint.QuantStub(), zeropoint.DeQuantStub(), zeropoint.QuantStub(), zeropoint.DeQuantStub()]
    model = nn.Sequential(stubs[0], nn.Linear(4, 4), stubs[1], function, stubs[2], nn.Linear(4, 4), stubs[3]).eval()
    model.qconfig = zeropoint.get_default_qconfig("native")
    prepared, x = zeropoint.prepare(model), torch.randn(16, 4)
    prepared(x)
    converted = zeropoint.convert(prepared)
    floats = converted[2](converted[1](converted[0](x)))
    assert torch.equal(converted[3](floats), function(floats))
    assert torch.equal(torch.jit.script(converted)(x), converted(x))


def test_nobody_outside_sees_the_stand_ins(x: Tensor) -> None:
    model = nn.Sequential(zeropoint.QuantStub(), copy.deepcopy(CONV)).eval()
    model.qconfig = zeropoint.default_qconfig
    prepared = zeropoint.prepare(model)
    seen = []
    prepared[1].register_forward_hook(lambda module, args, output: seen.append(type(output)))
    assert type(prepared(x)) is Tensor
    assert seen == [SimulatedTensor]
    assert has_standing([{"a": torch.ones(1).as_subclass(SimulatedTensor)}])
    assert type(plain({"a": [torch.ones(1).as_subclass(SimulatedTensor)]})["a"][0]) is Tensor
