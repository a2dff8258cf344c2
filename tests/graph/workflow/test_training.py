"""Quantization-aware training of graphs: what is trained is what is deployed, for every operator."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from eight_bit_steps import steps_between
from operator_cases import (
    CASES,
    MOVING_CASES,
    POOLING_CASES,
    dimensions_thinned,
    functions_thinned,
    model_of,
    spelled,
)
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import zeropoint
from zeropoint.graph.passes.fold_batch_norm_training import Statistics
from zeropoint.graph.workflow import Prepared
from zeropoint.nn.intrinsic import qat as nniqat

pytestmark = pytest.mark.filterwarnings(
    "ignore:qconfig_mapping. these rules match nothing in the model"
)  # see mapping()

# A float convolution and one on integers may fall on different sides where a value is just between two steps: 2 of
# 460,800 values behind a 3x3 convolution with batch norm and ReLU. Results here are small, so one value counts much.
NEAR_TIES = 0.02


def mapping() -> Any:
    """Rules for every operator that trains, whether a model has it or not."""
    made = zeropoint.get_default_qat_qconfig_mapping("native")
    for kind in (nn.Embedding, nn.EmbeddingBag, F.embedding, F.embedding_bag):
        made.set_object_type(kind, zeropoint.default_embedding_qat_qconfig)
    for kind in (nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell):
        made.set_object_type(kind, zeropoint.default_dynamic_qat_qconfig)
    return made


def tensors(value: Any) -> list[Tensor]:
    return [t for t in pytree.tree_leaves(value) if t.is_floating_point()]


def trained(model: nn.Module, *batch: Tensor, rules: Any = None, shapes: Any = None) -> Any:
    """The model after some steps of training, in evaluation."""
    prepared = zeropoint.prepare_qat_graph(model.train(), rules or mapping(), batch, dynamic_shapes=shapes)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        sum(t.square().mean() for t in tensors(prepared(*batch))).backward()
        optimizer.step()
    return prepared.eval().apply(zeropoint.disable_observer)


def steps_apart(rounded: Tensor, deployed: Tensor) -> Tensor:
    """The distance of each value of a rounded tensor from that of a deployed one, in steps."""
    gaps = torch.unique(deployed).diff()
    return (rounded - deployed).abs() / (gaps.min() if len(gaps) else 1.0)


def assert_trained_is_deployed(prepared: Prepared, *batch: Tensor, rounded: bool = True) -> Any:
    """Evaluation gives the bits of the converted model and its program; the rounded floats differ at ties alone.

    A tie is a step of its tensor, and may be two of one behind it that has a finer scale, or is rounded once more.
    """
    deployed = zeropoint.convert_graph(prepared)
    values = tensors(deployed(*batch))
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert all(map(torch.equal, tensors(prepared(*batch)), values))
    program = tensors(zeropoint.compile(deployed, batch)(*batch))
    assert all(map(torch.equal, program, values))
    with torch.no_grad():
        floats = tensors(prepared.graph_module(*batch))
    if rounded:
        for result, value in zip(floats, values):
            apart = steps_apart(result, value)
            assert apart.max() <= 2.01
            assert (apart > 0.5).float().mean() <= NEAR_TIES
    return deployed


# ------------------------------------------------------------------------------------------------------ every operator


class Surrounded(nn.Module):
    """An operator alone, and with what stands by it in models, each time called anew on the result of a layer."""

    def __init__(self, calls: nn.Module, tried: Any, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.calls: Any = calls
        self.tried = tried
        with torch.no_grad():
            y = self.calls.first(torch.randn(shape))
            self.is_same_shape = y.shape == self.call(y).shape
            sizes, other = (self.call(torch.cat([y] * count)).shape for count in (1, 2))
        dims = len(sizes)
        kind = {4: nn.BatchNorm2d, 5: nn.BatchNorm3d}.get(dims, nn.BatchNorm1d)
        self.norms = nn.ModuleList(kind(sizes[1]) for _ in range(2) if 2 <= dims <= 5 and sizes[1] == other[1])
        pools = ("MaxPool", "AvgPool", "AdaptiveAvgPool") if 3 <= dims <= 5 and min(sizes[2:]) > 1 else ()
        self.pools = nn.ModuleList(getattr(nn, f"{pool}{dims - 2}d")(2) for pool in pools)

    def call(self, y: Tensor) -> Tensor:
        result = self.calls.call(self.tried, y.clone())
        return result if isinstance(result, Tensor) else result[0]

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.calls.first(x)
        results = {"alone": self.call(y), "relu": F.relu(self.call(y))}
        if results["alone"].dim() > 1:
            results["cat"] = torch.cat([self.call(y), self.call(y).flip(1)], 1)
            results["mean"] = self.call(y).mean(-1)
        if self.norms:
            results["batch norm"] = self.norms[0](self.call(y))
            results["batch norm, relu"] = F.relu(self.norms[1](self.call(y)))
        if self.is_same_shape:
            results["residual"] = self.call(y) + y
            results["residual, relu"] = F.relu(self.call(y) + y)
        return results | {f"pool {index}": pool(self.call(y)) for index, pool in enumerate(self.pools)}


def surrounded(cases: dict[str, list[Any]], name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    shape, tried = cases[name][0]
    calls, data = model_of([tried], shape)
    prepared = trained(Surrounded(calls, tried, shape), data, shapes=(None,))  # fixed: free ones take longer
    dynamic = any("dynamic" in row.precision for row in prepared.summary().of(name))
    return prepared, assert_trained_is_deployed(prepared, data, rounded=not dynamic)


@pytest.mark.parametrize("name", functions_thinned(dimensions_thinned(sorted(CASES))))
def test_every_operator_is_deployed_as_trained(name: str) -> None:
    _, deployed = surrounded(CASES, name)
    rows = deployed.summary().of(name)
    assert rows
    assert all(row.precision.startswith("int8") for row in rows), str(deployed.summary())


@pytest.mark.parametrize("name", dimensions_thinned(sorted(POOLING_CASES)))
def test_what_computes_with_the_scale_of_its_input_is_deployed_as_trained(name: str) -> None:
    surrounded(POOLING_CASES, name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(MOVING_CASES))
def test_what_moves_integers_is_deployed_as_trained(name: str) -> None:
    surrounded(MOVING_CASES, name)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "shape", "tried"), spelled(POOLING_CASES))
def test_other_spellings_are_deployed_as_trained(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    torch.manual_seed(0)
    model, data = model_of(tried, shape)
    assert_trained_is_deployed(trained(model, data), data)


# --------------------------------------------------------------------------------------------------------- batch norms


def images(batch: int = 4, channels: int = 3, size: int = 8) -> Tensor:
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(1))


def test_linear_with_batch_norm_and_relu_keeps_its_relu() -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 8)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
    deployed = assert_trained_is_deployed(trained(model, x), x)
    assert deployed(x).min() == 0
    assert [row.operator for row in deployed.summary().rows] == ["linear"]


def test_a_batch_norm_that_no_layer_can_take_is_an_operator_on_integers() -> None:
    torch.manual_seed(0)
    pre_activation = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
    prepared = zeropoint.prepare_qat_graph(pre_activation.train(), mapping(), (images(),))
    before = copy.deepcopy(prepared.state_dict())
    prepared(images())
    after = prepared.state_dict()
    assert not torch.equal(before["graph_module.2.running_var"], after["graph_module.2.running_var"])
    deployed = assert_trained_is_deployed(trained(pre_activation, images()), images())
    assert {row.operator: row.precision for row in deployed.summary().rows} == {"conv2d": "int8", "batch_norm": "int8"}


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_takes_its_batch_norm(groups: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=groups), nn.BatchNorm2d(6), nn.ReLU())
    prepared = trained(model, images(channels=4))
    deployed = assert_trained_is_deployed(prepared, images(channels=4))
    assert [row.operator for row in deployed.summary().rows] == ["conv_transpose2d"]
    fake_quant = prepared.graph_module.get_submodule("0.weight_fake_quant")
    assert fake_quant.scale.numel() == 6 // groups
    assert fake_quant.ch_axis == 1


def test_batch_norm_trains_as_in_eager_mode() -> None:
    torch.manual_seed(0)
    conv, bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
    qconfig = zeropoint.get_default_qat_qconfig("native")
    fused: Any = zeropoint.nn.intrinsic.ConvBnReLU2d(copy.deepcopy(conv), copy.deepcopy(bn), nn.ReLU()).train()
    fused.qconfig = qconfig
    eager = nniqat.ConvBnReLU2d.from_float(fused)
    graph = zeropoint.prepare_qat_graph(nn.Sequential(conv, bn, nn.ReLU()).train(), mapping(), (images(),))
    graph.apply(zeropoint.disable_fake_quant)
    graph.graph_module.get_submodule("0.weight_fake_quant").enable_fake_quant()
    for _ in range(3):
        results = [model(images()) for model in (eager, graph)]
        assert torch.equal(*results)
        for result in results:
            result.square().mean().backward()
    assert torch.equal(eager.bn.running_var, graph.graph_module.get_buffer("1.running_var"))
    assert torch.equal(eager.bn.num_batches_tracked, graph.graph_module.get_buffer("1.num_batches_tracked"))
    assert torch.equal(eager.weight.grad, graph.graph_module.get_parameter("0.weight").grad)
    assert torch.equal(eager.bn.weight.grad, graph.graph_module.get_parameter("1.weight").grad)


def test_a_batch_norm_that_begins_with_zero_trains() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    nn.init.zeros_(model[1].weight)
    prepared = zeropoint.prepare_qat_graph(model.train(), mapping(), (images(),))
    (prepared(images()) * images(4, 8, 6)).mean().backward()
    grad = prepared.graph_module.get_parameter("1.weight").grad
    assert torch.isfinite(grad).all()
    assert (grad != 0).all()


def test_statistics_can_be_averages_of_all_batches_or_frozen() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=None), nn.ReLU(), nn.BatchNorm2d(8))
    prepared = zeropoint.prepare_qat_graph(model.train(), mapping(), (images(),))
    floats = copy.deepcopy(model)
    prepared.apply(zeropoint.disable_fake_quant)
    for seed in range(3):
        batch = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        prepared(batch)
        floats(batch)
    torch.testing.assert_close(prepared.graph_module.get_buffer("1.running_var"), floats[1].running_var)
    torch.testing.assert_close(prepared.graph_module.get_buffer("3.running_mean"), floats[3].running_mean)
    prepared.apply(nniqat.freeze_bn_stats)
    state = {k: v.clone() for k, v in prepared.state_dict().items() if "running" in k}
    prepared.train()(images())
    assert all(torch.equal(prepared.state_dict()[k], v) for k, v in state.items())
    prepared.apply(nniqat.update_bn_stats)(images())
    assert not any(torch.equal(prepared.state_dict()[k], v) for k, v in state.items())


def test_batch_norms_that_the_model_keeps_in_evaluation_are_frozen() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
    model.train()[1].eval()
    prepared = zeropoint.prepare_qat_graph(model, mapping(), (images(),))
    assert [m.freeze_bn for m in prepared.modules() if isinstance(m, Statistics)] == [True, False]


def test_a_batch_norm_of_one_value_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8)).train()
    prepared = zeropoint.prepare_qat_graph(model, mapping(), (images(),))
    with pytest.raises(ValueError, match="more than one value for each channel"):
        prepared(images(1, 3, 3))


def test_batch_norm_over_another_axis_than_the_outputs_of_a_linear_layer_stays_by_itself() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 5, 8)
    model = nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5))
    model[1].running_mean.copy_(torch.linspace(-2, 2, 5))
    floats = copy.deepcopy(model).eval()
    quantized = zeropoint.to_int8(floats, (x,), [x], progress=False)
    assert steps_between(quantized(x), floats(x)) <= 3
    deployed = assert_trained_is_deployed(trained(model, x), x)
    assert {row.operator for row in deployed.summary().rows} == {"linear", "batch_norm"}


# ---------------------------------------------------------------------------------------------- weights and parameters


def test_parameters_keep_the_names_of_the_model_and_all_train() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.PReLU(4))
            self.mixing = nn.Parameter(torch.randn(4, 6))
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.body(x).mean((2, 3)) @ self.mixing)

    model = Net()
    prepared = zeropoint.prepare_qat_graph(model.train(), mapping(), (images(),))
    assert {f"graph_module.{name}" for name, _ in model.named_parameters()} == dict(prepared.named_parameters()).keys()
    assert {f"graph_module.{name}" for name in model.state_dict()} <= prepared.state_dict().keys()
    prepared(images()).square().mean().backward()
    assert all(p.grad is not None for p in prepared.parameters())
    assert_trained_is_deployed(trained(model, images()), images())


@pytest.mark.parametrize(
    ("layer", "path"),
    [
        (nn.ConvTranspose2d(3, 4, 3), "0.weight_fake_quant"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(4)), "0.1.weight_fake_quant"),
    ],
)
def test_weights_are_rounded_in_training(layer: nn.Module, path: str) -> None:
    prepared = zeropoint.prepare_qat_graph(nn.Sequential(layer).train(), mapping(), (images(),))
    seen: list[Tensor] = []
    prepared.graph_module.get_submodule(path).register_forward_hook(lambda m, a, out: seen.append(out))
    prepared(images())
    fake_quant = prepared.graph_module.get_submodule(path)
    scale = fake_quant.scale if fake_quant.scale.numel() == 1 else fake_quant.scale.reshape(1, -1, 1, 1)
    steps = seen[0] / scale
    torch.testing.assert_close(steps, steps.round(), atol=1e-3, rtol=0)


def test_parameters_that_are_operands_train_rounded_with_a_range_of_their_own() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.offset, self.factor = nn.Parameter(torch.randn(4, 1, 1)), nn.Parameter(torch.randn(4, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return (self.conv(x) + self.offset) * self.factor

    torch.manual_seed(0)
    prepared = trained(Net(), images())
    assert all(p.grad is not None for p in prepared.parameters())
    deployed = assert_trained_is_deployed(prepared, images())
    assert {row.operator: row.precision for row in deployed.summary().rows} == dict.fromkeys(
        ("conv2d", "add", "mul"), "int8"
    )


@pytest.mark.parametrize("bits", [8, 4])
def test_embedding_tables_train_rounded(bits: int) -> None:
    torch.manual_seed(0)
    names = {8: zeropoint.default_embedding_qat_qconfig, 4: zeropoint.default_embedding_qat_qconfig_4bit}
    rules = mapping().set_object_type(nn.Embedding, names[bits])
    model = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 4))
    words = torch.arange(10).reshape(2, 5)
    prepared = trained(model, words, rules=rules)
    with torch.no_grad():
        table = prepared.graph_module.get_submodule("0.weight_fake_quant")(model[0].weight)
    assert max(len(row.unique()) for row in table) <= 2**bits
    assert prepared.graph_module.get_parameter("0.weight").grad is not None
    assert_trained_is_deployed(prepared, words, rounded=bits == 8)  # 4 bits: its scales are float16 once deployed


def test_recurrent_weights_train_rounded_and_dropout_between_layers_follows_the_mode() -> None:
    torch.manual_seed(0)
    prepared = zeropoint.prepare_qat_graph(nn.LSTM(8, 8, 2, dropout=0.5).train(), mapping(), (torch.randn(5, 2, 8),))
    x = torch.randn(5, 2, 8)
    assert not torch.equal(prepared(x)[0], prepared(x)[0])
    prepared(x)[0].sum().backward()
    assert all(p.grad is not None for p in prepared.parameters())
    names = [name for name, _ in prepared.named_modules() if name.endswith("_fake_quant")]
    assert len(names) == 4
    prepared.eval().apply(zeropoint.disable_observer)
    assert_trained_is_deployed(prepared, x, rounded=False)


# -------------------------------------------------------------------------------------------------- copies and switches


def test_prepared_models_are_copied_saved_and_switched() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.Dropout(0.5), nn.AvgPool2d(2))
    prepared = trained(model, images())
    expected = prepared(images())
    for made in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
        assert torch.equal(made(images()), expected)
        assert torch.equal(zeropoint.convert_graph(made)(images()), expected)
        made.train()
        assert not torch.equal(made(images()), made(images()))
    other = zeropoint.prepare_qat_graph(copy.deepcopy(model).train(), mapping(), (images(),))
    other.load_state_dict(prepared.state_dict())
    assert torch.equal(other.eval()(images()), expected)
    floats = copy.deepcopy(model).eval()
    floats.load_state_dict({k: prepared.state_dict()[f"graph_module.{k}"] for k in model.state_dict()})
    torch.testing.assert_close(prepared.apply(zeropoint.disable_fake_quant)(images()), floats(images()))


def test_evaluation_follows_parameters_that_change() -> None:
    torch.manual_seed(0)
    prepared = trained(nn.Sequential(nn.Conv2d(3, 8, 3)), images())
    with torch.no_grad():
        before = prepared(images())
        prepared.graph_module.get_parameter("0.bias").data.add_(1.0)
        after = prepared(images())
    assert not torch.equal(before, after)
    assert torch.equal(after, zeropoint.convert_graph(prepared)(images()))


def test_evaluation_has_the_gradient_of_training() -> None:
    torch.manual_seed(0)
    prepared = trained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), images())
    prepared.zero_grad()
    prepared(images()).sum().backward()
    found = prepared.graph_module.get_parameter("0.weight").grad.clone()
    prepared.zero_grad()
    prepared.graph_module(images()).sum().backward()
    assert torch.equal(found, prepared.graph_module.get_parameter("0.weight").grad)
