"""Fake-quantize modules against PyTorch's of the same name and arguments: values, gradients, buffers, step by step."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import assume, given
from observer_pairs import (
    FLOATS,
    KINDS,
    MANY_RANGES,
    ONE_RANGE,
    PER_CHANNEL_SCHEMES,
    PER_TENSOR_SCHEMES,
    assert_equal,
    assert_same_qparams,
    assert_same_settings,
    assert_same_state,
    ids_of_buffers,
    ours,
    pair,
    quietly,
    theirs,
)
from oracle_vectors import VECTORS
from strategies import examples, generator, lay_out, layouts, seeds

import zeropoint
from zeropoint.fake_quant import (
    FakeQuantize,
    FixedQParamsFakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    _LearnableFakeQuantize,
)
from zeropoint.observers import (
    FixedQParamsObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)

# PyTorch fails on an average of a constant whose ends pass each other by rounding.
PLAIN = tuple(kind for kind in KINDS if kind not in ("huge", "constant"))


def step(module: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Value and gradient of one training step."""
    leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    upstream = torch.randn(x.shape, generator=generator(7)).to(x.dtype)
    with quietly():
        y = module(leaf)
        if y is leaf:
            return y.detach(), None
        (gradient,) = torch.autograd.grad(y, leaf, upstream)
    return y.detach(), gradient


def assert_same_step(both: tuple[Any, Any], x: torch.Tensor) -> None:
    (y, gradient), (expected, expected_gradient) = (step(module, x) for module in both)
    assert_equal(y, expected, "value")
    if gradient is None or expected_gradient is None:
        assert gradient is expected_gradient or torch.equal(y, x)
    else:
        assert_equal(gradient, expected_gradient, "gradient")
    assert_same_state(*both)


@st.composite
def arguments(draw: st.DrawFn, *, fused: bool = False, per_channel: bool = False) -> dict[str, Any]:
    dtype = draw(st.sampled_from([torch.quint8, torch.qint8]))
    limits = {
        torch.quint8: [(0, 255), (0, 127), (0, 15), (0, 3)],
        torch.qint8: [(-128, 127), (-127, 127), (-8, 7), (-2, 1)],
    }
    schemes = PER_CHANNEL_SCHEMES[: 2 if fused else 3] if per_channel else PER_TENSOR_SCHEMES
    scheme = draw(st.sampled_from(schemes))
    names = MANY_RANGES if per_channel else ONE_RANGE
    given: dict[str, Any] = {
        "observer": names[1] if fused else draw(st.sampled_from(names)),
        "dtype": dtype,
        "qscheme": scheme,
    }
    if fused or draw(st.booleans()):
        given["quant_min"], given["quant_max"] = draw(st.sampled_from(limits[dtype]))
    narrow = given.get("quant_max", 255) - given.get("quant_min", 0) < 15
    symmetric = scheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric)
    if not narrow and not (symmetric and dtype == torch.quint8):
        given["reduce_range"] = draw(st.booleans())
    if given["observer"].startswith("Moving"):
        given["averaging_constant"] = draw(st.sampled_from([0.01, 0.5, 1.0]))
    return given


def toggled(data: st.DataObject, both: tuple[Any, Any]) -> None:
    """Sometimes one of the four switches, on both alike."""
    name = data.draw(
        st.sampled_from([None, None, "disable_fake_quant", "enable_fake_quant", "disable_observer", "enable_observer"])
    )
    if name is not None:
        both[0].apply(getattr(zeropoint.fake_quant, name))
        both[1].apply(getattr(torch.ao.quantization, name))


@given(data=st.data())
def test_per_tensor_streams_equal_the_oracle(isa, data):
    both = pair("FakeQuantize", **data.draw(arguments()))
    assert_same_settings(*both)
    for _ in range(data.draw(st.integers(1, 4))):
        toggled(data, both)
        x = KINDS[data.draw(st.sampled_from(PLAIN))](generator(data.draw(seeds)), (3, 5, 7)).to(torch.float32)
        x = x.clamp(-6e4, 6e4).to(data.draw(st.sampled_from(FLOATS)))  # float16 ends soon after
        assert_same_step(both, lay_out(x, data.draw(layouts)))
    assert_same_qparams(*both)


@given(data=st.data())
def test_per_channel_streams_equal_the_oracle(isa, data):
    axis = data.draw(st.integers(0, 2))
    given = data.draw(arguments(per_channel=True))
    # Float zero points are added with FMA or without: ops/test_fake_quantize_oracle.py looks at that alone.
    assume(VECTORS or given["qscheme"] != torch.per_channel_affine_float_qparams)
    both = pair("FakeQuantize", ch_axis=axis, **given)
    assert_same_settings(*both)
    for _ in range(data.draw(st.integers(1, 3))):
        x = KINDS[data.draw(st.sampled_from(PLAIN))](generator(data.draw(seeds)), (3, 5, 7)).to(torch.float32)
        assert_same_step(both, lay_out(x, data.draw(layouts)))
        toggled(data, both)
    assert_same_qparams(*both)


@given(data=st.data())
def test_fused_per_tensor_streams_equal_the_oracle(isa, data):
    both = pair("FusedMovingAvgObsFakeQuantize", **data.draw(arguments(fused=True)))
    assert_same_settings(*both)
    for _ in range(data.draw(st.integers(1, 5))):
        toggled(data, both)
        x = KINDS[data.draw(st.sampled_from(PLAIN))](generator(data.draw(seeds)), (3, 5, 7)).to(torch.float32)
        assert_same_step(both, lay_out(x, data.draw(layouts)))


@given(data=st.data())
def test_fused_per_channel_streams_equal_the_oracle(isa, data):
    # PyTorch's fused operator has the channels first, whatever the axis.
    both = pair("FusedMovingAvgObsFakeQuantize", ch_axis=0, **data.draw(arguments(fused=True, per_channel=True)))
    x = torch.ones(6, 5, 7)
    assert_same_step(both, x)
    for _ in range(data.draw(st.integers(1, 4))):
        toggled(data, both)
        x = KINDS[data.draw(st.sampled_from(PLAIN))](generator(data.draw(seeds)), (6, 5, 7)).to(torch.float32)
        assert_same_step(both, lay_out(x, data.draw(layouts)))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_fused_channels_may_be_any_axis(isa, axis):
    """What PyTorch cannot: the same as with that axis first."""
    one = FusedMovingAvgObsFakeQuantize(MovingAveragePerChannelMinMaxObserver, ch_axis=axis, averaging_constant=0.5)
    two = FusedMovingAvgObsFakeQuantize(MovingAveragePerChannelMinMaxObserver, ch_axis=0, averaging_constant=0.5)
    for seed in range(3):
        x = torch.randn(3, 4, 5, generator=generator(seed))
        (y, gradient), (expected, other) = step(one, x), step(two, x.movedim(axis, 0).contiguous())
        assert_equal(y.movedim(axis, 0), expected)
        assert gradient is not None
        assert other is not None
        assert gradient.shape == x.shape
    assert_same_state(one, two)


@pytest.mark.parametrize("shape", [(64, 33, 21), (2, 64, 28, 28)], ids=str)
@pytest.mark.parametrize("name", ["FakeQuantize", "FusedMovingAvgObsFakeQuantize"])
def test_large_tensors_on_two_threads_equal_the_oracle(isa, name, shape):
    for options in ({}, {"observer": "MovingAveragePerChannelMinMaxObserver"}):
        both = pair(name, **options)
        for seed in range(2):
            assert_same_step(both, torch.randn(shape, generator=generator(seed)))


def test_fused_modules_switch_step_by_step_as_the_operator():
    """Off, then observing, then both: against the bare operator with its own state."""
    module = FusedMovingAvgObsFakeQuantize(averaging_constant=0.001)
    module.disable_observer()
    module.disable_fake_quant()
    low, high = torch.tensor(float("inf")), torch.tensor(float("-inf"))
    scale, zero_point = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    for i in range(8):
        if i == 2:
            module.enable_observer()
        if i == 4:
            module.enable_fake_quant()
        x = torch.randn(5, 5, generator=generator(i))
        switches = module.observer_enabled, module.fake_quant_enabled
        expected = torch.fused_moving_avg_obs_fake_quant(
            x, *switches, low, high, scale, zero_point, 0.001, 0, 255, 0, False
        )
        assert_equal(module(x), expected)
        assert_equal(module.activation_post_process.min_val, low)
        assert_equal(module.activation_post_process.max_val, high)
        assert_equal(module.scale, scale)
        assert_equal(module.zero_point, zero_point)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("rows", [False, True], ids=["per-tensor", "per-row"])
@given(data=st.data())
def test_fused_operator_equals_the_oracle_step_by_step(isa, rows, symmetric, data):
    qmin, qmax = data.draw(st.sampled_from([(0, 255), (-128, 127), (0, 127), (-8, 7), (-127, 127), (0, 15)]))
    count = 4 if rows else 1
    states = [
        (
            torch.full((count,), float("inf")),
            torch.full((count,), float("-inf")),
            torch.ones(count),
            torch.zeros(count, dtype=torch.int32),
        )
        for _ in range(2)
    ]
    rate = data.draw(st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    for i in range(data.draw(st.integers(1, 5))):
        on = [torch.tensor([data.draw(st.integers(0, 1)) if i else 1]) for _ in range(2)]
        x = KINDS[data.draw(st.sampled_from(PLAIN))](generator(data.draw(seeds)), (4, 9)).to(torch.float32)
        x.requires_grad_()
        outputs = []
        for function, state in zip(
            (torch.ops.zeropoint.fused_moving_avg_obs_fake_quant, torch.fused_moving_avg_obs_fake_quant), states
        ):
            y = function(x, *on, *state, rate, qmin, qmax, 0, rows, symmetric)
            outputs.append((y.detach(), *torch.autograd.grad(y, x, torch.ones_like(y)), *state))
        for what, a, b in zip(("value", "gradient", "min", "max", "scale", "zero_point"), *outputs):
            assert_equal(a, b, what)


@pytest.mark.parametrize("rows", [False, True], ids=["per-tensor", "per-row"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("qmin", "qmax"), [(0, 63), (0, 127), (0, 255), (-128, 127), (0, 15), (0, 3)])
def test_fused_zero_points_of_even_ranges_are_rounded_as_the_oracle_rounds_them(rows, dtype, qmin, qmax):
    """[-v, v] has its zero point on a tie, which the last bit of the scale decides."""
    ends = torch.cat([torch.arange(1, 41) / 8, torch.rand(40, generator=generator(0)) * 4 + 0.1])
    for v in ends.tolist():
        x = torch.tensor([[-v, v]])
        found = []
        for function in (torch.ops.zeropoint.fused_moving_avg_obs_fake_quant, torch.fused_moving_avg_obs_fake_quant):
            state = torch.tensor([torch.inf]), torch.tensor([-torch.inf]), torch.ones(1), torch.zeros(1).int()
            kind = dtype if function is torch.ops.zeropoint.fused_moving_avg_obs_fake_quant else torch.float32
            on = torch.tensor([1])
            function(x.to(kind), on, on, *state, 0.1, qmin, qmax, 0, rows, False)
            found.append(state)
        for a, b in zip(*found):
            assert_equal(a, b)


def test_fused_operator_grows_empty_state():
    state = torch.empty(0), torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.int32)
    on = torch.tensor([1])
    x = torch.randn(3, 4, generator=generator(0))
    torch.ops.zeropoint.fused_moving_avg_obs_fake_quant(x, on, on, *state, 0.1, 0, 255, 0, True)
    assert [t.shape for t in state] == [(3,)] * 4
    assert_equal(state[0], x.amin(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_fused_modules_take_every_float(dtype):
    module, plain = FusedMovingAvgObsFakeQuantize(), FusedMovingAvgObsFakeQuantize()
    x = torch.randn(5, 6, generator=generator(0)).to(dtype)
    y, gradient = step(module, x)
    expected, _ = step(plain, x.to(torch.float32))
    assert y.dtype == dtype
    torch.testing.assert_close(y.to(torch.float32), expected, rtol=1e-2, atol=plain.scale.item() / 2)
    assert gradient is not None
    assert gradient.dtype == dtype
    assert_equal(module.activation_post_process.min_val, plain.activation_post_process.min_val)


# ------------------------------------------------------------------------------------------------------- defaults

DEFAULTS = [n for n in zeropoint.fake_quant.__all__ if n.startswith("default_") or "range_neg_127" in n]


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_default_fake_quantize_is_the_oracles(name):
    both = pair(name)
    assert type(both[0]).__name__ == type(both[1]).__name__
    assert type(both[0].activation_post_process).__name__ == type(both[1].activation_post_process).__name__
    assert_same_settings(*both)
    assert_same_settings(both[0].activation_post_process, both[1].activation_post_process)
    for seed in range(3):
        assert_same_step(both, torch.randn(4, 6, generator=generator(seed)) * (seed + 1))
    assert_same_qparams(*both)


def test_no_default_fake_quantize_is_missing():
    module = torch.ao.quantization.fake_quantize
    names = [
        n for n in vars(module) if (n.startswith("default_") or "range_neg_127" in n) and not n.endswith("observer")
    ]
    assert sorted(names) == sorted(DEFAULTS)


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_default_fake_quantize_scripts_saves_and_loads(name):
    eager, scripted = ours(name)(), torch.jit.script(ours(name)())
    for seed in range(2):
        x = torch.randn(4, 6, generator=generator(seed))
        assert_equal(scripted(x), eager(x))
    loaded = reloaded(scripted)
    x = torch.randn(4, 6, generator=generator(5))
    expected = eager(x)
    for other in (scripted, loaded):
        assert_equal(other(x), expected)
        assert_same_state(other, eager)
        assert_same_qparams(other, eager)


def reloaded(scripted: Any) -> Any:
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


# --------------------------------------------------------------------------------------- fixed, switches, scripting

FIXED = FixedQParamsObserver.with_args(scale=0.5, zero_point=0)


@pytest.mark.parametrize(
    "name", ["default_fixed_qparams_range_0to1_fake_quant", "default_fixed_qparams_range_neg1to1_fake_quant"]
)
def test_fixed_parameters_stay_whatever_comes(name):
    both = pair(name)
    fixed = both[0].calculate_qparams()[0].clone()
    for seed in range(3):
        assert_same_step(both, torch.randn(40, generator=generator(seed)) * 100)
    assert_equal(both[0].scale, fixed)
    assert both[0].scale is both[0].activation_post_process.scale


MODULES: dict[str, Any] = {
    "plain": FakeQuantize,
    "per-channel": FakeQuantize.with_args(observer=MovingAveragePerChannelMinMaxObserver),
    "fused": FusedMovingAvgObsFakeQuantize,
    "fused-per-channel": FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAveragePerChannelMinMaxObserver),
    "fixed": FixedQParamsFakeQuantize.with_args(observer=FIXED),
}
each_module = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES.keys())


@each_module
@pytest.mark.parametrize("prepared", [lambda m: m, torch.jit.script], ids=["eager", "scripted"])
def test_switches_work_on_eager_and_scripted_models(make, prepared):
    model = torch.nn.Sequential(make())
    model = prepared(model)
    module = model[0]
    x = torch.randn(4, 6, generator=generator(0))
    model(x)
    for function, switch, value in (
        (zeropoint.disable_observer, "observer_enabled", 0),
        (zeropoint.disable_fake_quant, "fake_quant_enabled", 0),
    ):
        model.apply(function)
        assert getattr(module, switch).item() == value
    seen = {k: v.clone() for k, v in model.state_dict().items()}
    assert_equal(model(x * 9), x * 9)
    for key, tensor in model.state_dict().items():
        assert_equal(tensor, seen[key])
    model.apply(zeropoint.enable_fake_quant)
    model.apply(zeropoint.enable_observer)
    assert (module.fake_quant_enabled.item(), module.observer_enabled.item()) == (1, 1)
    assert not torch.equal(model(x * 9), x * 9)


@each_module
def test_buffers_are_modified_in_place_only(make):
    module = make()
    ids = ids_of_buffers(module)
    for seed in range(4):
        module(torch.randn(4, 4, 4, generator=generator(seed)))
    for function in ("enable_fake_quant", "disable_fake_quant", "enable_observer", "disable_observer"):
        module.apply(getattr(zeropoint, function))
    assert ids_of_buffers(module) == ids


@each_module
def test_copies_pickles_and_empty_tensors(make):
    module = make()
    module(torch.randn(4, 4, generator=generator(0)))
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_same_state(again, module)
        x = torch.randn(4, 4, generator=generator(1))
        expected = copy.deepcopy(module)(x)
        assert_equal(again(x), expected)


@pytest.mark.parametrize(
    "make", [FakeQuantize, FusedMovingAvgObsFakeQuantize, FixedQParamsFakeQuantize.with_args(observer=FIXED)]
)
def test_an_empty_tensor_is_no_data(make):
    with quietly():
        assert make()(torch.empty(0)).shape == (0,)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("FakeQuantize", {}),
        ("FakeQuantize", {"observer": "PerChannelMinMaxObserver"}),
        ("FakeQuantize", {"observer": "HistogramObserver"}),
        ("FakeQuantize", {"observer": "MovingAveragePerChannelMinMaxObserver", "qscheme": PER_CHANNEL_SCHEMES[2]}),
        ("FusedMovingAvgObsFakeQuantize", {}),
        ("FusedMovingAvgObsFakeQuantize", {"observer": "MovingAveragePerChannelMinMaxObserver"}),
        ("default_fixed_qparams_range_0to1_fake_quant", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_state_dicts_move_to_the_oracle_and_back(name, options):
    mine, other = pair(name, **options)
    for seed in range(2):
        assert_same_step((mine, other), torch.randn(4, 6, generator=generator(seed)))
    mine.disable_observer(), other.disable_observer()
    again = pair(name, **options)
    ids = ids_of_buffers(again[0])
    with quietly():
        again[0].load_state_dict(copy.deepcopy(other.state_dict()))
        again[1].load_state_dict(copy.deepcopy(mine.state_dict()))
    assert ids_of_buffers(again[0]) == ids
    assert_same_state(*again)
    assert_same_step(again, torch.randn(4, 6, generator=generator(3)))


def test_per_channel_parameters_are_serializable_by_hand():
    module = FakeQuantize(zeropoint.default_per_channel_weight_observer, -128, 127)
    module(torch.tensor([[-5, -3.5, -2, 0, 3, 5, 7], [1, 3, 2, 5, 6.5, 8, 10]]))
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    torch.testing.assert_close(state["scale"], torch.tensor([7 / 127.5, 10 / 127.5]))
    assert state["zero_point"].tolist() == [0, 0]


def test_the_range_of_the_observer_may_be_overridden():
    observer = zeropoint.default_per_channel_weight_observer
    assert FakeQuantize(observer).activation_post_process.quant_min == -128
    found = FakeQuantize(observer, quant_min=0, quant_max=127).activation_post_process
    assert (found.quant_min, found.quant_max) == (0, 127)


def test_reduced_ranges_reach_the_fused_observer():
    found = FusedMovingAvgObsFakeQuantize(quant_min=0, quant_max=255, dtype=torch.quint8, reduce_range=True)
    assert (found.activation_post_process.quant_min, found.activation_post_process.quant_max) == (0, 127)
    assert (found.quant_min, found.quant_max) == (0, 127)


def test_dynamic_modules_are_marked_and_remember_nothing():
    both = pair("default_dynamic_fake_quant")
    assert both[0].is_dynamic
    for scale in (1.0, 100.0, 1.0):
        assert_same_step(both, scale * torch.linspace(-1, 1, 11))
    assert both[0].scale.item() == pytest.approx(2 / 255, rel=1e-5)


def test_fused_and_plain_modules_agree_within_one_step_of_their_scale():
    fused, plain = FusedMovingAvgObsFakeQuantize(), FakeQuantize()
    for seed in range(10):
        x = torch.randn(5, 5, generator=generator(seed))
        torch.testing.assert_close(fused(x), plain(x), rtol=0, atol=1.01 * plain.scale.item())
        assert_equal(fused.activation_post_process.min_val, plain.activation_post_process.min_val)


@pytest.mark.parametrize(
    ("make", "backend"),
    [
        (MODULES["plain"], "aot_eager"),
        (MODULES["fused"], "aot_eager"),
        pytest.param(MODULES["fused"], "inductor", marks=pytest.mark.thorough),  # compiles C++
    ],
    ids=["plain-aot_eager", "fused-aot_eager", "fused-inductor"],
)
def test_compiled_modules_train_as_eager_ones(make, backend):
    eager, module = make(), make()
    compiled = torch.compile(lambda t: module(t * 2) + 1, fullgraph=make is MODULES["fused"], backend=backend)
    for seed in range(3):
        x = torch.randn(6, 7, generator=generator(seed))
        (y, gradient), (expected, other) = step(compiled, x), step(lambda t: eager(t * 2) + 1, x)
        assert_equal(y, expected)
        assert_equal(gradient, other)
        assert_same_state(module, eager)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_fused_modules_per_channel_train_as_eager_ones(backend):
    eager, module = MODULES["fused-per-channel"](), MODULES["fused-per-channel"]()
    x = torch.randn(6, 7, generator=generator(9))
    eager(x), module(x)  # the number of channels is known from here
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    for seed in range(2):
        x = torch.randn(6, 7, generator=generator(seed))
        (y, gradient), (expected, other) = step(compiled, x), step(eager, x)
        assert_equal(y, expected)
        assert_equal(gradient, other)
        assert_same_state(module, eager)


# ------------------------------------------------------------------------------------------------------- bad input


def test_refusals_name_what_was_wrong():
    with pytest.raises(ValueError, match=r"0\.\.255 is not inside .*qint8's -128\.\.127"):
        FakeQuantize(quant_min=0, quant_max=255, dtype=torch.qint8)
    with pytest.raises(ValueError, match=r"must not be above quant_max, got 5 and 3"):
        FakeQuantize(quant_min=5, quant_max=3)
    with pytest.raises(TypeError, match=r"MovingAverage.*HistogramObserver"):
        FusedMovingAvgObsFakeQuantize(zeropoint.HistogramObserver)
    with pytest.raises(TypeError, match="FixedQParamsObserver"):
        FixedQParamsFakeQuantize(MovingAverageMinMaxObserver)
    with pytest.raises(ValueError, match="quant_min must be below quant_max, got 3 and 3"):
        _LearnableFakeQuantize(MovingAverageMinMaxObserver, quant_min=3, quant_max=3)
    with pytest.raises(ValueError, match=r"channel_len.*got 0"):
        _LearnableFakeQuantize(MovingAveragePerChannelMinMaxObserver, channel_len=0)


def test_dtypes_of_nested_constructors_are_found():
    """A range that the innermost dtype holds is taken, one that it does not is refused."""
    made = MovingAverageMinMaxObserver.with_args(dtype=torch.qint8).with_args(averaging_constant=0.5)
    assert FakeQuantize(made, quant_min=-128, quant_max=127).quant_min == -128
    with pytest.raises(ValueError, match="qint8"):
        FakeQuantize(made, quant_min=0, quant_max=255)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("rows", [False, True], ids=["per-tensor", "per-row"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fused_modules_refuse_what_is_not_finite_and_lose_nothing(value, rows, dtype):
    module = MODULES["fused-per-channel" if rows else "fused"]()
    module(torch.randn(3, 4, generator=generator(0)))
    before = {k: v.clone() for k, v in module.state_dict().items()}
    x = torch.ones(3, 4, dtype=dtype)
    x[1, 2] = value
    with pytest.raises(ValueError, match=r"must be finite to be observed.*unchanged"):
        module(x)
    for key, tensor in module.state_dict().items():
        assert_equal(tensor, before[key])
    module.disable_observer()
    module(x)  # it is not observed now


def test_fused_operator_refuses_a_symmetric_range_without_two_sides():
    """PyTorch divides by zero, and answers NaN ever after."""
    state = [torch.full((1,), float("inf")), torch.full((1,), float("-inf")), torch.ones(1), torch.zeros(1).int()]
    on = torch.tensor([1])
    with pytest.raises(ValueError, match=r"symmetric.*0\.\.1"):
        torch.ops.zeropoint.fused_moving_avg_obs_fake_quant(torch.ones(3), on, on, *state, 0.1, 0, 1, 0, False, True)
    assert state[0].item() == float("inf")


def test_fused_modules_warn_when_nothing_was_observed():
    module = FusedMovingAvgObsFakeQuantize()
    module.disable_observer()
    with pytest.warns(UserWarning, match="the observer saw no data"):
        module(torch.ones(3))


def test_fused_modules_refuse_another_number_of_channels():
    module = MODULES["fused-per-channel"]()
    module(torch.randn(3, 4, generator=generator(0)))
    with pytest.raises(ValueError, match=r"running_min.*3.*4|running_min.*4.*3"):
        module(torch.randn(4, 4))
    assert module.scale.shape == (3,)


@examples(20)
@given(shape=st.sampled_from([(2, 3), (2, 3, 4), (5, 2, 3, 3)]), seed=seeds)
def test_theirs_and_ours_agree_on_any_rank(shape, seed):
    both = pair("FakeQuantize", observer="PerChannelMinMaxObserver", ch_axis=1)
    assert_same_step(both, torch.randn(shape, generator=generator(seed)))
    assert theirs("FakeQuantize") is not ours("FakeQuantize")


def test_observers_of_others_may_have_schemes_of_torch() -> None:
    class Theirs(torch.nn.Module):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            self.quant_min, self.quant_max, self.is_dynamic, self.ch_axis = -128, 127, False, 0
            self.dtype, self.qscheme = torch.qint8, torch.per_channel_symmetric

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

        def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.full((3,), 0.5), torch.zeros(3, dtype=torch.int32)

    fake_quantize = zeropoint.FakeQuantize(Theirs)
    assert fake_quantize.is_per_channel
    assert torch.equal(fake_quantize(torch.full((3, 2), 0.7)), torch.full((3, 2), 0.5))
