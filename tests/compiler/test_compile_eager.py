"""Models of eager mode as programs: the bytes of the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from few_layers import Layers
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import zeropoint

IMAGES, ROWS, STEPS = torch.randn(4, 3, 12, 12), torch.randn(5, 8), torch.randn(6, 2, 8)


class Residual(nn.Module):
    """A sum, a product and tensors joined, in quantized arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.sum, self.joined = zeropoint.nn.quantized.FloatFunctional(), zeropoint.nn.quantized.FloatFunctional()

    def forward(self, x: Tensor) -> Tensor:
        y = self.sum.add_relu(self.first(x), x)
        return self.second(self.joined.cat([x, y], 1))


def static(*layers: nn.Module, fuse: Any = None) -> Callable[[Tensor], nn.Module]:
    def make(x: Tensor) -> nn.Module:
        model: Any = nn.Sequential(zeropoint.QuantStub(), *layers, zeropoint.DeQuantStub()).eval()
        if fuse:
            model = zeropoint.fuse_modules(model, fuse)
        model.qconfig = zeropoint.get_default_qconfig("qnnpack")
        prepared = zeropoint.prepare(model)
        prepared(x)
        return zeropoint.convert(prepared)

    return make


def dynamic(layer: nn.Module, dtype: Any = zeropoint.qint8) -> Callable[[Tensor], nn.Module]:
    return lambda x: zeropoint.quantize_dynamic(nn.Sequential(layer).eval(), {type(layer)}, dtype=dtype)


CNN = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8), nn.Hardswish())
MODELS: dict[str, tuple[Callable[[Tensor], nn.Module], Tensor]] = {
    "cnn": (static(*CNN, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4), fuse=[["1", "2", "3"]]), IMAGES),
    "residual": (static(Residual()), IMAGES),
    "functions": (static(nn.Linear(8, 8), nn.ReLU6(), nn.Linear(8, 8), nn.ELU(), nn.Sigmoid(), nn.Tanh()), ROWS),
    "norms": (static(nn.LayerNorm(8), nn.Linear(8, 8), nn.LeakyReLU()), ROWS),
    "dynamic linear": (dynamic(nn.Linear(8, 8)), ROWS),
    "dynamic float16": (dynamic(nn.Linear(8, 8), torch.float16), ROWS),
    "dynamic lstm": (dynamic(nn.LSTM(8, 6, 2, bidirectional=True)), STEPS),
    "dynamic gru": (dynamic(nn.GRU(8, 6)), STEPS),
}


def made(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, x = MODELS[name]
    return make(x), x


@pytest.mark.parametrize("name", MODELS)
def test_a_program_has_the_bytes_of_the_eager_model(name: str, tmp_path: Path) -> None:
    model, x = made(name)
    program = zeropoint.compile(model, (x,))
    program.save(tmp_path / "model.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "model.zpt")
    with torch.no_grad():
        expected = tree_leaves(model(x))
    for result in (program(x), loaded(x.numpy())):
        for found, wanted in zip(tree_leaves(result), expected, strict=True):
            assert np.array_equal(np.asarray(found), wanted.numpy())


def test_the_batch_stays_free() -> None:
    model, x = made("cnn")
    more = torch.randn(7, 3, 12, 12)
    assert torch.equal(zeropoint.compile(model, (x,))(more), model(more))


@pytest.mark.parametrize("value", [0.5, 1.5, 2.5, -0.5])
def test_ties_are_rounded_as_in_the_eager_model(value: float) -> None:
    model = nn.Sequential(
        zeropoint.nn.quantized.Quantize(1.0, 3, zeropoint.quint8), zeropoint.nn.quantized.DeQuantize()
    )
    x = torch.full((4,), value)
    assert torch.equal(zeropoint.compile(model, (x,))(x), model(x))


def test_a_float_model_becomes_a_float_program() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)).eval()
    x = torch.randn(2, 3, 4, 4)
    program = zeropoint.compile(model, (x,))
    with torch.no_grad():
        assert (program(x) - model(x)).abs().max() < 1e-5  # sums are made in another order
    assert torch.equal(program(x[:1]), program(x)[:1])


def test_a_model_that_was_prepared_and_not_converted_is_refused() -> None:
    model = nn.Sequential(zeropoint.QuantStub(), nn.Linear(2, 2), zeropoint.DeQuantStub()).eval()
    model.qconfig = zeropoint.get_default_qconfig()
    with pytest.raises(ValueError, match="Sequential was prepared and not converted"):
        zeropoint.compile(zeropoint.prepare(model), (torch.ones(1, 2),))


def test_a_symbolic_trace_is_a_float_model() -> None:
    class Model(Layers):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(self.layer(x)).reshape(-1)

    model, x = Model(layer=nn.Linear(4, 4)).eval(), torch.randn(2, 4)
    program = zeropoint.compile(torch.fx.symbolic_trace(model), (x,))
    with torch.no_grad():
        torch.testing.assert_close(program(x), model(x))


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes a quantized model, from to_int8.*quantize_dynamic, got builtin"):
        zeropoint.compile(print, (torch.ones(1, 2),))


def test_a_model_that_gives_quantized_tensors_is_refused() -> None:
    model = nn.Sequential(zeropoint.nn.quantized.Quantize(1.0, 3, zeropoint.quint8))
    with pytest.raises(NotImplementedError, match="quantize and dequantize inside it"):
        zeropoint.compile(model, (torch.ones(2),))
