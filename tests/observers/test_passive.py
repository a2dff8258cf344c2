"""Observers that find no range, constructors with arguments given, and every default observer."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from observer_pairs import (
    assert_equal,
    assert_same_qparams,
    assert_same_settings,
    assert_same_state,
    assert_twins,
    feed,
    ids_of_buffers,
    ours,
    pair,
    quietly,
    theirs,
)
from strategies import generator

import zeropoint
from zeropoint.observers import (
    FixedQParamsObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    RecordingObserver,
    ReuseInputObserver,
)
from zeropoint.observers.partial import PartialWrapper

IDLE: list[Any] = [NoopObserver, PlaceholderObserver, RecordingObserver, ReuseInputObserver]
each_idle = pytest.mark.parametrize("kind", IDLE, ids=lambda kind: kind.__name__)


@each_idle
def test_tensors_pass_unchanged_and_have_no_parameters(kind):
    observer = kind()
    x = torch.randn(3, 4, requires_grad=True)
    assert observer(x) is x
    assert list(observer.buffers()) == []
    with pytest.raises(RuntimeError, match=kind.__name__):
        observer.calculate_qparams()


@each_idle
def test_settings_are_the_oracles(kind):
    assert_same_settings(*pair(kind.__name__))


@each_idle
def test_idle_observers_script_copy_and_pickle(kind):
    observer = kind()
    scripted = torch.jit.script(observer)
    x = torch.randn(3, 4)
    assert torch.equal(scripted(x), x)
    for again in (copy.deepcopy(observer), pickle.loads(pickle.dumps(observer))):
        assert again.dtype == observer.dtype
        assert again(x) is x


def test_placeholder_keeps_what_it_is_given():
    given = {"dtype": torch.quint8, "custom_op_name": "mine", "quant_min": 0, "quant_max": 255, "is_dynamic": True}
    mine, other = pair("PlaceholderObserver", **given, eps=2**-12, qscheme=torch.per_tensor_symmetric)
    assert_same_settings(mine, other)
    assert mine.eps == other.eps
    assert pair("PlaceholderObserver")[0].eps == pair("PlaceholderObserver")[1].eps
    assert str(pair("PlaceholderObserver", dtype=torch.float16)[0]) == (
        "PlaceholderObserver(dtype=torch.float16, is_dynamic=False)"
    )


def test_the_old_name_of_dynamic_still_means_it():
    with pytest.warns(UserWarning, match="is_dynamic=True"):
        assert PlaceholderObserver(compute_dtype=torch.quint8).is_dynamic


@pytest.mark.parametrize("dtype", ["qint8", "quint8"])
def test_recording_observer_keeps_copies_in_order(dtype):
    observer = RecordingObserver(dtype=dtype)
    x = torch.zeros(3)
    for i in range(3):
        x.fill_(i)
        assert observer(x) is x
    assert [t.tolist() for t in observer.get_tensor_value()] == [[0.0] * 3, [1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("dtype", ["qint8", "quint8"])
def test_recording_observer_keeps_its_tensors_when_scripted_and_saved(dtype):
    scripted = torch.jit.script(RecordingObserver(dtype=dtype))
    x = torch.randn(3, 4, generator=generator(0))
    scripted(x)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    for observer in (scripted, loaded):
        assert_equal(observer.get_tensor_value()[0], x)


def test_fixed_parameters_are_answered_as_given():
    both = pair("FixedQParamsObserver", scale=0.1, zero_point=3, dtype=torch.qint8, quant_min=-8, quant_max=7)
    for x in (torch.empty(0), torch.randn(3)):
        for answer in feed(both, x):
            assert answer is x
        assert_twins(*both)
    scripted = torch.jit.script(both[0])
    assert_same_qparams(scripted, both[1])
    with pytest.raises(NotImplementedError, match="FixedQParamsObserver"):
        FixedQParamsObserver(0.1, 0, is_dynamic=True)


def test_fixed_parameters_load_from_the_oracle():
    mine, _ = pair("FixedQParamsObserver", scale=1.0, zero_point=0)
    _, other = pair("FixedQParamsObserver", scale=0.25, zero_point=7)
    ids = ids_of_buffers(mine)
    mine.load_state_dict(other.state_dict())
    assert_same_qparams(mine, other)
    assert ids_of_buffers(mine) == ids
    assert FixedQParamsObserver(1.0, 0, factory_kwargs={"device": "meta"}).scale.device.type == "meta"


# --------------------------------------------------------------------------------------------- arguments given before


def test_arguments_given_first_are_overridden_by_those_given_later():
    made = MinMaxObserver.with_args(quant_min=0, quant_max=127)
    assert isinstance(made, PartialWrapper)
    assert (made().quant_min, made().quant_max) == (0, 127)
    assert made(quant_max=63).quant_max == 63
    assert made.with_args(quant_max=31)().quant_max == 31
    assert made.with_args(quant_max=31).with_args(quant_max=15)(quant_max=7).quant_max == 7
    assert made().quant_max == 127  # untouched by all that
    assert made() is not made()


def test_callable_arguments_are_called_at_each_use():
    calls = []

    def constant() -> float:
        calls.append(None)
        return 0.1 * len(calls)

    made = MovingAverageMinMaxObserver.with_callable_args(averaging_constant=constant).with_args(dtype="qint8")
    assert calls == []
    assert [made().averaging_constant for _ in range(2)] == [pytest.approx(0.1), pytest.approx(0.2)]
    assert made(averaging_constant=0.9).averaging_constant == 0.9
    assert len(calls) == 2  # given outright: not asked for
    assert made().dtype == zeropoint.qint8


def test_callable_arguments_are_inherited():
    base = MovingAverageMinMaxObserver.with_callable_args(averaging_constant=lambda: 0.25)
    both = base.with_callable_args(quant_max=lambda: 15).with_args(quant_min=0)
    observer = both()
    assert (observer.averaging_constant, observer.quant_min, observer.quant_max) == (0.25, 0, 15)
    assert base().quant_max == 255


def test_constructors_answer_as_the_oracles():
    for side in (ours, theirs):
        with quietly():
            kind = side("PerChannelMinMaxObserver")
            made = kind.with_args(ch_axis=1).with_callable_args(factory_kwargs=lambda: {"dtype": torch.float64})
            again = made.with_args(ch_axis=2)
            assert (made().ch_axis, again().ch_axis) == (1, 2)
            assert made().min_val.dtype == again().min_val.dtype == torch.float64
            assert "ch_axis" in repr(made)
            assert made.p.keywords == {"ch_axis": 1}


def test_constructors_pickle_and_copy():
    made = PerChannelMinMaxObserver.with_args(ch_axis=1)
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert again().ch_axis == 1


# ------------------------------------------------------------------------------------------------------- defaults

DEFAULTS = [name for name in zeropoint.observers.__all__ if name.startswith(("default_", "weight_", "per_channel_w"))]


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_default_observer_is_the_oracles(name):
    both = pair(name)
    assert type(both[0]).__name__ == type(both[1]).__name__
    assert_same_settings(*both)
    if hasattr(both[1], "eps"):
        assert both[0].eps == both[1].eps
    for seed in range(2):
        feed(both, torch.randn(4, 6, generator=generator(seed)) * (seed + 1))
    assert_same_state(*both)
    if list(both[1].buffers()):
        assert_same_qparams(*both)


def test_no_default_observer_is_missing():
    module = torch.ao.quantization.observer
    names = [n for n in vars(module) if n.startswith("default_") or n.endswith("range_neg_127_to_127")]
    assert sorted(names) == sorted(DEFAULTS)


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_default_observer_scripts(name):
    scripted = torch.jit.script(ours(name)())
    x = torch.randn(4, 6)
    assert torch.equal(scripted(x), x)
