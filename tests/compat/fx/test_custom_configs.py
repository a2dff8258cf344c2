"""Modules that stay whole, are quantized alone, or by classes of the user's; inputs and results that stay quantized."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint import fx
from zeropoint.compat.fx.qconfig_dtypes import QuantType
from zeropoint.nn import quantized as nnq

MAPPING = zeropoint.QConfigMapping().set_global(zeropoint.default_qconfig)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 4), Inner(), nn.Linear(4, 4)
        self.labels = ["a", "b"]

    def forward(self, x):
        return self.last(self.inner(self.first(x)))


class Untraceable(Inner):
    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else self.linear(-x)


def inputs() -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def converted(model: nn.Module, custom: Any = None, x: Any = None) -> Any:
    x = inputs() if x is None else x
    prepared = fx.prepare_fx(model.eval(), MAPPING, (inputs(),), custom)
    prepared(x)
    return fx.convert_fx(prepared)


def test_an_untraceable_module_stays_whole_and_float() -> None:
    model = Outer()
    model.inner = Untraceable()
    with pytest.raises(torch.fx.proxy.TraceError):
        converted(model)
    made = converted(model, fx.PrepareCustomConfig().set_non_traceable_module_names(["inner"]))
    assert type(made.first) is nnq.Linear
    assert type(made.inner) is Untraceable
    assert type(made.inner.linear) is nn.Linear
    again = converted(model, {"non_traceable_module_class": [Untraceable]})
    assert type(again.inner) is Untraceable


def test_a_standalone_module_is_a_quantized_graph_of_its_own() -> None:
    child = fx.PrepareCustomConfig().set_input_quantized_indexes([0]).set_output_quantized_indexes([0])
    custom = fx.PrepareCustomConfig().set_standalone_module_class(Inner, None, (inputs(),), child, None)
    made = converted(Outer(), custom)
    assert isinstance(made.inner, torch.fx.GraphModule)
    assert type(made.inner.linear) is nnq.Linear
    names = [node.name for node in made.graph.nodes]
    assert "dequantize" not in "".join(names[: names.index("last")])  # quantized tensors go in and out of it
    assert made(inputs()).shape == (8, 4)


class Around(nn.Module):
    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return self.linear(x)


class Observed(Around):
    @classmethod
    def from_float(cls, module: Any) -> Any:
        made = cls(module.linear)
        made.qconfig = module.qconfig  # type: ignore[assignment]
        return made


class Quantized(Around):
    @classmethod
    def from_observed(cls, module: Any) -> Any:
        module.linear.activation_post_process = module.activation_post_process
        return cls(nnq.Linear.from_float(module.linear))


def test_classes_of_the_users_take_and_give_quantized_tensors() -> None:
    custom = fx.PrepareCustomConfig().set_float_to_observed_mapping(Inner, Observed)
    prepared = fx.prepare_fx(Outer().eval(), MAPPING, (inputs(),), custom)
    assert type(prepared.inner) is Observed
    prepared(inputs())
    made = fx.convert_fx(prepared, fx.ConvertCustomConfig().set_observed_to_quantized_mapping(Observed, Quantized))
    assert type(made.inner) is Quantized
    assert made(inputs()).shape == (8, 4)
    with pytest.raises(ValueError, match="static"):
        custom.set_float_to_observed_mapping(Inner, Observed, QuantType.DYNAMIC)


def test_inputs_and_results_can_be_quantized_tensors() -> None:
    custom = fx.PrepareCustomConfig().set_input_quantized_indexes([0]).set_output_quantized_indexes([0])
    made = converted(Inner(), custom)
    q = zeropoint.quantize_per_tensor(inputs(), 0.05, 128, zeropoint.quint8)
    assert isinstance(made(q), zeropoint.QTensor)
    assert not any("quantize_per_tensor" in node.name for node in made.graph.nodes)


def test_attributes_are_preserved_where_asked() -> None:
    custom = fx.PrepareCustomConfig().set_preserved_attributes(["labels"])
    prepared = fx.prepare_fx(Outer().eval(), MAPPING, (inputs(),), custom)
    assert prepared.labels == ["a", "b"]
    prepared(inputs())
    made = fx.convert_fx(prepared, fx.ConvertCustomConfig().set_preserved_attributes(["labels"]))
    assert made.labels == ["a", "b"]
    assert not hasattr(converted(Outer()), "labels")


def test_custom_configs_survive_their_dictionaries() -> None:
    custom = (
        fx.PrepareCustomConfig()
        .set_standalone_module_name("inner", MAPPING, (), fx.PrepareCustomConfig(), None)
        .set_float_to_observed_mapping(Inner, Observed)
        .set_non_traceable_module_classes([Untraceable])
        .set_output_quantized_indexes([0])
    )
    assert fx.PrepareCustomConfig.from_dict(custom.to_dict()).to_dict() == custom.to_dict()
    later = fx.ConvertCustomConfig().set_observed_to_quantized_mapping(Observed, Quantized)
    assert fx.ConvertCustomConfig.from_dict(later.to_dict()).to_dict() == later.to_dict()
    with pytest.raises(ValueError, match="QConfigMapping"):
        fx.PrepareCustomConfig.from_dict({"standalone_module_name": [("inner", 3, (), None, None)]})


def test_what_is_not_supported_is_refused() -> None:
    with pytest.raises(TypeError, match="must be an EqualizationQConfig, got a QConfig"):
        fx.prepare_fx(Inner().eval(), MAPPING, (inputs(),), _equalization_config=MAPPING)
    with pytest.raises(TypeError, match="prepare_custom_config"):
        fx.prepare_fx(Inner().eval(), MAPPING, (inputs(),), 3)  # type: ignore[arg-type]
