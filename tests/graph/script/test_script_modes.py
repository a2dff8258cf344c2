"""Qconfigs of TorchScript models: by module, dynamic, float16, embedding tables; observers and their state."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from eight_bit_steps import steps_between
from few_layers import Layers
from script_graphs import kinds, reloaded, scripted
from torch import Tensor, nn
from torch.nn import functional as F

import zeropoint

NATIVE = zeropoint.get_default_qconfig("native")


class Inner(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = Inner(fc1=nn.Linear(8, 8), fc2=nn.Linear(8, 8)), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x) + 1)


def outer() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Outer().eval(), torch.randn(16, 8)


def ways(model: Any) -> dict[str, str]:
    return {row.path: row.precision for row in zeropoint.summary(model).rows if row.operator == "linear"}


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
@pytest.mark.parametrize(
    ("qconfigs", "quantized"),
    [
        ({"": NATIVE}, {"inner.fc1", "inner.fc2", "last"}),
        ({"": NATIVE, "inner": None}, {"last"}),
        ({"": NATIVE, "inner": None, "inner.fc2": NATIVE}, {"inner.fc2", "last"}),
        ({"inner.fc1": NATIVE}, {"inner.fc1"}),
        ({"inner": NATIVE}, {"inner.fc1", "inner.fc2"}),
    ],
    ids=["all", "none-for-one", "child-of-none", "leaf", "branch"],
)
def test_qconfigs_by_path(qconfigs: dict[str, Any], quantized: set[str], traced: bool) -> None:
    model, x = outer()
    made = zeropoint.quantize_jit(scripted(model, traced, x), qconfigs, lambda m: m(x), ())
    assert {path for path, way in ways(made).items() if way == "int8"} == quantized
    assert steps_between(made(x), model(x)) <= 4


def test_a_name_that_the_model_does_not_have_is_reported() -> None:
    model, _ = outer()
    with pytest.warns(UserWarning, match=r"the model has no module 'inner\.conv'"):
        zeropoint.prepare_jit(torch.jit.script(model), {"inner.conv": NATIVE})


def test_a_rule_for_a_module_that_is_never_called_is_reported() -> None:
    model, x = outer()
    model.spare = nn.Linear(8, 8)
    with pytest.warns(UserWarning, match="qconfig_dict: module 'spare' has no operators to quantize"):
        prepared = zeropoint.prepare_jit(torch.jit.script(model), {"": NATIVE, "spare": None, "inner.fc1": None})
    prepared(x)
    for made in (prepared, zeropoint.convert_jit(prepared)):
        assert zeropoint.summary(made).notes == ("this rule matches nothing in the model: 'spare'",)


@pytest.mark.parametrize("bad", [NATIVE, {1: NATIVE}])
def test_qconfigs_that_are_no_dictionary_of_names_are_refused(bad: Any) -> None:
    model, _ = outer()
    with pytest.raises(TypeError, match="qconfig_dict"):
        zeropoint.prepare_jit(torch.jit.script(model), bad)


def test_a_model_is_prepared_once() -> None:
    model, _ = outer()
    prepared = zeropoint.prepare_jit(torch.jit.script(model), {"": NATIVE})
    with pytest.raises(ValueError, match="already prepared"):
        zeropoint.prepare_jit(prepared, {"": NATIVE})


@pytest.mark.parametrize("activation", [zeropoint.MinMaxObserver, zeropoint.HistogramObserver])
@pytest.mark.parametrize("weight", [zeropoint.default_weight_observer, zeropoint.default_per_channel_weight_observer])
def test_static_ranges_give_what_eager_mode_gives(activation: Any, weight: Any) -> None:
    torch.manual_seed(0)
    qconfig = zeropoint.QConfig(activation=activation.with_args(quant_min=0, quant_max=127), weight=weight)
    layer, x = nn.Linear(8, 4).eval(), torch.randn(16, 8)
    eager = zeropoint.QuantWrapper(copy.deepcopy(layer))
    eager.qconfig = qconfig
    eager = zeropoint.prepare(eager)
    eager(x)
    expected = zeropoint.convert(eager)(x)
    for traced in (False, True):
        made = zeropoint.quantize_jit(scripted(layer, traced, x), {"": qconfig}, lambda m: m(x), ())
        assert torch.equal(made(x), expected)


# ------------------------------------------------------------------------------------------------------------- dynamic


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
@pytest.mark.parametrize("debug", [False, True])
def test_dynamic_ranges_give_what_eager_mode_gives(traced: bool, debug: bool) -> None:
    model, x = outer()
    eager = zeropoint.quantize_dynamic(model, {"": zeropoint.default_dynamic_qconfig})
    made = zeropoint.quantize_dynamic_jit(
        scripted(model, traced, x), {"": zeropoint.default_dynamic_qconfig}, debug=debug
    )
    counts = Counter(kinds(made))
    assert counts["zeropoint::linear_dynamic"] + counts["zeropoint::linear_relu_dynamic"] == 3
    assert counts["aten::add"] == 1
    assert torch.equal(made(x), eager(x))
    assert torch.equal(reloaded(made)(x), made(x))


def test_a_static_qconfig_is_made_dynamic() -> None:
    model, _ = outer()
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), {"": NATIVE})
    assert set(ways(made).values()) == {"int8, dynamic"}


def test_prepare_and_convert_give_what_quantize_gives() -> None:
    model, x = outer()
    script = torch.jit.script(model)
    prepared = zeropoint.prepare_dynamic_jit(script, {"inner": zeropoint.default_dynamic_qconfig})
    prepared(x)
    made = zeropoint.convert_dynamic_jit(prepared)
    once = zeropoint.quantize_dynamic_jit(script, {"inner": zeropoint.default_dynamic_qconfig})
    assert torch.equal(made(x), once(x))
    assert kinds(made).count("zeropoint::linear_dynamic") == 1
    assert kinds(made).count("zeropoint::linear_relu_dynamic") == 1
    assert kinds(made).count("aten::linear") == 1


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 5))
        self.layer = nn.Linear(5, 5)
        self.layer.weight = self.weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.layer(x), self.weight)


@pytest.mark.parametrize(("path", "count"), [("layer", 1), ("", 2)])
def test_a_shared_weight_is_quantized_where_its_readers_are(path: str, count: int) -> None:
    torch.manual_seed(0)
    model, x = Shared().eval(), torch.randn(5, 5)
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), {path: zeropoint.default_dynamic_qconfig})
    assert kinds(made).count("zeropoint::linear_dynamic") == count
    assert steps_between(made(x), model(x)) <= 4


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
def test_half_precision_weights(traced: bool) -> None:
    model, x = outer()
    made = zeropoint.quantize_dynamic_jit(scripted(model, traced, x), {"": zeropoint.float16_dynamic_qconfig})
    found = kinds(made)
    assert found.count("zeropoint::linear_dynamic_fp16") == 3
    assert not any("quantize" in kind for kind in found)
    assert (made(x) - model(x)).abs().max() < 1e-3


def test_half_precision_weights_saturate() -> None:
    layer = nn.Linear(5, 5).eval()
    layer.weight = nn.Parameter(torch.full((5, 5), 65532.0))
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(layer), {"": zeropoint.float16_dynamic_qconfig})
    assert torch.isfinite(made(torch.ones(2, 5))).all()


class Holder(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def test_a_model_without_forward_is_refused() -> None:
    with pytest.raises(TypeError, match="this one has forward__0"):
        zeropoint.prepare_jit(torch.jit.script(nn.LSTM(6, 8)), {"": NATIVE})


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "LSTMCell", "GRUCell"])
def test_recurrent_layers(kind: str, traced: bool) -> None:
    torch.manual_seed(0)
    model = Holder(getattr(nn, kind)(6, 8)).eval()
    x = torch.randn(4, 6) if kind.endswith("Cell") else torch.randn(3, 4, 6)
    made = zeropoint.quantize_dynamic_jit(scripted(model, traced, x), {"": zeropoint.default_dynamic_qconfig})
    wanted = "zeropoint::linear_dynamic" if traced and kind.endswith("Cell") else "zeropoint::quantized_"  # as traced
    assert any(operator.startswith(wanted) for operator in kinds(made)), made.graph
    assert steps_between(made(x), model(x)) <= 4
    assert torch.equal(reloaded(made)(x), made(x))


# ---------------------------------------------------------------------------------------------------------- embeddings


class Bags(nn.Module):
    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(10, 12, include_last_offset=True, mode="sum", padding_idx=padding_idx)

    def forward(self, indices: Tensor, offsets: Tensor) -> Tensor:
        return self.bags(indices, offsets)


BAGS = (torch.tensor([0, 1, 2, 3, 4]), torch.tensor([0, 2, 5]))


def by_name(name: str) -> Any:
    """A qconfig that names the operator, as PyTorch's does."""
    observer = zeropoint.PlaceholderObserver
    return zeropoint.QConfig(
        activation=observer.with_args(dtype=torch.float, custom_op_name=name),
        weight=observer.with_args(custom_op_name=name),
    )


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
@pytest.mark.parametrize(
    ("qconfig", "operator", "worst"),
    [
        (by_name("embedding_bag_byte"), "embedding_bag_byte_rowwise_offsets", 0.05),
        (by_name("embedding_bag_4bit"), "embedding_bag_4bit_rowwise_offsets", 0.6),
        (zeropoint.float_qparams_weight_only_qconfig, "embedding_bag_byte_rowwise_offsets", 0.05),
        (zeropoint.float_qparams_weight_only_qconfig_4bit, "embedding_bag_4bit_rowwise_offsets", 0.6),
    ],
    ids=["byte", "4bit", "float-qparams", "float-qparams-4bit"],
)
def test_embedding_bags(qconfig: Any, operator: str, worst: float, traced: bool) -> None:
    torch.manual_seed(0)
    model = Bags().eval()
    made = zeropoint.convert_jit(zeropoint.prepare_jit(scripted(model, traced, *BAGS), {"bags": qconfig}))
    assert f"zeropoint::{operator}" in kinds(made)
    assert "aten::embedding_bag" not in kinds(made)
    assert (made(*BAGS) - model(*BAGS)).abs().max() < worst
    assert torch.equal(reloaded(made)(*BAGS), made(*BAGS))


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
@pytest.mark.parametrize("bits", ["byte", "4bit"])
def test_embedding_bags_with_a_padding_row_are_refused(bits: str, traced: bool) -> None:
    prepared = zeropoint.prepare_jit(scripted(Bags(0), traced, *BAGS), {"bags": by_name(f"embedding_bag_{bits}")})
    with pytest.raises(RuntimeError, match="Expected aten::embedding_bag padding_idx input to be None"):
        zeropoint.convert_jit(prepared)


# ----------------------------------------------------------------------------------------------------------- observers


def observer_names(module: Any) -> list[str]:
    return [name for name, _ in module.named_children() if name.startswith("_observer_")]


def test_observers_are_numbered_and_those_of_weights_are_where_the_weights_are() -> None:
    model, _ = outer()
    prepared = zeropoint.prepare_jit(torch.jit.script(model), {"": NATIVE})
    assert observer_names(prepared) == [f"_observer_{i}" for i in range(4)]  # the input and three results
    for layer in (prepared.inner.fc1, prepared.inner.fc2, prepared.last):
        assert observer_names(layer) == ["_observer_0"]


def test_observers_of_weights_are_in_the_model_if_layers_of_the_same_class_have_none() -> None:
    model, x = outer()
    prepared = zeropoint.prepare_jit(torch.jit.script(model), {"inner.fc1": NATIVE})
    assert observer_names(prepared) == [f"_observer_{i}" for i in range(3)]  # the input, the result, the weight
    assert observer_names(prepared.inner.fc1) == observer_names(prepared.inner.fc2) == []
    assert prepared(x).shape == (16, 4)


@pytest.mark.parametrize("weight", [zeropoint.MinMaxObserver, zeropoint.HistogramObserver])
def test_the_state_of_observers_goes_from_one_model_to_another(weight: Any) -> None:
    model, x = outer()
    qconfig = zeropoint.QConfig(activation=zeropoint.default_observer, weight=weight)
    first, second = (zeropoint.prepare_jit(torch.jit.script(model), {"": qconfig}) for _ in range(2))
    first(x)
    state = zeropoint.get_observer_state_dict(first)
    assert any("_observer_0.min_val" in key for key in state)
    zeropoint.load_observer_state_dict(second, state)
    for key, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[key]), key
    assert torch.equal(zeropoint.convert_jit(second)(x), zeropoint.convert_jit(first)(x))
