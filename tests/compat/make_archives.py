"""Writes the archives of the old stack that tests/compat/archives keeps, with PyTorch's own implementation.

    python tests/compat/make_archives.py [directory]

Each model is saved in up to four ways: as a module, as a state_dict, as scripted and as traced TorchScript. Inputs and
expected outputs are in ``expected.safetensors``. Outputs are those of zeropoint's reference kernels (int64 sums, one
element at a time), so they do not depend on the CPU; what PyTorch gave here must be within a step of them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.ao.nn.quantized as nnq
import torch.ao.quantization as tq
from safetensors.torch import save_file
from torch import Tensor, nn

HERE = Path(__file__).parent / "archives"


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


IMAGE, SIGNAL, VOLUME, ROW, STEPS = rand(2, 4, 6, 6), rand(2, 4, 8), rand(1, 4, 4, 4, 4), rand(3, 8), rand(4, 2, 8)
INDICES, OFFSETS = torch.tensor([1, 5, 2, 7, 7]), torch.tensor([0, 2])


def qconfig(weight: Any = tq.default_per_channel_weight_observer) -> Any:
    """Seven bits: FBGEMM saturates with eight on a CPU without VNNI."""
    return tq.QConfig(tq.MinMaxObserver.with_args(reduce_range=True), weight)


PER_TENSOR = qconfig(tq.default_weight_observer)


def static(*layers: nn.Module, fuse: Any = None, config: Any = None) -> Callable[[Tensor], nn.Module]:
    def make(x: Tensor) -> nn.Module:
        model: Any = nn.Sequential(tq.QuantStub(), *layers, tq.DeQuantStub()).eval()
        if fuse:
            model = tq.fuse_modules(model, fuse)
        model.qconfig = config or qconfig()
        prepared = tq.prepare(model)
        prepared(x)
        return tq.convert(prepared)

    return make


def trained(*layers: nn.Module, fuse: Any = None) -> Callable[[Tensor], nn.Module]:
    def make(x: Tensor) -> nn.Module:
        model: Any = nn.Sequential(tq.QuantStub(), *layers, tq.DeQuantStub()).train()
        if fuse:
            model = tq.fuse_modules_qat(model, fuse)
        model.qconfig = tq.get_default_qat_qconfig("fbgemm")
        prepared = tq.prepare_qat(model)
        prepared(x).sum().backward()
        return tq.convert(prepared.eval())

    return make


def dynamic(layer: nn.Module, dtype: Any = torch.qint8) -> Callable[..., nn.Module]:
    return lambda *x: tq.quantize_dynamic(nn.Sequential(layer).eval(), {type(layer)}, dtype=dtype)


def table(layer: nn.Module, config: Any) -> Callable[..., nn.Module]:
    def make(*x: Tensor) -> nn.Module:
        layer.qconfig = config
        return getattr(nnq, type(layer).__name__).from_float(layer.eval())

    return make


def captured(*layers: nn.Module, mode: str = "static") -> Callable[[Tensor], nn.Module]:
    """FX graph mode."""

    def make(x: Tensor) -> nn.Module:
        from torch.ao.quantization.quantize_fx import convert_fx, convert_to_reference_fx, prepare_fx

        config = tq.default_dynamic_qconfig if mode == "dynamic" else qconfig()
        prepared = prepare_fx(nn.Sequential(*layers).eval(), tq.QConfigMapping().set_global(config), (x,))
        prepared(x)
        return convert_to_reference_fx(prepared) if mode == "reference" else convert_fx(prepared)

    return make


def script_mode(*layers: nn.Module) -> Callable[[Tensor], Any]:
    def make(x: Tensor) -> Any:
        scripted = torch.jit.script(nn.Sequential(*layers).eval())
        return tq.quantize_jit(scripted, {"": qconfig()}, lambda m, batch: m(batch), [x])

    return make


def conv(d: int, **options: Any) -> Any:
    return getattr(nn, f"Conv{d}d")(4, 4, 3, padding=1, **options)


BN = nn.BatchNorm2d
# name -> (how it is made, inputs, what is saved: module, state, script, trace)
MODELS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "linear": (static(nn.Linear(8, 5)), (ROW,), "module state script trace"),
    "linear_per_tensor": (static(nn.Linear(8, 5), config=PER_TENSOR), (ROW,), "module state"),
    "linear_relu": (static(nn.Linear(8, 5), nn.ReLU(), fuse=[["1", "2"]]), (ROW,), "module script"),
    "linear_without_bias": (static(nn.Linear(8, 5, bias=False)), (ROW,), "module script"),
    "conv1d": (static(conv(1)), (SIGNAL,), "module state script"),
    "conv2d": (static(conv(2)), (IMAGE,), "module state script trace"),
    "conv3d": (static(conv(3)), (VOLUME,), "module script"),
    "conv_grouped": (static(conv(2, groups=2)), (IMAGE,), "module script"),
    "conv_depthwise": (static(conv(2, groups=4)), (IMAGE,), "module script"),
    "conv_strided": (static(conv(2, stride=2, bias=False)), (IMAGE,), "module script"),
    "conv_bn_relu": (static(conv(2), BN(4), nn.ReLU(), fuse=[["1", "2", "3"]]), (IMAGE,), "module state script"),
    "conv_transpose1d": (static(nn.ConvTranspose1d(4, 4, 2), config=PER_TENSOR), (SIGNAL,), "module"),
    "conv_transpose2d": (static(nn.ConvTranspose2d(4, 4, 2, 2), config=PER_TENSOR), (IMAGE,), "module script"),
    "norms": (static(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.LayerNorm(6)), (IMAGE,), "module script"),
    # PyTorch cannot run the script of this one: its scale is no number there.
    "batch_norm": (static(BN(4)), (IMAGE,), "module"),
    "activations": (static(nn.Hardswish(), nn.ELU(), nn.LeakyReLU(), nn.Sigmoid()), (IMAGE,), "module script"),
    "pools": (static(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.ReLU6()), (IMAGE,), "module script"),
    "network": (
        static(conv(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5), fuse=[["1", "2"]]),
        (IMAGE,), "module state script trace",
    ),
    "qat_linear": (trained(nn.Linear(8, 5)), (ROW,), "module state"),
    "qat_conv_bn_relu": (trained(conv(2), BN(4), nn.ReLU(), fuse=[["1", "2", "3"]]), (IMAGE,), "module state script"),
    "dynamic_linear": (dynamic(nn.Linear(8, 5)), (ROW,), "module state script"),
    "dynamic_linear_float16": (dynamic(nn.Linear(8, 5), torch.float16), (ROW,), "module state script"),
    "dynamic_lstm": (dynamic(nn.LSTM(8, 6, 2, bidirectional=True)), (STEPS,), "module state script"),
    "dynamic_lstm_float16": (dynamic(nn.LSTM(8, 6), torch.float16), (STEPS,), "module script"),
    "dynamic_gru": (dynamic(nn.GRU(8, 6)), (STEPS,), "module state script"),
    "lstm_cell": (dynamic(nn.LSTMCell(8, 6)), (ROW,), "module script"),
    "gru_cell": (dynamic(nn.GRUCell(8, 6)), (ROW,), "module script"),
    "rnn_cell": (dynamic(nn.RNNCell(8, 6)), (ROW,), "module"),
    "embedding": (table(nn.Embedding(10, 8), tq.float_qparams_weight_only_qconfig), (INDICES,), "module script"),
    "embedding_bag": (
        table(nn.EmbeddingBag(10, 8, mode="sum"), tq.float_qparams_weight_only_qconfig), (INDICES, OFFSETS),
        "module script",
    ),
    "embedding_bag_4bit": (
        table(nn.EmbeddingBag(10, 8, mode="sum"), tq.float_qparams_weight_only_qconfig_4bit), (INDICES, OFFSETS),
        "module state script",
    ),
    "fx": (captured(conv(2), BN(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)), (IMAGE,), "module state script"),
    "fx_dynamic": (captured(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5), mode="dynamic"), (ROW,), "module script"),
    "fx_reference": (captured(conv(2), nn.ReLU(), mode="reference"), (IMAGE,), "module"),
    "script_mode": (script_mode(conv(2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)), (IMAGE,), "script"),
}  # fmt: skip


def first(result: Any) -> Tensor:
    while isinstance(result, (tuple, list)):
        result = result[0]
    return result


def exact(directory: Path, name: str, inputs: tuple[Tensor, ...], ways: str) -> Tensor:
    """The output by reference kernels."""
    import zeropoint
    import zeropoint.compat

    way = "" if "module" in ways else ".script"
    with zeropoint.use_isa("reference"), torch.no_grad():
        return first(zeropoint.compat.load(directory / f"{name}{way}.pt")(*inputs)).detach()


def step_of(result: Tensor) -> float:
    """The step of a result that was quantized: the least distance between two of its values."""
    distances = result.flatten().unique().diff()
    return float(distances.min()) if len(distances) else 0.0


def write(directory: Path) -> None:
    warnings.simplefilter("ignore")
    directory.mkdir(exist_ok=True)
    torch.backends.quantized.engine = "fbgemm"
    tensors: dict[str, Tensor] = {}
    for name, (make, inputs, ways) in MODELS.items():
        torch.manual_seed(0)
        model = make(*inputs)
        with torch.no_grad():
            theirs = first(model(*inputs))
        if "module" in ways:
            torch.save(model, directory / f"{name}.pt")
        if "state" in ways:
            torch.save(model.state_dict(), directory / f"{name}.state.pt")
        if "script" in ways:
            torch.jit.save(model if name == "script_mode" else torch.jit.script(model), directory / f"{name}.script.pt")
        if "trace" in ways:
            torch.jit.save(torch.jit.trace(model, inputs), directory / f"{name}.trace.pt")
        expected = exact(directory, name, inputs, ways)
        apart = float((expected - theirs).abs().max())
        assert apart <= step_of(theirs) * 1.001 + 1e-6, (name, apart, step_of(theirs))
        tensors |= {f"{name}.input.{i}": x.clone() for i, x in enumerate(inputs)}
        tensors[f"{name}.output"] = expected.contiguous()
    save_file(tensors, directory / "expected.safetensors")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
