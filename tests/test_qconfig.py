"""QConfig and its defaults, against PyTorch's."""

from __future__ import annotations

import copy
import pickle
import warnings
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.ao.quantization as oracle
from torch import nn

from zeropoint import qconfig as ours
from zeropoint.fake_quant import FakeQuantize
from zeropoint.numerics.dtypes import qint8
from zeropoint.observers import (
    HistogramObserver,
    MinMaxObserver,
    NoopObserver,
    default_observer,
    default_weight_observer,
)
from zeropoint.qconfig import (
    QConfig,
    QConfigDynamic,
    activation_is_memoryless,
    add_module_to_qconfig_obs_ctr,
    get_default_qat_qconfig,
    get_default_qconfig,
    is_reuse_input_qconfig,
    qconfig_equals,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max:UserWarning"),  # PyTorch's, at reduce_range
    pytest.mark.filterwarnings("ignore:Default qconfig of oneDNN backend:UserWarning"),
]

DEFAULTS = sorted(
    [
        *(name for name in oracle.qconfig.__all__ if isinstance(getattr(oracle.qconfig, name), oracle.QConfig)),
        "_default_fp32_placeholder_qconfig",
        "_default_quint8_placeholder_qconfig",
    ]
)
BACKENDS = ["x86", "fbgemm", "qnnpack", "onednn"]
GETTERS = [("get_default_qconfig", 0), ("get_default_qat_qconfig", 0), ("get_default_qat_qconfig", 1)]

PLAIN = ("quant_min", "quant_max", "reduce_range", "averaging_constant", "ch_axis", "is_dynamic", "bins", "custom_op")
NAMED = ("dtype", "qscheme")
NUMBERS = ("eps", "scale", "zero_point")


def describe(constructor: Any) -> Any:
    """What the constructor builds, in words that are the same for ours and for PyTorch's."""
    if constructor is None:
        return None
    return describe_built(constructor())


def describe_built(watcher: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"class": type(watcher).__name__}
    found |= {name: getattr(watcher, name) for name in PLAIN if hasattr(watcher, name)}
    found |= {name: str(getattr(watcher, name)).rpartition(".")[2] for name in NAMED if hasattr(watcher, name)}
    for name in NUMBERS:
        if hasattr(watcher, name):
            found[name] = torch.as_tensor(getattr(watcher, name)).tolist()
    if hasattr(watcher, "activation_post_process"):
        found["observer"] = describe_built(watcher.activation_post_process)
    return found


def describe_qconfig(qconfig: Any) -> Any:
    return qconfig and {"activation": describe(qconfig.activation), "weight": describe(qconfig.weight)}


# ---------------------------------------------------------------------------------------------------------- defaults


def test_the_list_of_defaults_is_not_empty() -> None:
    assert len(DEFAULTS) == 24


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_builds_what_pytorchs_builds(name: str) -> None:
    assert describe_qconfig(getattr(ours, name)) == describe_qconfig(getattr(oracle.qconfig, name))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("getter", "version"), GETTERS)
def test_a_backends_default_builds_what_pytorchs_builds(getter: str, version: int, backend: str) -> None:
    got, expected = (getattr(module, getter)(backend, version) for module in (ours, oracle))
    assert describe_qconfig(got) == describe_qconfig(expected)


@pytest.mark.parametrize("getter", ["get_default_qconfig", "get_default_qat_qconfig"])
def test_the_default_backend_and_version_are_pytorchs(getter: str) -> None:
    assert describe_qconfig(getattr(ours, getter)()) == describe_qconfig(getattr(oracle, getter)())


def test_native_calibrates_in_all_eight_bits_with_a_scale_for_each_channel() -> None:
    activation, weight = (describe(constructor) for constructor in get_default_qconfig("native"))
    assert (activation["class"], activation["dtype"], activation["reduce_range"]) == (
        "HistogramObserver",
        "quint8",
        False,
    )
    assert (activation["quant_min"], activation["quant_max"]) == (0, 255)
    assert (weight["class"], weight["dtype"], weight["ch_axis"]) == ("PerChannelMinMaxObserver", "qint8", 0)
    assert (weight["qscheme"], weight["quant_min"], weight["quant_max"]) == ("per_channel_symmetric", -128, 127)


@pytest.mark.parametrize(("version", "kind"), [(0, "FakeQuantize"), (1, "FusedMovingAvgObsFakeQuantize")])
def test_native_trains_in_all_eight_bits_with_a_scale_for_each_channel(version: int, kind: str) -> None:
    activation, weight = (describe(constructor) for constructor in get_default_qat_qconfig("native", version))
    assert (activation["class"], activation["quant_min"], activation["quant_max"]) == (kind, 0, 255)
    assert activation["observer"]["reduce_range"] is False
    assert (weight["class"], weight["qscheme"], weight["ch_axis"]) == (kind, "per_channel_symmetric", 0)


@pytest.mark.parametrize("backend", [*BACKENDS, "native"])
def test_asking_for_a_backend_warns_of_nothing(backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        get_default_qconfig(backend)
        get_default_qat_qconfig(backend)


@pytest.mark.parametrize("getter", [get_default_qconfig, get_default_qat_qconfig])
@pytest.mark.parametrize("backend", ["arm", None, ["x86"]], ids=["unknown", "none", "list"])
def test_an_unknown_backend_is_named_with_the_choices(getter: Any, backend: Any) -> None:
    with pytest.raises(ValueError, match=r"backend must be one of \['x86', .*'native'\], got") as error:
        getter(backend)
    assert f"{backend!r}, which is not supported" in str(error.value)
    assert isinstance(error.value, AssertionError)  # as torch.ao says it


@pytest.mark.parametrize(
    ("getter", "version", "choices"),
    [
        (get_default_qconfig, 1, r"\[0\]"),
        (get_default_qat_qconfig, 2, r"\[0, 1\]"),
        (get_default_qat_qconfig, None, r"\[0, 1\]"),
    ],
)
def test_an_unknown_version_is_named_with_the_choices(getter: Any, version: Any, choices: str) -> None:
    with pytest.raises(ValueError, match=f"version must be one of {choices}, got {version}"):
        getter("x86", version)


# ----------------------------------------------------------------------------------------------------------- QConfig


def test_a_qconfig_is_a_named_tuple() -> None:
    qconfig = QConfig(weight=default_weight_observer, activation=default_observer)
    activation, weight = qconfig
    assert (activation, weight) == (default_observer, default_weight_observer)
    assert qconfig._replace(weight=NoopObserver) == QConfig(default_observer, NoopObserver)
    assert repr(QConfig(1, "w")) == repr(oracle.QConfig(1, "w")) == "QConfig(activation=1, weight='w')"


@pytest.mark.parametrize("field", ["activation", "weight"])
@pytest.mark.filterwarnings("ignore:QConfigDynamic is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", [QConfig, QConfigDynamic])
def test_an_observer_that_is_built_already_is_refused(kind: Any, field: str) -> None:
    fields = {"activation": MinMaxObserver, "weight": MinMaxObserver, field: MinMaxObserver()}
    with pytest.raises(ValueError, match=rf"{field} is an instance of MinMaxObserver.*MinMaxObserver\.with_args"):
        kind(**fields)


def test_qconfig_dynamic_warns_and_watches_nothing_unless_told() -> None:
    with pytest.warns(FutureWarning, match="QConfigDynamic is deprecated"):
        qconfig = QConfigDynamic(weight=default_weight_observer)
    assert qconfig == (nn.Identity, default_weight_observer)
    assert repr(qconfig).startswith("QConfigDynamic(activation=<class 'torch.nn.modules.linear.Identity'>, weight=")


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_survives_pickle_and_deepcopy(name: str) -> None:
    qconfig = getattr(ours, name)
    for twin in (pickle.loads(pickle.dumps(qconfig)), copy.deepcopy(qconfig)):
        assert type(twin) is QConfig
        assert qconfig_equals(twin, qconfig)


# ---------------------------------------------------------------------------------------------------------- equality


@pytest.mark.parametrize("first", DEFAULTS)
def test_defaults_are_equal_where_pytorchs_are(first: str) -> None:
    for second in DEFAULTS:
        expected = oracle.qconfig_equals(getattr(oracle.qconfig, first), getattr(oracle.qconfig, second))
        assert qconfig_equals(getattr(ours, first), getattr(ours, second)) == expected, second


OURS = SimpleNamespace(MinMaxObserver=MinMaxObserver, HistogramObserver=HistogramObserver, FakeQuantize=FakeQuantize)


def pairs_to_compare(observers: Any) -> dict[str, tuple[Any, Any]]:
    min_max, histogram = observers.MinMaxObserver, observers.HistogramObserver
    fake = observers.FakeQuantize
    return {
        "the class": (min_max, min_max),
        "another class": (min_max, histogram),
        "the same arguments": (min_max.with_args(eps=0.5), min_max.with_args(eps=0.5)),
        "another value": (min_max.with_args(eps=0.5), min_max.with_args(eps=0.25)),
        "an argument more": (min_max.with_args(eps=0.5), min_max.with_args(eps=0.5, reduce_range=True)),
        "arguments or none": (min_max.with_args(eps=0.5), min_max),
        "the same observer inside": (
            fake.with_args(observer=min_max.with_args(eps=0.5)),
            fake.with_args(observer=min_max.with_args(eps=0.5)),
        ),
        "another observer inside": (
            fake.with_args(observer=min_max.with_args(eps=0.5)),
            fake.with_args(observer=min_max.with_args(eps=0.25)),
        ),
        "an observer inside one": (fake.with_args(observer=min_max), fake.with_args(eps=0.5)),
        "called arguments": (
            min_max.with_args(eps=0.5).with_callable_args(factory_kwargs=lambda: None),
            min_max.with_args(eps=0.5),
        ),
        "one is missing": (None, min_max),
        "both are missing": (None, None),
    }


@pytest.mark.parametrize("case", pairs_to_compare(oracle))
@pytest.mark.parametrize("field", ["activation", "weight"])
def test_constructors_are_equal_where_pytorchs_are(case: str, field: str) -> None:
    def compare(source: Any, kind: Any, equals: Any) -> bool:
        other = {"weight": "activation", "activation": "weight"}[field]
        first, second = (kind(**{field: one, other: None}) for one in pairs_to_compare(source)[case])
        return equals(first, second)

    assert compare(OURS, QConfig, qconfig_equals) == compare(oracle, oracle.QConfig, oracle.qconfig_equals)


def test_none_equals_only_none() -> None:
    assert qconfig_equals(None, None)
    assert not qconfig_equals(None, ours.default_qconfig)
    assert not qconfig_equals(ours.default_qconfig, None)


def test_how_arguments_were_put_together_does_not_matter() -> None:
    """PyTorch says that these differ; they build the same."""
    chained = MinMaxObserver.with_args(dtype=qint8, eps=0.5).with_args(eps=0.25)
    flat = MinMaxObserver.with_args(eps=0.25, dtype=qint8)
    assert qconfig_equals(QConfig(chained, MinMaxObserver), QConfig(flat, MinMaxObserver.with_args()))


def test_the_later_argument_counts() -> None:
    chained = MinMaxObserver.with_args(eps=0.25).with_args(eps=0.5)
    assert not qconfig_equals(QConfig(chained, None), QConfig(MinMaxObserver.with_args(eps=0.25), None))
    assert qconfig_equals(QConfig(chained, None), QConfig(MinMaxObserver.with_args(eps=0.5), None))


# --------------------------------------------------------------------------------------------------------- questions


@pytest.mark.parametrize("name", DEFAULTS)
def test_memoryless_and_reuse_input_are_answered_as_pytorch_does(name: str) -> None:
    mine, theirs = getattr(ours, name), getattr(oracle.qconfig, name)
    assert activation_is_memoryless(mine) == oracle.qconfig._activation_is_memoryless(theirs)
    if theirs.weight is not None:  # PyTorch calls it
        assert is_reuse_input_qconfig(mine) == oracle.qconfig._is_reuse_input_qconfig(theirs)


def test_only_the_reuse_input_default_reuses_its_input() -> None:
    assert [name for name in DEFAULTS if is_reuse_input_qconfig(getattr(ours, name))] == ["default_reuse_input_qconfig"]
    assert not is_reuse_input_qconfig(None)


# ------------------------------------------------------------------------------------------------------------ device


@pytest.mark.parametrize("name", DEFAULTS)
def test_observers_are_built_on_the_modules_device(name: str) -> None:
    qconfig = getattr(ours, name)
    placed = add_module_to_qconfig_obs_ctr(qconfig, nn.Linear(2, 2, device="meta"))
    theirs = oracle.qconfig._add_module_to_qconfig_obs_ctr(
        getattr(oracle.qconfig, name), nn.Linear(2, 2, device="meta")
    )
    for got, expected, before in zip(placed, theirs, qconfig):
        assert hasattr(got, "callable_args") == hasattr(expected, "callable_args")
        if getattr(expected, "callable_args", None):
            watcher = got()
            observer = getattr(watcher, "activation_post_process", watcher)
            assert {buffer.device.type for buffer in observer.buffers()} <= {"meta"}
        else:  # it takes no factory_kwargs
            assert got is before


def test_the_device_is_asked_for_when_an_observer_is_built() -> None:
    module = nn.Linear(2, 2)
    qconfig = add_module_to_qconfig_obs_ctr(ours.default_qconfig, module)
    assert qconfig.activation().eps.device.type == "cpu"
    module.to("meta")
    assert qconfig.activation().eps.device.type == "meta"


def test_a_buffer_tells_the_device_where_there_are_no_parameters() -> None:
    module = nn.BatchNorm1d(2, affine=False, device="meta")
    assert add_module_to_qconfig_obs_ctr(ours.default_qconfig, module).weight().eps.device.type == "meta"


def test_a_module_without_tensors_leaves_the_device_open() -> None:
    qconfig = add_module_to_qconfig_obs_ctr(ours.default_qconfig, nn.ReLU())
    with torch.device("meta"):
        assert qconfig.weight().eps.device.type == "meta"
    assert qconfig.weight().eps.device.type == "cpu"


def test_what_is_no_qconfig_comes_back_as_it_is() -> None:
    assert add_module_to_qconfig_obs_ctr(None, nn.ReLU()) is None
    assert add_module_to_qconfig_obs_ctr(ours.default_qconfig, None) is ours.default_qconfig


def test_a_qconfig_for_a_device_does_not_keep_the_module_alive() -> None:
    module = nn.Linear(2, 2, device="meta")
    gone = weakref.ref(module)
    qconfig = add_module_to_qconfig_obs_ctr(ours.default_qconfig, module)
    del module
    assert gone() is None
    assert qconfig.activation().eps.device.type == "meta"  # the last one known


def test_a_model_with_qconfigs_for_its_device_can_be_copied_and_pickled() -> None:
    """PyTorch's cannot be pickled: it holds a local function."""
    module = nn.Linear(2, 2, device="meta")
    module.qconfig = add_module_to_qconfig_obs_ctr(ours.default_qconfig, module)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert qconfig_equals(twin.qconfig, ours.default_qconfig)
        assert twin.qconfig.weight().eps.device.type == "meta"
