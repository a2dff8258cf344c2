"""propagate_qconfig_, against PyTorch's."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.ao.quantization as oracle
from hypothesis import given
from test_qconfig_mapping import LABELS, NAMES, QCONFIGS, THEIRS, Block, Model, label, rules, some, with_qconfigs
from torch import nn
from torch.nn.utils import parametrize

from zeropoint.observers import PerChannelMinMaxObserver
from zeropoint.qconfig import default_qconfig, get_default_qconfig
from zeropoint.qconfig_mapping import QConfigMapping
from zeropoint.qconfig_propagation import propagate_qconfig_

CLASSES = [nn.Linear, nn.ReLU, nn.Sequential, Block, Model]
EVERY_NAME = ["", *NAMES]
choices = st.dictionaries(st.sampled_from([*EVERY_NAME, *CLASSES]), some, max_size=5)
attached = st.dictionaries(st.sampled_from(EVERY_NAME), some, max_size=2)


def labels(model: nn.Module) -> dict[str, Any]:
    """Module name -> the number of its QConfig, None, or "nothing" if it has no such attribute."""
    return {
        name: label(module.qconfig) if hasattr(module, "qconfig") else "nothing"
        for name, module in model.named_modules()
    }


def numbered(numbers: dict[Any, int | None], qconfigs: list[Any]) -> dict[Any, Any]:
    return {key: None if number is None else qconfigs[number] for key, number in numbers.items()}


def model_with(qconfigs: dict[str, Any]) -> Model:
    model = Model()
    for name, qconfig in qconfigs.items():
        model.get_submodule(name).qconfig = qconfig
    return model


# -------------------------------------------------------------------------------------------------- with a dictionary


@given(choices, attached)
def test_every_module_gets_what_pytorch_gives_it(chosen: dict[Any, Any], has: dict[str, Any]) -> None:
    mine, theirs = model_with(numbered(has, QCONFIGS)), model_with(numbered(has, THEIRS))
    propagate_qconfig_(mine, numbered(chosen, QCONFIGS))
    oracle.propagate_qconfig_(theirs, numbered(chosen, THEIRS))
    assert labels(mine) == labels(theirs)


@given(attached)
def test_without_a_dictionary_the_children_inherit(has: dict[str, Any]) -> None:
    mine, theirs = model_with(numbered(has, QCONFIGS)), model_with(numbered(has, THEIRS))
    propagate_qconfig_(mine)
    oracle.propagate_qconfig_(theirs)
    assert labels(mine) == labels(theirs)


@pytest.mark.parametrize(
    "custom",
    [
        {"non_traceable_module_name": ["block"]},
        {"non_traceable_module_class": [Block]},
        {"non_traceable_module_class": [nn.Linear], "non_traceable_module_name": ["blocks"]},
        {"preserved_attributes": ["x"]},
        {},
    ],
)
def test_modules_that_cannot_be_traced_are_left_alone_as_in_pytorch(custom: dict[str, Any]) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.blocks, self.fc = nn.Sequential(), Block(), nn.Linear(1, 1)

    mine, theirs = Flat(), Flat()
    propagate_qconfig_(mine, {"": QCONFIGS[0]}, custom)
    oracle.propagate_qconfig_(theirs, {"": THEIRS[0]}, custom)
    # PyTorch looks only at the children of the model; so do we here.
    top = {"", "block", "blocks", "fc"}
    assert {k: v for k, v in labels(mine).items() if k in top} == {k: v for k, v in labels(theirs).items() if k in top}


def test_modules_that_cannot_be_traced_are_left_alone_at_any_depth() -> None:
    model = Model()
    custom = {"non_traceable_module_name": ["blocks.1"], "non_traceable_module_class": [nn.ReLU]}
    propagate_qconfig_(model, {"": QCONFIGS[0]}, custom)
    found = labels(model)
    assert {name for name in found if found[name] == "nothing"} == {
        name for name in EVERY_NAME if name.startswith("blocks.1") or name.endswith("act")
    }
    assert set(found.values()) == {0, "nothing"}


def test_a_parametrized_module_is_known_by_the_class_it_had() -> None:
    models = [nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))]
    for model in models:
        parametrize.register_parametrization(model[0], "weight", nn.Identity())
    propagate_qconfig_(models[0], {nn.Linear: QCONFIGS[1]})
    oracle.propagate_qconfig_(models[1], {nn.Linear: THEIRS[1]})
    assert labels(models[0])["0"] == labels(models[1])["0"] == 1


def test_a_module_used_twice_has_the_qconfig_of_its_first_place() -> None:
    def tied() -> nn.Module:
        model = Model()
        model.blocks[0].conv = model.block.conv
        return model

    mine, theirs = tied(), tied()
    propagate_qconfig_(mine, {"block": QCONFIGS[0], "blocks": QCONFIGS[1]})
    oracle.propagate_qconfig_(theirs, {"block": THEIRS[0], "blocks": THEIRS[1]})
    assert labels(mine) == labels(theirs)
    assert label(mine.blocks[0].conv.qconfig) == 0


def test_observers_are_built_on_the_device_of_each_module() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"), nn.ReLU())
    propagate_qconfig_(model, {"": default_qconfig})
    assert [m.qconfig.weight().min_val.device.type for m in model] == ["cpu", "meta", "cpu"]


def test_propagating_again_changes_nothing() -> None:
    model = Model()
    propagate_qconfig_(model, {nn.Linear: QCONFIGS[2], "": QCONFIGS[0], "block": None})
    before = labels(model)
    propagate_qconfig_(model, {"": QCONFIGS[1]})
    assert labels(model) == before


def test_transposed_convolutions_may_have_a_scale_for_each_channel() -> None:
    """PyTorch refuses; our kernels do it."""
    model = nn.ConvTranspose2d(2, 2, 1)
    propagate_qconfig_(model, {"": get_default_qconfig("native")})
    assert isinstance(model.qconfig.weight(), PerChannelMinMaxObserver)
    with pytest.raises(AssertionError):
        oracle.propagate_qconfig_(nn.ConvTranspose2d(2, 2, 1), {"": oracle.default_per_channel_qconfig})


# ---------------------------------------------------------------------------------------------------- with a mapping


@given(rules)
def test_every_module_gets_what_the_mapping_answers(drawn: dict[str, Any]) -> None:
    drawn = drawn | {"module_name_object_type_order": []}
    mapping = QConfigMapping.from_dict(with_qconfigs(drawn, QCONFIGS))
    model = Model()
    propagate_qconfig_(model, mapping)
    for name, module in model.named_modules():
        assert label(module.qconfig) == label(mapping.qconfig_for(name, type(module))), name


@given(st.sampled_from(EVERY_NAME), st.sampled_from(LABELS))
def test_a_qconfig_that_a_module_has_counts_as_a_rule_for_its_name(name: str, number: int) -> None:
    mapping = QConfigMapping().set_module_name("blocks", QCONFIGS[5])
    model = model_with({name: QCONFIGS[number]})
    before = copy.copy(mapping.module_name_qconfigs)
    propagate_qconfig_(model, mapping)
    expected = Model()
    if name:
        propagate_qconfig_(expected, copy.deepcopy(mapping).set_module_name(name, QCONFIGS[number]))
    else:
        propagate_qconfig_(expected, copy.deepcopy(mapping).set_global(QCONFIGS[number]))
    assert labels(model) == labels(expected)
    assert mapping.module_name_qconfigs == before
    assert mapping.global_qconfig is None


def test_order_in_a_mapping_is_the_order_of_registration() -> None:
    model = Model()
    mapping = QConfigMapping().set_module_name_object_type_order("block", nn.Linear, 1, QCONFIGS[1])
    mapping.set_module_name_object_type_order("", nn.Linear, 0, QCONFIGS[2])
    propagate_qconfig_(model, mapping)
    assert {name: number for name, number in labels(model).items() if number is not None} == {
        "block.convex": 1,
        "conv": 2,
    }


def test_an_order_rule_for_the_children_of_the_model_is_not_for_the_model() -> None:
    model = nn.Linear(1, 1)
    propagate_qconfig_(model, QConfigMapping().set_module_name_object_type_order("", nn.Linear, 0, QCONFIGS[0]))
    assert model.qconfig is None


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("qconfig_dict", "words"),
    [
        (default_qconfig, r"must be a dictionary or a QConfigMapping.*\{'': qconfig\}"),
        ({"": "x86"}, r"qconfig_dict\[''\]: expected a QConfig or None, got 'x86'; .*get_default_qconfig"),
        ({"object_type": [(nn.Linear, None)]}, r"qconfig_dict\['object_type'\].*QConfigMapping\.from_dict"),
    ],
    ids=["qconfig", "backend", "form of from_dict"],
)
def test_a_wrong_argument_is_refused_with_the_way_out(qconfig_dict: Any, words: str) -> None:
    model = Model()
    with pytest.raises(TypeError, match=words):
        propagate_qconfig_(model, qconfig_dict)
    assert set(labels(model).values()) == {"nothing"}


def test_a_wrong_attribute_is_refused_with_the_name_of_the_module() -> None:
    model = Model()
    model.block.conv.qconfig = torch.int8
    with pytest.raises(TypeError, match=r"the qconfig of module 'block\.conv': expected a QConfig or None, got torch"):
        propagate_qconfig_(model, {"": default_qconfig})
