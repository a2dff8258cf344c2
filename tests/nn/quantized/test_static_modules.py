"""Static modules against their float twins on dequantized values, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from eight_bit_steps import steps_between
from static_cases import activation, numbers, table
from torch import nn

import zeropoint
from zeropoint.nn import qat, quantized as nnq

X_SCALE, X_ZERO_POINT, Y_SCALE, Y_ZERO_POINT = 10.0 / 256, 0, 5.0 / 256, 127


def quantize(x: torch.Tensor, scale: float, zero_point: int, dtype: Any = zeropoint.quint8) -> zeropoint.QTensor:
    return zeropoint.quantize_per_tensor(x, scale, zero_point, dtype)


def assert_is_float_twin(module: nn.Module, twin: nn.Module, x: zeropoint.QTensor) -> None:
    """The integers are those of the float module's result, quantized."""
    with torch.no_grad():
        expected = quantize(twin(x.dequantize()), Y_SCALE, Y_ZERO_POINT)
    assert torch.equal(module(x).int_repr(), expected.int_repr())


def inputs(*shape: int) -> zeropoint.QTensor:
    return quantize((numbers(*shape) - 0.5) * 10, X_SCALE, X_ZERO_POINT)


# --------------------------------------------------------------------------------------------------------- functions


def test_relu_and_relu6_of_int32() -> None:
    x = torch.arange(-10, 10, dtype=torch.float)
    q = quantize(x, 1.0, 0, zeropoint.qint32)
    assert torch.equal(nn.ReLU()(q).dequantize(), x.relu())
    assert torch.equal(nnq.ReLU6()(q).dequantize(), nn.ReLU6()(x))
    assert torch.equal(torch.jit.script(nnq.ReLU6())(q).dequantize(), nn.ReLU6()(x))


def test_relu6_in_place_changes_its_input() -> None:
    q = quantize(torch.tensor([-1.0, 8.0]), 0.5, 10)
    nnq.ReLU6(inplace=True)(q)
    assert q.dequantize().tolist() == [0.0, 6.0]


@pytest.mark.parametrize(
    ("module", "twin"),
    [
        (nnq.ELU(Y_SCALE, Y_ZERO_POINT, alpha=1.5), nn.ELU(1.5)),
        (nnq.LeakyReLU(Y_SCALE, Y_ZERO_POINT, negative_slope=0.2), nn.LeakyReLU(0.2)),
        (nnq.Sigmoid(Y_SCALE, Y_ZERO_POINT), nn.Sigmoid()),
        (nnq.Hardswish(Y_SCALE, Y_ZERO_POINT), nn.Hardswish()),
    ],
    ids=lambda m: type(m).__name__,
)
def test_function_is_its_float_twin_rounded(module: nn.Module, twin: nn.Module) -> None:
    assert_is_float_twin(module, twin, inputs(1, 4, 8))


@pytest.mark.parametrize("cls", [nnq.LeakyReLU, nnq.Hardswish, nnq.ELU])
def test_parameters_of_the_result_are_saved(cls: Any) -> None:
    other = cls(5.0 / 256, 2.0)
    other.load_state_dict(cls(10.0 / 256, 1.0).state_dict())
    assert (other.scale, other.zero_point) == (10.0 / 256, 1)


def test_sigmoid_has_the_names_of_torch() -> None:
    module = nnq.Sigmoid(1 / 256, 3)
    assert (module.output_scale, module.output_zero_point) == (module.scale, module.zero_point) == (1 / 256, 3)


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("activations", ["quint8", "qint8"])
def test_prelu_is_its_float_twin(count: int, activations: str) -> None:
    x = numbers(4, count, 4)
    twin = nn.PReLU(count)
    twin.weight.data = numbers(count, seed=1).abs() + 0.01
    observer = zeropoint.MinMaxObserver.with_args(dtype=getattr(zeropoint, activations))
    twin.qconfig = zeropoint.QConfig(activation=observer, weight=zeropoint.default_observer)
    twin.activation_post_process = twin.qconfig.activation()
    twin.activation_post_process(twin(x))
    module = nnq.PReLU.from_float(twin)
    slopes = twin.qconfig.weight()
    slopes(twin.weight)
    scale, zero_point = (float(v) for v in slopes.calculate_qparams())
    expected = quantize(twin.weight.detach(), scale, int(zero_point))
    assert torch.equal(module.weight.dequantize(), expected.dequantize())
    twin.weight.data = module.weight.dequantize()
    q = quantize(x, 0.02, 120 if activations == "quint8" else -8, getattr(zeropoint, activations))
    rounded = quantize(twin(q.dequantize()).detach(), module.scale, module.zero_point, getattr(zeropoint, activations))
    assert (module(q).int_repr().int() - rounded.int_repr().int()).abs().max() <= 1


def test_prelu_keeps_negative_slopes_that_were_observed_for_int8() -> None:
    twin = nn.PReLU(2)
    twin.weight.data = torch.tensor([-0.5, 0.25])
    twin.qconfig = zeropoint.default_qconfig
    twin.activation_post_process = twin.qconfig.activation()
    twin.activation_post_process(twin(numbers(4, 2)))
    slopes = nnq.PReLU.from_float(twin).weight
    assert (slopes.dequantize() - twin.weight).abs().max() <= slopes.q_scale() / 2


def test_softmax_without_axis_takes_the_one_of_torch() -> None:
    for shape in ((6,), (4, 6), (2, 3, 4), (2, 3, 4, 5)):
        q = activation(*shape)
        axis = 0 if len(shape) in (1, 3) else 1
        assert torch.equal(nnq.Softmax(None, 1 / 256)(q).int_repr(), nnq.Softmax(axis, 1 / 256)(q).int_repr())


def test_dropout_hands_its_input_on() -> None:
    q = activation(2, 4, 6, 8)
    assert torch.equal(nnq.Dropout(0.5).train()(q).int_repr(), q.int_repr())
    assert nnq.Dropout.from_reference(nn.Dropout(0.25), 1.0, 0).p == 0.25


def test_pool_is_that_of_floats() -> None:
    x = numbers(10, 10, 10, 3)
    q = quantize(x, 1 / 255, 128)
    pool = nnq.MaxPool2d(kernel_size=2, stride=None, padding=0, dilation=1)
    assert torch.equal(pool(q).dequantize(), pool(q.dequantize()))
    assert torch.equal(pool(q).int_repr(), nnq.functional.max_pool2d(q, 2).int_repr())


def test_channel_shuffle_moves_integers() -> None:
    q = inputs(1, 4, 4, 8)
    shuffle = nn.ChannelShuffle(2)
    assert torch.equal(shuffle(q).dequantize(), shuffle(q.dequantize()))


# ------------------------------------------------------------------------------------------------------------- norms


@pytest.mark.parametrize(("module", "twin", "shape"), [
    (nnq.BatchNorm2d, nn.BatchNorm2d, (2, 4, 6, 8)), (nnq.BatchNorm3d, nn.BatchNorm3d, (2, 4, 6, 8, 10)),
])  # fmt: skip
def test_new_batch_norm_is_a_new_float_one(module: Any, twin: Any, shape: tuple[int, ...]) -> None:
    q = quantize(numbers(*shape), 1.0, 0)
    expected = quantize(twin(4).eval()(numbers(*shape)).detach(), 1.0, 0)
    assert torch.equal(module(4)(q).int_repr(), expected.int_repr())


def test_layer_norm_is_its_float_twin_rounded() -> None:
    twin = nn.LayerNorm([4, 8])
    twin.weight.data, twin.bias.data = numbers(4, 8).abs(), numbers(4, 8, seed=1).abs()
    module = nnq.LayerNorm([4, 8], twin.weight, twin.bias, Y_SCALE, Y_ZERO_POINT)
    assert_is_float_twin(module, twin, inputs(1, 4, 8))
    assert not any(p.requires_grad for p in module.parameters())
    assert all(p.requires_grad for p in twin.parameters())


def test_group_norm_takes_as_many_channels_as_its_weight_has() -> None:
    twin = nn.GroupNorm(2, 4)
    twin.weight.data, twin.bias.data = numbers(4).abs(), numbers(4, seed=1).abs()
    assert_is_float_twin(nnq.GroupNorm(2, 2, twin.weight, twin.bias, Y_SCALE, Y_ZERO_POINT), twin, inputs(1, 4, 8))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_instance_norm_is_its_float_twin_rounded(dims: int) -> None:
    twin = getattr(nn, f"InstanceNorm{dims}d")(4, affine=True)
    twin.weight.data, twin.bias.data = numbers(4).abs(), numbers(4, seed=1).abs()
    module = getattr(nnq, f"InstanceNorm{dims}d")(4, twin.weight, twin.bias, Y_SCALE, Y_ZERO_POINT)
    assert_is_float_twin(module, twin, inputs(1, 4, 8, *(1,) * (dims - 1)))


@pytest.mark.parametrize("make", [
    lambda: nn.LayerNorm(8), lambda: nn.GroupNorm(2, 8), lambda: nn.InstanceNorm2d(8), lambda: nn.BatchNorm2d(8),
    nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.Sigmoid, lambda: nn.Softmax(1),
])  # fmt: skip
def test_from_reference_takes_the_parameters_of_the_result(make: Any) -> None:
    module = make()
    made = getattr(nnq, type(module).__name__).from_reference(module, 0.25, 7)
    assert (made.scale, made.zero_point) == (0.25, 7)
    with pytest.raises(ValueError, match="no activation_post_process"):
        getattr(nnq, type(module).__name__).from_float(module)


# ------------------------------------------------------------------------------------------------------------ tables

DTYPES = {8: zeropoint.quint8, 4: zeropoint.quint4x2, 2: zeropoint.quint2x4}


@pytest.mark.parametrize("bits", DTYPES)
@pytest.mark.parametrize("columns", [8, 12, 7])
def test_embedding_gives_the_rows_of_its_weight(bits: int, columns: int) -> None:
    weight = table(10, columns, DTYPES[bits])
    module = nnq.Embedding(10, columns, dtype=DTYPES[bits])
    module.set_weight(weight)
    indices = torch.tensor([[3, 0], [9, 9]])
    assert torch.equal(module.weight().dequantize(), weight.dequantize())
    # Scale and offset of a row with fewer than 8 bits are kept in float16.
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if bits < 8 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(module(indices), weight.dequantize()[indices], **tolerance)
    op = getattr(zeropoint.qfunctions, f"embedding_{'byte' if bits == 8 else f'{bits}bit'}")
    assert torch.equal(module(indices), op(module._packed_params._packed_weight, indices))


@pytest.mark.parametrize("bits", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_reduces_rows_as_it_says(bits: int, mode: str) -> None:
    weight = table(10, 8, DTYPES[bits])
    module = nnq.EmbeddingBag(10, 8, mode=mode, _weight=weight, include_last_offset=True, dtype=DTYPES[bits])
    twin = nn.EmbeddingBag(10, 8, mode=mode, include_last_offset=True)
    twin.weight.data = weight.dequantize()
    indices, offsets = torch.tensor([3, 0, 9, 9, 1]), torch.tensor([0, 2, 5])
    torch.testing.assert_close(module(indices, offsets), twin(indices, offsets).detach(), rtol=1e-2, atol=1e-2)


def test_embedding_bag_takes_weights_of_samples() -> None:
    weight = table(10, 8, zeropoint.quint8)
    module = nnq.EmbeddingBag(10, 8, _weight=weight)
    indices, offsets, samples = torch.tensor([3, 0]), torch.tensor([0]), torch.tensor([2.0, -1.0])
    expected = (weight.dequantize()[indices] * samples[:, None]).sum(0, keepdim=True)
    torch.testing.assert_close(module(indices, offsets, samples), expected, rtol=1e-5, atol=1e-5)


def prepared_table(module: nn.Module, qconfig: Any = zeropoint.float_qparams_weight_only_qconfig) -> nn.Module:
    module.qconfig = qconfig
    return module


def test_rows_of_a_table_with_max_norm_are_scaled_once() -> None:
    float_module = prepared_table(nn.Embedding(10, 8, max_norm=1.0))
    made = nnq.Embedding.from_float(float_module)
    indices = torch.arange(10)
    assert (made(indices) - float_module(indices)).abs().max() <= 0.01


def test_padding_adds_nothing_to_a_sum() -> None:
    float_module = prepared_table(nn.EmbeddingBag(10, 8, mode="sum", padding_idx=3))
    float_module.weight.data[3] = 5.0
    made = nnq.EmbeddingBag.from_float(float_module)
    indices = torch.tensor([[3, 4, 3]])
    assert (made(indices) - float_module(indices)).abs().max() <= 0.02


def test_table_without_qconfig_gets_8_bits() -> None:
    assert nnq.Embedding.from_float(nn.Embedding(10, 8)).dtype is zeropoint.quint8


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "max_norm": (lambda: nnq.Embedding(10, 8, max_norm=1.0), NotImplementedError, "from_float scales all rows"),
    "mode": (lambda: nnq.EmbeddingBag(10, 8, mode="min"), ValueError, "'sum', 'mean' or 'max'"),
    "shape": (lambda: nnq.Embedding(10, 8).set_weight(table(10, 4, zeropoint.quint8)), ValueError, r"\(10, 8\)"),
    "bits": (lambda: nnq.Embedding(10, 8).set_weight(table(10, 8, zeropoint.quint4x2)), ValueError, "quint4x2"),
    "qconfig": (
        lambda: nnq.Embedding.from_float(prepared_table(nn.Embedding(10, 8), zeropoint.default_qconfig)),
        ValueError,
        "float_qparams_weight_only_qconfig",
    ),
    "padding in means": (
        lambda: nnq.EmbeddingBag.from_float(prepared_table(nn.EmbeddingBag(10, 8, padding_idx=3))),
        NotImplementedError,
        "padding_idx=3",
    ),
    "another module": (lambda: nnq.Embedding.from_float(nn.Linear(2, 2)), TypeError, "takes a Embedding"),
    "statistics": (
        lambda: nnq.BatchNorm2d.from_reference(nn.BatchNorm2d(4, track_running_stats=False), 1.0, 0),
        ValueError,
        "needs running statistics",
    ),
    "statistics of instances": (
        lambda: nnq.InstanceNorm1d.from_reference(nn.InstanceNorm1d(4, track_running_stats=True), 1.0, 0),
        NotImplementedError,
        "track_running_stats=True",
    ),
    "dimensions": (lambda: nnq.InstanceNorm1d(4, None, None, 1.0, 0)(activation(2, 4, 3, 3)), ValueError, "3 dim"),
    "slopes": (lambda: nnq.PReLU(1.0, 0).set_weight(torch.ones(1)), TypeError, "must be a quantized tensor"),
    "floats": (lambda: nnq.ELU(1.0, 0)(torch.ones(1)), TypeError, "must be a quantized tensor"),
    "qat qconfig": (
        lambda: qat.Embedding(10, 8, qconfig=zeropoint.default_qat_qconfig),
        ValueError,
        "default_embedding_qat_qconfig",
    ),
}


@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# --------------------------------------------------------------------------------------------------- tables in training

TABLES = {
    "Embedding": (lambda: nn.Embedding(10, 8, padding_idx=2), (torch.tensor([3, 0, 9]),)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(10, 8, mode="sum"), (torch.tensor([3, 0, 9]), torch.tensor([0, 2]))),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("bits", [8, 4])
def test_table_in_training_is_what_is_deployed(name: str, bits: int) -> None:
    make, arguments = TABLES[name]
    float_module = make()
    qconfig = "default_embedding_qat_qconfig" + ("_4bit" if bits == 4 else "")
    model = nn.Sequential(prepared_table(float_module, getattr(zeropoint, qconfig))).train()
    trained = zeropoint.prepare_qat(model, mapping=zeropoint.get_embedding_qat_module_mappings())[0]
    assert type(trained) is getattr(qat, name)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        trained(*arguments).square().sum().backward()
        optimizer.step()
    y = trained(*arguments).detach()
    deployed = getattr(nnq, name).from_float(trained)
    assert deployed.dtype.bits == bits
    torch.testing.assert_close(deployed(*arguments), y, rtol=1e-5, atol=2e-2 if bits == 4 else 1e-5)
    back = trained.to_float()
    assert type(back) is type(float_module)
    assert torch.equal(back.weight, trained.weight)


# ------------------------------------------------------------------------------------------------- in eager workflows


class WithTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(10, 8), nn.Linear(8, 4)
        self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return self.dequant(self.linear(self.quant(self.table(indices))))


def test_model_with_a_table_is_prepared_and_converted() -> None:
    model, indices = WithTable().eval(), torch.arange(10)
    model.qconfig = zeropoint.default_qconfig
    model.table.qconfig = zeropoint.float_qparams_weight_only_qconfig
    prepared = zeropoint.prepare(model, example_inputs=(indices,))
    prepared(indices)
    made = zeropoint.convert(prepared)
    assert type(made.table) is nnq.Embedding
    assert steps_between(made(indices), model(indices)) <= 3


def test_modules_that_hand_parameters_on_are_not_observed() -> None:
    layers = nn.Linear(8, 8), nn.ReLU6(), nn.Dropout(), nn.Linear(8, 8)
    model = zeropoint.QuantWrapper(nn.Sequential(*layers)).eval()
    model.qconfig = zeropoint.default_qconfig
    x = numbers(16, 8)
    prepared = zeropoint.prepare(model, example_inputs=(x,))
    prepared(x)
    made = zeropoint.convert(prepared)
    assert [type(m) for m in made.module] == [nnq.Linear, nnq.ReLU6, nnq.Dropout, nnq.Linear]
    assert steps_between(made(x), model(x)) <= 5  # activations have seven bits: two steps in one


def test_quantize_dynamic_takes_tables() -> None:
    model = nn.Sequential(nn.EmbeddingBag(10, 8, mode="sum"))
    for dtype in (zeropoint.quint8, zeropoint.quint4x2):
        made = zeropoint.quantize_dynamic(model, dtype=dtype)
        assert type(made[0]) is nnq.EmbeddingBag
        assert made[0].dtype is dtype


TRAINED = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(8),
    "BNReLU2d": lambda: zeropoint.nn.intrinsic.BNReLU2d(nn.BatchNorm2d(8), nn.ReLU()),
    "LayerNorm": lambda: nn.LayerNorm([6, 8]),
    "GroupNorm": lambda: nn.GroupNorm(2, 8),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(8),
    "ELU": nn.ELU,
    "LeakyReLU": lambda: nn.LeakyReLU(0.2),
    "Hardswish": nn.Hardswish,
    "PReLU": lambda: nn.PReLU(8),
    "ReLU6": nn.ReLU6,
    "Dropout": nn.Dropout,
    "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
    "Softmax": lambda: nn.Softmax(1),
}


@pytest.mark.parametrize("name", TRAINED)
def test_model_in_training_computes_what_is_deployed(name: str) -> None:
    model = zeropoint.QuantWrapper(nn.Sequential(TRAINED[name]())).train()
    model.qconfig = zeropoint.default_qat_qconfig
    x = numbers(4, 8, 6, 8) * 2
    trained = zeropoint.prepare_qat(model, example_inputs=(x,))
    for _ in range(3):
        trained(x)
    trained.eval()
    trained.apply(zeropoint.disable_observer)
    y = trained(x)
    made = zeropoint.convert(trained)
    steps = (made(x) - y).abs() / made.module(made.quant(x)).q_scale()
    assert steps.max() <= 1.01
    share = 0.98 if name == "PReLU" else 0.99  # its slopes are rounded when it is deployed, not before
    assert (steps < 0.01).float().mean() >= share
