"""QConfigMapping and its defaults, against PyTorch's."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.ao.quantization as oracle
import torch.nn.functional as F
from hypothesis import given
from test_qconfig import BACKENDS, describe_qconfig
from torch import nn
from torch.ao.quantization.fx.qconfig_mapping_utils import _generate_node_name_to_qconfig
from torch.ao.quantization.fx.tracer import QuantizationTracer

from zeropoint import qconfig_mapping as ours
from zeropoint.observers import MinMaxObserver, default_weight_observer
from zeropoint.qconfig import QConfig, default_qconfig, get_default_qconfig, qconfig_equals
from zeropoint.qconfig_mapping import QConfigMapping, get_default_qat_qconfig_mapping, get_default_qconfig_mapping

pytestmark = [
    pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max:UserWarning"),  # PyTorch's, at reduce_range
    pytest.mark.filterwarnings("ignore:Default qconfig of oneDNN backend:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*get_default_q.*_dict.* is deprecated:FutureWarning"),
]

# QConfigs that can be told apart, and PyTorch's with the same numbers.
LABELS = range(6)
QCONFIGS = [QConfig(MinMaxObserver.with_args(quant_min=0, quant_max=10 + i), default_weight_observer) for i in LABELS]
THEIRS = [
    oracle.QConfig(oracle.MinMaxObserver.with_args(quant_min=0, quant_max=10 + i), oracle.default_weight_observer)
    for i in LABELS
]


def label(qconfig: Any) -> int | None:
    return None if qconfig is None else qconfig.activation.p.keywords["quant_max"] - 10


# -------------------------------------------------------------------------------------------------------- precedence


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Linear(2, 2)
        self.convex = nn.Linear(2, 2)
        self.act = nn.ReLU()
        self.weight = nn.Parameter(torch.ones(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.convex(self.conv(x)))
        x = F.linear(x, self.weight).reshape(-1, 2)
        return F.linear(F.relu(x), self.weight)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.blocks = nn.Sequential(Block(), nn.Sequential(nn.Linear(2, 2), Block()))
        self.conv = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.relu(self.conv(self.blocks(self.block(x))))).reshape(2, -1)


NAMES = [name for name, _ in Model().named_modules() if name]
TYPES = [nn.Linear, nn.ReLU, nn.Sequential, Block, Model, F.linear, F.relu, "reshape", "relu"]
REGEXES = ["block", "block$", r"blocks\.0", ".*conv", ".*conv$", "conv", r"blocks\.\d+\.[01]", ".*", "nothing"]

some = st.none() | st.sampled_from(LABELS)
rules = st.fixed_dictionaries(
    {
        "": some,
        "object_type": st.lists(st.tuples(st.sampled_from(TYPES), some), max_size=4),
        "module_name_regex": st.lists(st.tuples(st.sampled_from(REGEXES), some), max_size=2),
        "module_name": st.lists(st.tuples(st.sampled_from(NAMES), some), max_size=3),
        "module_name_object_type_order": st.lists(
            st.tuples(
                st.sampled_from(["", *NAMES]),
                st.sampled_from([nn.Linear, nn.ReLU, Block, F.linear, F.relu]),
                st.integers(0, 2),
                some,
            ),
            max_size=3,
        ),
    }
)


def with_qconfigs(drawn: dict[str, Any], qconfigs: list[Any]) -> dict[str, Any]:
    def one(number: int | None) -> Any:
        return None if number is None else qconfigs[number]

    return {"": one(drawn[""])} | {
        key: [(*rest, one(number)) for *rest, number in lines] for key, lines in drawn.items() if key
    }


@pytest.fixture(scope="module")
def traced() -> SimpleNamespace:
    model = Model()
    tracer = QuantizationTracer([], [])
    graph = tracer.trace(model)
    return SimpleNamespace(model=model, graph=graph, scopes=tracer.node_name_to_scope)


@given(rules)
def test_every_node_of_a_graph_gets_what_pytorchs_graph_mode_gives_it(
    traced: SimpleNamespace, drawn: dict[str, Any]
) -> None:
    mapping = QConfigMapping.from_dict(with_qconfigs(drawn, QCONFIGS))
    theirs = oracle.QConfigMapping.from_dict(with_qconfigs(drawn, THEIRS))
    modules = dict(traced.model.named_modules())
    expected = _generate_node_name_to_qconfig(traced.model, modules, traced.graph, theirs, traced.scopes)
    seen: Counter[Any] = Counter()
    nodes = 0
    for node in traced.graph.nodes:
        place, kind = traced.scopes.get(node.name, (None, None))
        if node.op == "call_module":
            where = node.target.rpartition(".")[0], kind
            got = mapping.qconfig_for(node.target, kind, seen[where])
        elif node.op == "call_function":
            where = place, node.target
            got = mapping.qconfig_for(place, node.target, seen[where], module_type=kind)
        elif node.op == "call_method":
            where = place, node.target
            got = mapping.qconfig_for(place, node.target, module_type=kind)
        elif node.op == "get_attr":
            name = node.target.rpartition(".")[0]
            where = name, None
            got = mapping.qconfig_for(name, type(modules[name]))
        else:
            continue
        seen[where] += 1
        nodes += 1
        assert label(got) == label(expected[node.name]), (node.op, node.target, place)
    assert nodes == 29


def test_each_kind_of_rule_beats_the_ones_below_it() -> None:
    mapping = QConfigMapping()
    assert mapping.qconfig_for("a.b", nn.Linear, 0) is None
    for number, add in enumerate(
        [
            lambda q: mapping.set_global(q),
            lambda q: mapping.set_object_type(nn.Linear, q),
            lambda q: mapping.set_module_name_regex("a", q),
            lambda q: mapping.set_module_name("a", q),
            lambda q: mapping.set_module_name("a.b", q),
            lambda q: mapping.set_module_name_object_type_order("a", nn.Linear, 0, q),
        ]
    ):
        assert add(QCONFIGS[number]) is mapping
        assert label(mapping.qconfig_for("a.b", nn.Linear, 0)) == number
    assert label(mapping.qconfig_for("a.b", nn.Linear, 1)) == 4
    assert label(mapping.qconfig_for("a.b", nn.Linear)) == 4
    assert label(mapping.qconfig_for("a.c", nn.Linear)) == 3


def test_none_is_an_answer_and_not_a_missing_rule() -> None:
    mapping = QConfigMapping().set_global(QCONFIGS[0]).set_module_name("head", None)
    assert mapping.qconfig_for("head.0", nn.Linear) is None


def test_a_rule_for_the_class_around_a_call_beats_one_for_the_function() -> None:
    mapping = QConfigMapping().set_object_type(F.relu, QCONFIGS[0]).set_object_type(Block, QCONFIGS[1])
    assert label(mapping.qconfig_for("block", F.relu, module_type=Block)) == 1
    assert label(mapping.qconfig_for("block", F.relu)) == 0


def test_the_order_of_a_call_is_inside_the_module_named_and_that_of_a_module_inside_its_parent() -> None:
    mapping = QConfigMapping().set_module_name_object_type_order("a", F.relu, 1, QCONFIGS[1])
    mapping.set_module_name_object_type_order("a", nn.ReLU, 1, QCONFIGS[2])
    assert label(mapping.qconfig_for("a", F.relu, 1)) == 1
    assert mapping.qconfig_for("a.b", F.relu, 1) is None
    assert label(mapping.qconfig_for("a.b", nn.ReLU, 1)) == 2
    assert mapping.qconfig_for("a", nn.ReLU, 1) is None


def test_setting_a_regex_again_keeps_its_place() -> None:
    mapping = QConfigMapping().set_module_name_regex("a", QCONFIGS[0]).set_module_name_regex(".*", QCONFIGS[1])
    mapping.set_module_name_regex("a", QCONFIGS[2])
    assert label(mapping.qconfig_for("a", nn.ReLU)) == 2
    assert list(mapping.module_name_regex_qconfigs) == ["a", ".*"]


def test_a_class_does_not_stand_for_its_subclasses() -> None:
    class Special(nn.Linear):
        pass

    assert QConfigMapping().set_object_type(nn.Linear, QCONFIGS[0]).qconfig_for("a", Special) is None


# ------------------------------------------------------------------------------------------------------- other forms


def printable(drawn: dict[str, Any]) -> dict[str, Any]:
    """QConfigs that print the same in both."""
    return with_qconfigs(drawn, [oracle.QConfig(i, i) for i in LABELS])


@given(rules)
def test_dictionary_and_repr_are_pytorchs(drawn: dict[str, Any]) -> None:
    rules = printable(drawn)
    mapping, theirs = QConfigMapping.from_dict(rules), oracle.QConfigMapping.from_dict(rules)
    assert repr(mapping) == repr(theirs)
    assert mapping.to_dict() == theirs.to_dict()
    assert repr(QConfigMapping.from_dict(mapping.to_dict())) == repr(mapping)
    for style in vars(theirs):
        assert getattr(mapping, style) == getattr(theirs, style)


def test_the_attributes_are_pytorchs() -> None:
    assert vars(QConfigMapping()) == vars(oracle.QConfigMapping())
    assert repr(QConfigMapping()) == repr(oracle.QConfigMapping())


def test_unknown_keys_of_a_dictionary_are_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"ignored the unknown keys \['modules'\]; supported: \['', 'object_type'"):
        mapping = QConfigMapping.from_dict({"": default_qconfig, "modules": [("a", None)]})
    assert mapping.global_qconfig == default_qconfig


# ---------------------------------------------------------------------------------------------------------- defaults

MAPPINGS = [("get_default_qconfig_mapping", 0), ("get_default_qat_qconfig_mapping", 0)]
MAPPINGS += [("get_default_qat_qconfig_mapping", 1)]


def describe_mapping(mapping: Any) -> dict[Any, Any]:
    assert not mapping.module_name_regex_qconfigs
    assert not mapping.module_name_qconfigs
    assert not mapping.module_name_object_type_order_qconfigs
    by_type = {kind: describe_qconfig(qconfig) for kind, qconfig in mapping.object_type_qconfigs.items()}
    return {"": describe_qconfig(mapping.global_qconfig)} | by_type


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("getter", "version"), MAPPINGS)
def test_a_backends_mapping_builds_what_pytorchs_builds(getter: str, version: int, backend: str) -> None:
    got, expected = (describe_mapping(getattr(module, getter)(backend, version)) for module in (ours, oracle))
    assert list(got) == list(expected)
    assert got == expected


@pytest.mark.parametrize("getter", ["get_default_qconfig_mapping", "get_default_qat_qconfig_mapping"])
def test_the_default_backend_and_version_are_pytorchs(getter: str) -> None:
    got, expected = (describe_mapping(getattr(module, getter)()) for module in (ours, oracle))
    assert got == expected


@pytest.mark.parametrize(
    "getter", ["get_symmetric_qnnpack_qconfig_mapping", "get_symmetric_qnnpack_qat_qconfig_mapping"]
)
def test_the_symmetric_mappings_are_pytorchs(getter: str) -> None:
    expected = getattr(oracle.qconfig_mapping, f"_{getter}")()
    assert describe_mapping(getattr(ours, getter)()) == describe_mapping(expected)


@pytest.mark.parametrize("getter", ["get_default_qconfig_dict", "get_default_qat_qconfig_dict"])
def test_the_mapping_as_a_dictionary_warns_and_is_pytorchs(getter: str) -> None:
    with pytest.warns(FutureWarning, match=f"{getter} is deprecated: use get_default_.*mapping"):
        got = getattr(ours, getter)("qnnpack")
    expected = getattr(oracle, getter)("qnnpack")
    assert got.keys() == expected.keys()
    assert [kind for kind, _ in got["object_type"]] == [kind for kind, _ in expected["object_type"]]


@pytest.mark.parametrize(
    ("get_mapping", "version"),
    [(get_default_qconfig_mapping, 0), *((get_default_qat_qconfig_mapping, v) for v in (0, 1))],
)
def test_native_is_onednn_with_a_scale_for_each_output_channel_of_transposed_weights(
    get_mapping: Any, version: int
) -> None:
    native, onednn = (describe_mapping(get_mapping(backend, version)) for backend in ("native", "onednn"))
    transposed = {kind for kind in native if native[kind] != onednn[kind]}
    assert transposed == {
        nn.ConvTranspose1d,
        nn.ConvTranspose2d,
        nn.ConvTranspose3d,
        F.conv_transpose1d,
        F.conv_transpose2d,
        F.conv_transpose3d,
    }
    for kind in transposed:
        assert native[kind]["activation"] == native[""]["activation"]
        assert native[kind]["weight"]["ch_axis"] == 1
        assert native[kind]["weight"]["qscheme"] == "per_channel_symmetric"


def test_each_call_gives_a_mapping_of_its_own() -> None:
    get_default_qconfig_mapping().set_object_type(nn.Linear, None)
    assert nn.Linear not in get_default_qconfig_mapping().object_type_qconfigs


@pytest.mark.parametrize("get_mapping", [get_default_qconfig_mapping, get_default_qat_qconfig_mapping])
def test_an_unknown_backend_or_version_is_named_with_the_choices(get_mapping: Any) -> None:
    with pytest.raises(ValueError, match=r"backend must be one of .*'native'\], got 'tpu'"):
        get_mapping("tpu")
    with pytest.raises(ValueError, match=r"version must be one of \[.*\], got 7"):
        get_mapping("native", 7)


# ------------------------------------------------------------------------------------------------------------ errors

SETTERS = {
    "set_global": lambda m, q: m.set_global(q),
    "set_object_type": lambda m, q: m.set_object_type(nn.Linear, q),
    "set_module_name_regex": lambda m, q: m.set_module_name_regex("a", q),
    "set_module_name": lambda m, q: m.set_module_name("a", q),
    "set_module_name_object_type_order": lambda m, q: m.set_module_name_object_type_order("a", nn.Linear, 0, q),
}


@pytest.mark.parametrize(
    ("qconfig", "way_out"),
    [
        ("x86", r"get_default_qconfig\('x86'\)"),
        (MinMaxObserver, r"QConfig\(activation=\.\.\., weight=\.\.\.\)"),
        (QConfig, r"QConfig\(activation=\.\.\., weight=\.\.\.\)"),
        ([(nn.Linear, None)], r"QConfigMapping\.from_dict"),
    ],
    ids=["backend", "observer", "class", "list"],
)
@pytest.mark.parametrize("setter", SETTERS)
def test_what_is_no_qconfig_is_refused_with_the_way_out(setter: str, qconfig: Any, way_out: str) -> None:
    mapping = QConfigMapping()
    with pytest.raises(TypeError, match=f"^{setter}: expected a QConfig or None, got .*{way_out}"):
        SETTERS[setter](mapping, qconfig)
    assert vars(mapping) == vars(QConfigMapping())


@pytest.mark.parametrize("setter", ["set_object_type", "set_module_name_object_type_order"])
@pytest.mark.parametrize(
    ("object_type", "words"),
    [(nn.Linear(1, 1), "an instance of Linear; pass the class, Linear"), (3, "a module class, a function or the name")],
    ids=["instance", "number"],
)
def test_an_object_type_of_the_wrong_kind_is_refused(setter: str, object_type: Any, words: str) -> None:
    arguments = ("a", object_type, 0) if setter.endswith("order") else (object_type,)
    with pytest.raises(TypeError, match=f"^{setter}: the object type .*{words}"):
        getattr(QConfigMapping(), setter)(*arguments, default_qconfig)


@pytest.mark.parametrize("setter", ["set_module_name", "set_module_name_regex", "set_module_name_object_type_order"])
def test_a_name_that_is_no_string_is_refused(setter: str) -> None:
    arguments = (nn.Linear, 0) if setter.endswith("order") else ()
    with pytest.raises(TypeError, match=f"^{setter}: expected a string, got .*Linear.*named_modules"):
        getattr(QConfigMapping(), setter)(nn.Linear, *arguments, default_qconfig)


def test_an_invalid_regex_is_refused_when_it_is_set() -> None:
    mapping = QConfigMapping()
    with pytest.raises(
        ValueError, match=re.escape("'layer[1' is not a regular expression: unterminated character set")
    ):
        mapping.set_module_name_regex("layer[1", default_qconfig)
    assert not mapping.module_name_regex_qconfigs


def test_the_empty_name_is_refused_for_set_global() -> None:
    with pytest.raises(ValueError, match="set_global"):
        QConfigMapping().set_module_name("", default_qconfig)


@pytest.mark.parametrize(("index", "kind"), [("0", TypeError), (True, TypeError), (-1, ValueError)])
def test_an_index_that_counts_nothing_is_refused(index: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"index must be .*, got {index!r}; 0 is the first call"):
        QConfigMapping().set_module_name_object_type_order("a", nn.Linear, index, default_qconfig)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (default_qconfig, "expected a dictionary"),
        ({"object_type": [(nn.Linear,)]}, "'object_type' must be a list of tuples of 2"),
        ({"module_name": {"head": None}}, "'module_name' must be a list of tuples of 2, got 'head'"),
        ({"module_name_object_type_order": [("a", None)]}, "must be a list of tuples of 4"),
    ],
    ids=["qconfig", "short", "dict", "order"],
)
def test_a_dictionary_of_another_form_is_refused(rules: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        QConfigMapping.from_dict(rules)


def test_get_default_qconfig_is_the_global_rule() -> None:
    assert qconfig_equals(get_default_qconfig_mapping("native").global_qconfig, get_default_qconfig("native"))


@pytest.mark.parametrize("setter", SETTERS)
def test_an_empty_list_is_no_qconfig(setter: str) -> None:
    mapping = QConfigMapping().set_global(default_qconfig)
    SETTERS[setter](mapping, [])
    assert mapping.qconfig_for("a.b" if "order" in setter else "a", nn.Linear, 0) is None
