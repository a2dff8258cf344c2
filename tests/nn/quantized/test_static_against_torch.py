"""Static modules against torch.ao's: made of one float module with one qconfig, given the same integers."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.ao.nn.intrinsic as their_intrinsic
import torch.ao.nn.intrinsic.quantized as their_fused
import torch.ao.nn.quantized as theirs
import torch.ao.quantization as ao
from static_cases import numbers
from torch import nn

import zeropoint
from zeropoint.nn import intrinsic as our_intrinsic, quantized as ours
from zeropoint.nn.intrinsic import quantized as our_fused

# Float32 sums in another order: torch's tails round differently from its vector loops.
SHARE_OF_EQUAL_INTEGERS = 0.999
# torch's PReLU multiplies positive values too, by the nearest to 1 that slopes can be.
SHARE_OF_EQUAL_PRELU = 0.98


def with_numbers(module: Any) -> Any:
    """Parameters and statistics that are not 0 and 1."""
    for i, t in enumerate([*module.parameters(), *module.buffers()]):
        if t.is_floating_point():
            t.data.copy_(numbers(*t.shape, seed=i + 7).abs() + 0.1)
    return module.eval()


IMAGE, VOLUME, LINE = (4, 8, 6, 8), (2, 8, 4, 4, 8), (4, 8, 64)
FLOATS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "BatchNorm2d": (lambda: nn.BatchNorm2d(8), IMAGE),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(8), VOLUME),
    "LayerNorm": (lambda: nn.LayerNorm([6, 8]), IMAGE),
    "LayerNorm, not affine": (lambda: nn.LayerNorm(64, elementwise_affine=False), LINE),
    "GroupNorm": (lambda: nn.GroupNorm(2, 8), IMAGE),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(8, affine=True), LINE),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(8), IMAGE),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(8, affine=True), VOLUME),
    "ELU": (lambda: nn.ELU(1.5), IMAGE),
    "LeakyReLU": (lambda: nn.LeakyReLU(0.2), IMAGE),
    "Hardswish": (nn.Hardswish, IMAGE),
    "PReLU": (lambda: nn.PReLU(8), LINE),
    "ReLU6": (nn.ReLU6, IMAGE),
    "Dropout": (nn.Dropout, IMAGE),
    "Sigmoid": (nn.Sigmoid, IMAGE),
    "Tanh": (nn.Tanh, IMAGE),
    "Hardsigmoid": (nn.Hardsigmoid, IMAGE),
    "ReLU": (nn.ReLU, IMAGE),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), IMAGE),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), IMAGE),
}


def share_of(name: str) -> float:
    return SHARE_OF_EQUAL_PRELU if name == "PReLU" else SHARE_OF_EQUAL_INTEGERS


def converted(module: nn.Module, package: Any, qconfig: Any, x: torch.Tensor) -> nn.Module:
    model = package.QuantWrapper(copy.deepcopy(module)).eval()
    model.qconfig = qconfig
    model = package.prepare(model)
    model(x)
    model(x * 0.5)
    return package.convert(model)


def assert_close_integers(a: Any, b: torch.Tensor, share: float = SHARE_OF_EQUAL_INTEGERS) -> None:
    assert (a.q_scale(), a.q_zero_point()) == (b.q_scale(), b.q_zero_point())
    difference = (a.int_repr().int() - b.int_repr().int()).abs()
    assert difference.max() <= 1
    assert (difference == 0).float().mean() >= share


def pair(name: str, qconfig: str = "default_qconfig") -> tuple[nn.Module, nn.Module, torch.Tensor]:
    make, shape = FLOATS[name]
    module, x = with_numbers(make()), numbers(*shape) * 3
    mine = converted(module, zeropoint, getattr(zeropoint, qconfig), x)
    other = converted(module, ao, getattr(ao, qconfig), x)
    return mine, other, x


@pytest.mark.parametrize("name", FLOATS)
def test_converted_model_has_their_types_parameters_and_results(name: str) -> None:
    mine, other, x = pair(name)
    assert type(mine.module).__name__ == type(other.module).__name__
    assert mine.module._get_name() == other.module._get_name()
    assert_close_integers(mine.module(mine.quant(x)), other.module(other.quant(x)), share_of(name))


@pytest.mark.parametrize("name", [n for n in FLOATS if "not affine" not in n])
def test_state_dict_of_torch_loads_and_gives_their_results(name: str) -> None:
    mine, other, x = pair(name)
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    fresh = converted(with_numbers(FLOATS[name][0]()), zeropoint, zeropoint.default_qconfig, x * 5)
    if set(other.module.state_dict()):  # else torch keeps nothing of it, and what the module has stays
        fresh.load_state_dict(torch.load(file, weights_only=False))
        assert_close_integers(fresh.module(fresh.quant(x)), other.module(other.quant(x)))
    else:
        mine.load_state_dict(torch.load(file, weights_only=False))
        assert_close_integers(mine.module(mine.quant(x)), other.module(other.quant(x)), share_of(name))


@pytest.mark.parametrize("name", FLOATS)
def test_keys_of_torch_are_in_our_state_dict(name: str) -> None:
    mine, other, _ = pair(name)
    assert set(other.state_dict()) <= set(mine.state_dict())


# torch.ao hands the instance norm's `affine` on as its momentum.
@pytest.mark.parametrize("name", [n for n in FLOATS if "InstanceNorm" not in n])
def test_printed_form_is_theirs(name: str) -> None:
    mine, other, _ = pair(name)
    assert repr(mine.module) == repr(other.module)


def test_batch_norm_without_weights_which_torch_cannot_run_runs() -> None:
    x = numbers(*IMAGE)
    bn = with_numbers(nn.BatchNorm2d(8, affine=False))
    mine = converted(bn, zeropoint, zeropoint.default_qconfig, x)
    assert (mine(x) - bn(x)).abs().max() <= 5 * mine.module.scale


@pytest.mark.parametrize("dims", [2, 3])
def test_fused_batch_norm_equals_torchs(dims: int) -> None:
    bn = with_numbers(getattr(nn, f"BatchNorm{dims}d")(8))
    x = numbers(*(IMAGE if dims == 2 else VOLUME)) * 3
    fused = f"BNReLU{dims}d"
    mine = converted(getattr(our_intrinsic, fused)(bn, nn.ReLU()), zeropoint, zeropoint.default_qconfig, x)
    other = converted(getattr(their_intrinsic, fused)(bn, nn.ReLU()), ao, ao.default_qconfig, x)
    assert type(mine.module).__name__ == type(other.module).__name__ == fused
    assert mine.module._get_name() == other.module._get_name()
    y, z = mine.module(mine.quant(x)), other.module(other.quant(x))
    assert_close_integers(y, z)
    assert y.int_repr().min() >= y.q_zero_point()


def test_softmax_which_torch_cannot_convert_is_converted() -> None:
    x = numbers(4, 64)
    mine = converted(nn.Softmax(-1), zeropoint, zeropoint.default_qconfig, x)
    assert type(mine.module) is ours.Softmax
    step = mine.module.scale
    assert (mine(x) - x.softmax(-1)).abs().max() <= 4 * step


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
def test_softmax_equals_torchs(dim: int | None) -> None:
    x = numbers(8, 64)
    q = zeropoint.quantize_per_tensor(x, 0.05, 100, zeropoint.quint8)
    t = torch.quantize_per_tensor(x, 0.05, 100, torch.quint8)
    expected = theirs.Softmax(1 if dim is None else dim, 1 / 256, 0)(t)
    assert_close_integers(ours.Softmax(dim, 1 / 256, 0)(q), expected)


# ------------------------------------------------------------------------------------------------------------ layers

# Float layers, of either package: what is fused has a class of its own in each. Observers of activations have 7 bits in
# both qconfigs, with which torch's kernels are exact on every CPU.
LAYERS: dict[str, tuple[Callable[[Any], nn.Module], tuple[int, ...]]] = {
    "Linear": (lambda nni: nn.Linear(64, 32), (16, 64)),
    "Linear without bias": (lambda nni: nn.Linear(64, 32, bias=False), (4, 16, 64)),
    "LinearReLU": (lambda nni: nni.LinearReLU(nn.Linear(64, 32), nn.ReLU()), (16, 64)),
    "Conv1d": (lambda nni: nn.Conv1d(8, 16, 3, padding=1), LINE),
    "Conv1d, reflected": (lambda nni: nn.Conv1d(8, 16, 3, padding=1, padding_mode="reflect"), LINE),
    "Conv2d": (lambda nni: nn.Conv2d(8, 16, 3, stride=2, padding=1), IMAGE),
    "Conv2d, depthwise": (lambda nni: nn.Conv2d(8, 8, 3, groups=8, bias=False), IMAGE),
    "Conv2d, reflected": (lambda nni: nn.Conv2d(8, 16, (3, 2), padding=1, padding_mode="reflect"), IMAGE),
    "Conv3d": (lambda nni: nn.Conv3d(8, 16, 2, dilation=2), VOLUME),
    "ConvReLU1d": (lambda nni: nni.ConvReLU1d(nn.Conv1d(8, 16, 3), nn.ReLU()), LINE),
    "ConvReLU2d": (lambda nni: nni.ConvReLU2d(nn.Conv2d(8, 16, 3), nn.ReLU()), IMAGE),
    "ConvReLU3d": (lambda nni: nni.ConvReLU3d(nn.Conv3d(8, 16, 2), nn.ReLU()), VOLUME),
    "ConvTranspose1d": (lambda nni: nn.ConvTranspose1d(8, 16, 3), LINE),
    "ConvTranspose2d": (lambda nni: nn.ConvTranspose2d(8, 16, 3, stride=2, output_padding=1), IMAGE),
    "ConvTranspose3d": (lambda nni: nn.ConvTranspose3d(8, 16, 2, bias=False), VOLUME),
}
ONLY_ONEDNN: dict[str, tuple[Callable[[Any], nn.Module], tuple[int, ...]]] = {
    "LinearLeakyReLU": (lambda nni: nni.LinearLeakyReLU(nn.Linear(32, 8), nn.LeakyReLU(0.05)), (5, 32)),
    "LinearTanh": (lambda nni: nni.LinearTanh(nn.Linear(32, 8), nn.Tanh()), (5, 32)),
}


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """torch's kernels from one library, which does not round differently from layer to layer."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = getattr(request, "param", "fbgemm")
    yield
    torch.backends.quantized.engine = before


def layer_pair(cases: Any, name: str, qconfig: str) -> tuple[Any, Any, torch.Tensor]:
    make, shape = cases[name]
    x = numbers(*shape) * 3
    made = []
    for package, nni in ((zeropoint, our_intrinsic), (ao, their_intrinsic)):
        torch.manual_seed(0)
        made.append(converted(make(nni), package, getattr(package, qconfig), x))
    return made[0], made[1], x


def assert_same_layer(mine: Any, other: Any, x: torch.Tensor) -> None:
    assert type(mine.module).__name__ == type(other.module).__name__
    assert mine.module._get_name() == other.module._get_name()
    assert torch.equal(mine.module.weight().int_repr(), other.module.weight().int_repr())
    assert torch.equal(mine.module.weight().dequantize(), other.module.weight().dequantize())
    assert_close_integers(mine.module(mine.quant(x)), other.module(other.quant(x)))
    fresh = copy.deepcopy(mine)
    fresh.module.scale = 1.0
    fresh.load_state_dict(other.state_dict())
    assert torch.equal(fresh(x), mine(x))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("qconfig", ["default_qconfig", "default_per_channel_qconfig"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer_has_their_weights_and_results_and_loads_their_state(name: str, qconfig: str) -> None:
    if "Transpose" in name:  # torch.ao observes its weight along the inputs
        qconfig = "default_qconfig"
    assert_same_layer(*layer_pair(LAYERS, name, qconfig))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("engine", ["onednn"], indirect=True)
@pytest.mark.parametrize("name", ONLY_ONEDNN)
def test_layer_that_only_onednn_has_is_theirs(name: str) -> None:
    assert_same_layer(*layer_pair(ONLY_ONEDNN, name, "default_qconfig"))


@pytest.mark.parametrize("relu", [False, True])
def test_convolution_with_addition_is_theirs(relu: bool) -> None:
    name = "ConvAddReLU2d" if relu else "ConvAdd2d"
    conv, x, other = nn.Conv2d(8, 8, 3, padding=1), numbers(*IMAGE), numbers(*IMAGE, seed=1)
    made = []
    before, torch.backends.quantized.engine = torch.backends.quantized.engine, "onednn"
    try:
        for package, nni, nniq in (
            (zeropoint, our_intrinsic, our_fused), (ao, their_intrinsic, their_fused),
        ):  # fmt: skip
            parts = (copy.deepcopy(conv), torch.add, nn.ReLU()) if relu else (copy.deepcopy(conv), torch.add)
            fused = getattr(nni, name)(*parts)
            fused.qconfig = fused[0].qconfig = package.default_qconfig
            fused.activation_post_process = package.default_qconfig.activation()
            fused.activation_post_process(fused(x, other))
            module = getattr(nniq, name).from_float(fused)
            quantize = zeropoint.quantize_per_tensor if package is zeropoint else torch.quantize_per_tensor
            dtype = zeropoint.quint8 if package is zeropoint else torch.quint8
            made.append(module(quantize(x, 0.05, 60, dtype), quantize(other, 0.04, 63, dtype)))
    finally:
        torch.backends.quantized.engine = before
    assert_close_integers(*made)


@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
def test_quantize_and_dequantize_are_theirs(dtype: str) -> None:
    x = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    mine, other = (nnq.Quantize(1.0, 2, getattr(p, dtype)) for p, nnq in ((zeropoint, ours), (torch, theirs)))
    assert torch.equal(mine(x).int_repr(), other(x).int_repr())
    assert torch.equal(ours.DeQuantize()(mine(x)), theirs.DeQuantize()(other(x)))
    fresh = ours.Quantize(0.5, 0, getattr(zeropoint, dtype))
    fresh.load_state_dict(other.state_dict())
    assert torch.equal(fresh(x).int_repr(), mine(x).int_repr())


# ------------------------------------------------------------------------------------------------------- arithmetic


class Arithmetic(nn.Module):
    def __init__(self, package: Any, functional: Any) -> None:
        super().__init__()
        self.quant, self.dequant = package.QuantStub(), package.DeQuantStub()
        self.add, self.mul, self.cat, self.add_relu, self.matmul = (functional() for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.quant(x)
        y = self.mul.mul(self.add.add(x, x), x)
        y = self.add_relu.add_relu(self.add.mul_scalar(y, 0.5), self.add.add_scalar(x, 0.25))
        y = self.cat.cat([y, self.matmul.matmul(x, y)], dim=1)
        return self.dequant(y)


def test_functional_modules_become_those_of_torch() -> None:
    x = numbers(4, 64, 64)
    models = []
    for package, kind in ((zeropoint, ours.FloatFunctional), (ao, theirs.FloatFunctional)):
        model = Arithmetic(package, kind).eval()
        model.qconfig = package.default_qconfig
        model = package.prepare(model)
        model(x)
        models.append(package.convert(model))
    mine, other = models
    for name in ("add", "mul", "cat", "add_relu", "matmul"):
        a, b = getattr(mine, name), getattr(other, name)
        assert type(a) is ours.QFunctional
        assert (a.scale, a.zero_point) == (b.scale, b.zero_point)
    difference = (mine(x) - other(x)).abs()
    assert difference.max() <= 1.01 * mine.cat.scale
    fresh = copy.deepcopy(mine)
    fresh.add.scale = 1.0
    fresh.load_state_dict(other.state_dict())
    assert torch.equal(fresh(x), mine(x))


def test_a_functional_module_is_not_called() -> None:
    for module in (ours.FloatFunctional(), ours.QFunctional()):
        with pytest.raises(RuntimeError, match="use its methods"):
            module(torch.ones(1))


# -------------------------------------------------------------------------------------------------------------- tables

TABLES = [(bits, cls) for bits in (8, 4) for cls in ("Embedding", "EmbeddingBag")]


def table_pair(bits: int, cls: str) -> tuple[Any, Any, tuple[torch.Tensor, ...]]:
    module = with_numbers(nn.Embedding(10, 12) if cls == "Embedding" else nn.EmbeddingBag(10, 12, mode="sum"))
    qconfig = "float_qparams_weight_only_qconfig" + ("_4bit" if bits == 4 else "")
    made = []
    for package, nnq in ((zeropoint, ours), (ao, theirs)):
        copied = copy.deepcopy(module)
        copied.qconfig = getattr(package, qconfig)
        made.append(getattr(nnq, cls).from_float(copied))
    indices = torch.tensor([3, 0, 9, 9, 1, 4])
    return made[0], made[1], (indices,) if cls == "Embedding" else (indices, torch.tensor([0, 2, 5]))


@pytest.mark.parametrize(("bits", "cls"), TABLES)
def test_tables_equal_torchs(bits: int, cls: str) -> None:
    mine, other, inputs = table_pair(bits, cls)
    assert mine._get_name() == other._get_name()
    assert torch.equal(mine.weight().int_repr(), other.weight().int_repr().reshape(mine.weight().int_repr().shape))
    assert torch.equal(mine.weight().dequantize(), other.weight().dequantize())
    if (bits, cls) == (4, "Embedding"):  # torch.ao makes one of bytes of it, which reads past each row's values
        expected = other.weight().dequantize()[inputs[0]]
    else:
        expected = other(*inputs)
    torch.testing.assert_close(mine(*inputs), expected, rtol=1e-2 if bits == 4 else 1e-6, atol=1e-6)


@pytest.mark.parametrize(("bits", "cls"), TABLES)
def test_tables_of_torch_load(bits: int, cls: str) -> None:
    mine, other, inputs = table_pair(bits, cls)
    dtype = zeropoint.quint8 if bits == 8 else zeropoint.quint4x2
    fresh = getattr(ours, cls)(10, 12, dtype=dtype)
    fresh.load_state_dict(other.state_dict())
    assert torch.equal(fresh(*inputs), mine(*inputs))
