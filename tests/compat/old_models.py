"""Models of the old stack, for files: run as a program it writes them with PyTorch's own implementation.

    python old_models.py directory

Annotations are real objects here: PyTorch cannot save graphs of functions whose annotations are strings.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.ao.nn.quantized as nnq
import torch.ao.quantization as tq
from torch import Tensor, nn

IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
SEQUENCE = torch.rand(5, 2, 6, generator=torch.Generator().manual_seed(1))
SIGNAL = torch.randn(2, 2, 8, generator=torch.Generator().manual_seed(2)) * 4


def seven_bits(weight: Any = None) -> Any:
    """FBGEMM saturates with 8 bits on a CPU without VNNI."""
    activation = tq.HistogramObserver.with_args(reduce_range=True)
    return tq.QConfig(activation, weight or tq.default_per_channel_weight_observer)


def calibrated(model: nn.Module, *inputs: Tensor) -> Any:
    model.eval()
    if not hasattr(model, "qconfig"):
        model.qconfig = seven_bits()
    prepared = tq.prepare(model)
    prepared(*inputs)
    return prepared


class Network(nn.Module):
    """Fused convolutions, a sum, a transposed convolution, pools, linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.conv1, self.bn1, self.relu1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8)
        self.sum = nnq.FloatFunctional()
        self.pool, self.average = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2)
        self.up: Any = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.fc1, self.relu2, self.act, self.fc2 = nn.Linear(16, 16), nn.ReLU(), nn.Hardswish(), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.bn1(self.conv1(self.quant(x))))
        x = self.sum.add_relu(x, self.bn2(self.conv2(x)))
        x = torch.flatten(self.average(self.up(self.pool(x))), 1)
        return self.dequant(self.fc2(self.act(self.relu2(self.fc1(x)))))

    def fused(self, fuse: Callable[..., Any]) -> Any:
        return fuse(self, [["conv1", "bn1", "relu1"], ["conv2", "bn2"], ["fc1", "relu2"]])


def observed() -> Any:
    network = Network().eval().fused(tq.fuse_modules)
    network.up.qconfig = seven_bits(tq.default_weight_observer)
    return calibrated(network, IMAGES)


def trained() -> Any:
    network = Network().train().fused(tq.fuse_modules_qat)
    network.up = nn.Sequential(tq.DeQuantStub(), network.up, tq.QuantStub())
    network.qconfig = tq.get_default_qat_qconfig("fbgemm")
    network.up[1].qconfig = None
    prepared = tq.prepare_qat(network)
    prepared(IMAGES).sum().backward()
    prepared.eval().apply(tq.disable_observer)
    return prepared


def without_qconfigs(model: nn.Module) -> nn.Module:
    """Those of a prepared model hold functions that cannot be pickled."""
    for module in model.modules():
        if hasattr(module, "qconfig"):
            del module.qconfig
    return model


class Functions(nn.Module):
    """A 1d and a 3d convolution, norms and activations."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.quant3, self.dequant = tq.QuantStub(), tq.QuantStub(), tq.DeQuantStub()
        self.conv, self.relu, self.deep = nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Conv3d(4, 2, 1)
        self.functions = nn.Sequential(
            nn.ELU(), nn.InstanceNorm1d(4), nn.GroupNorm(2, 4), nn.LeakyReLU(), nn.Sigmoid(), nn.LayerNorm(6)
        )
        self.linear = nn.Linear(6, 2, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.functions(self.relu(self.conv(self.quant(x))))
        deep = self.deep(self.quant3(self.dequant(x)[:, :, :, None, None]))
        return self.dequant(self.linear(x)), self.dequant(deep)


def functions() -> Any:
    return calibrated(tq.fuse_modules(Functions().eval(), ["conv", "relu"]), SIGNAL)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.rnn: Any = kind(6, 8, num_layers=2, bidirectional=True)
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x)[0])


class Static(nn.Module):
    """An LSTM on quantized tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.rnn, self.dequant = tq.QuantStub(), nn.LSTM(6, 4), tq.DeQuantStub()

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(self.rnn(self.quant(x))[0])


class Tables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 8, mode="sum", include_last_offset=True)
        self.bag.qconfig = tq.float_qparams_weight_only_qconfig_4bit
        self.table = nn.Embedding(10, 8)
        self.table.qconfig = tq.float_qparams_weight_only_qconfig

    def forward(self, indices: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        return self.bag(indices, offsets), self.table(indices)


class Plain(nn.Module):
    """For graphs: modules and functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(128, 5)
        self.kernel = nn.Parameter(torch.rand(4, 8, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.bn(self.conv(x)))
        x = nn.functional.max_pool2d(torch.cat([x, x + x], 1)[:, 4:12], 2)
        row = nn.functional.conv1d(x.flatten(2), self.kernel, None, [2], [1], [1], 1)
        return self.fc(torch.flatten(x, 1)), row


def graph(reference: bool) -> Any:
    from torch.ao.quantization.quantize_fx import convert_fx, convert_to_reference_fx, prepare_fx

    prepared = prepare_fx(Plain().eval(), tq.QConfigMapping().set_global(seven_bits()), (IMAGES,))
    prepared(IMAGES)
    return convert_to_reference_fx(prepared) if reference else convert_fx(prepared)


def dynamic(kind: type[nn.Module], dtype: Any) -> Any:
    return tq.quantize_dynamic(Recurrent(kind).eval(), {nn.LSTM, nn.GRU, nn.Linear}, dtype=dtype)


def cells() -> Any:
    return tq.quantize_dynamic(nn.Sequential(nn.GRUCell(6, 6), nn.RNNCell(6, 6)).eval(), {nn.GRUCell, nn.RNNCell})


BAGS = (torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2, 4]))

# A model, and what to run it with.
MODELS: dict[str, tuple[Callable[[], Any], tuple[Tensor, ...]]] = {
    "static": (lambda: tq.convert(observed()), (IMAGES,)),
    "observed": (lambda: without_qconfigs(observed()), (IMAGES,)),
    "trained": (lambda: without_qconfigs(trained()), (IMAGES,)),
    "trained_and_converted": (lambda: tq.convert(trained()), (IMAGES,)),
    "functions": (lambda: tq.convert(functions()), (SIGNAL,)),
    "static_lstm": (lambda: tq.convert(calibrated(Static(), SEQUENCE)), (SEQUENCE,)),
    "tables": (lambda: tq.convert(tq.prepare(Tables().eval())), BAGS),
    "dynamic_lstm": (lambda: dynamic(nn.LSTM, torch.qint8), (SEQUENCE,)),
    "dynamic_gru": (lambda: dynamic(nn.GRU, torch.qint8), (SEQUENCE,)),
    "dynamic_float16": (lambda: dynamic(nn.LSTM, torch.float16), (SEQUENCE,)),
    "cells": (cells, (SEQUENCE[0],)),
    "graph": (lambda: graph(False), (IMAGES,)),
    "reference_graph": (lambda: graph(True), (IMAGES,)),
}


# Those whose TorchScript file zeropoint can read.
SCRIPTED = (
    "static", "functions", "static_lstm", "cells", "graph", "script_mode", "dynamic_lstm", "dynamic_gru",
    "dynamic_float16",
)  # fmt: skip


def script_mode() -> Any:
    """torch.ao's TorchScript mode."""
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
    return tq.quantize_jit(torch.jit.script(layers), {"": seven_bits()}, lambda model, x: model(x), [IMAGES])


def main(directory: str) -> None:
    warnings.simplefilter("ignore")
    import old_models  # not __main__: classes are found again by the name of their module

    for name, (make, inputs) in old_models.MODELS.items():
        torch.manual_seed(0)
        model = make()
        with torch.no_grad():
            result = model(*inputs)
        torch.save(model, f"{directory}/{name}.pt")
        torch.save({"state": model.state_dict(), "result": result}, f"{directory}/{name}.state.pt")
        if name in SCRIPTED:
            torch.jit.save(torch.jit.script(model), f"{directory}/{name}.script.pt")
    model = script_mode()
    torch.jit.save(model, f"{directory}/script_mode.script.pt")
    torch.save({"result": model(IMAGES)}, f"{directory}/script_mode.state.pt")


if __name__ == "__main__":
    main(sys.argv[1])
