"""Observers of ranges against PyTorch's of the same name and arguments, tensor by tensor."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from observer_pairs import (
    FLOATS,
    PER_CHANNEL_SCHEMES,
    PER_TENSOR_SCHEMES,
    RANGES,
    any_shape,
    assert_equal,
    assert_same_qparams,
    assert_same_state,
    assert_twins,
    batches,
    feed,
    ids_of_buffers,
    pair,
    qparams,
    quietly,
    upside_down,
)
from strategies import examples, generator

from zeropoint.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)

PER_TENSOR = ("MinMaxObserver", "MovingAverageMinMaxObserver")
PER_CHANNEL = ("PerChannelMinMaxObserver", "MovingAveragePerChannelMinMaxObserver")
OURS: list[Any] = [
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    HistogramObserver,
]
every_observer = pytest.mark.parametrize("name", [*PER_TENSOR, *PER_CHANNEL, "HistogramObserver"])
each_of_ours = pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)


@st.composite
def arguments(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Constructor arguments that PyTorch takes."""
    dtype = draw(st.sampled_from(list(RANGES)))
    scheme = draw(st.sampled_from(PER_CHANNEL_SCHEMES if name in PER_CHANNEL else PER_TENSOR_SCHEMES))
    given: dict[str, Any] = {"dtype": dtype, "qscheme": scheme}
    symmetric = scheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric)
    if not (symmetric and dtype == torch.quint8):
        given["reduce_range"] = draw(st.booleans())
    if draw(st.booleans()):
        given["quant_min"], given["quant_max"] = draw(st.sampled_from(RANGES[dtype]))
        if given.get("reduce_range") and given["quant_max"] - given["quant_min"] < 3:
            given["reduce_range"] = False  # nothing would be left
    if draw(st.booleans()):
        given["eps"] = draw(st.sampled_from([2**-12, 1e-10, 0.1, 1e-45]))
    if "MovingAverage" in name and draw(st.booleans()):
        given["averaging_constant"] = draw(st.sampled_from([0.0, 1e-3, 0.5, 1, 1.0, 0.3]))
    if draw(st.integers(0, 5)) == 5:
        given["factory_kwargs"] = {"dtype": torch.float64}
    return given


@pytest.mark.parametrize("name", PER_TENSOR)
@given(data=st.data())
def test_per_tensor_streams_equal_the_oracle(name, data):
    both = pair(name, **data.draw(arguments(name)))
    assert_twins(*both)  # before any data, too
    for _ in range(data.draw(st.integers(1, 4))):
        x = data.draw(any_shape().flatmap(batches))
        for answer in feed(both, x):
            assert answer is x
        assert_twins(*both)


@pytest.mark.parametrize("name", PER_CHANNEL)
@given(data=st.data())
def test_per_channel_streams_equal_the_oracle(name, data):
    rank = data.draw(st.integers(2, 5))  # PyTorch raises IndexError for a vector
    axis = data.draw(st.integers(0, rank - 1))
    channels = data.draw(st.integers(1, 9))
    negative = data.draw(st.booleans())
    both = pair(name, ch_axis=axis - rank if negative else axis, **data.draw(arguments(name)))
    assert_twins(*both)
    for _ in range(data.draw(st.integers(1, 4))):
        shape = [data.draw(st.integers(1, 5)) for _ in range(rank)]
        shape[axis] = channels
        if data.draw(st.integers(0, 9)) == 9:
            shape[axis - 1] = 0  # an empty batch
        x = data.draw(batches(tuple(shape)))
        for answer in feed(both, x):
            assert answer is x
        assert_twins(*both)


@pytest.mark.parametrize("name", PER_CHANNEL)
def test_each_element_of_a_vector_is_a_channel(name):
    observer, _ = pair(name)
    observer(torch.tensor([1.0, -2.0]))
    observer(torch.tensor([1.0, -2.0]))
    assert_equal(observer.min_val, torch.tensor([1.0, -2.0]))
    assert_equal(observer.max_val, torch.tensor([1.0, -2.0]))


@every_observer
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_large_images_of_any_layout_equal_the_oracle(name, layout):
    both = pair(name, **({"ch_axis": 1} if name in PER_CHANNEL else {}))
    for seed in range(3):
        x = torch.randn(2, 33, 41, 43, generator=generator(seed)).contiguous(memory_format=layout)
        feed(both, x + seed)
        assert_same_state(*both)
    assert_same_qparams(*both)


@pytest.mark.parametrize("name", [*PER_TENSOR, *PER_CHANNEL])
@pytest.mark.parametrize("values", [[float("inf"), 1.0], [-float("inf"), 1.0], [-float("inf"), float("inf")]])
@pytest.mark.parametrize("scheme", ["affine", "symmetric"])
def test_infinities_are_recorded_as_the_oracle_records_them(name, values, scheme):
    kind = "per_channel" if name in PER_CHANNEL else "per_tensor"
    both = pair(name, qscheme=getattr(torch, f"{kind}_{scheme}"), dtype=torch.qint8)
    for x in (torch.tensor([[0.5, 2.0]]), torch.tensor([values])):
        feed(both, x)
        assert_twins(*both)


@pytest.mark.parametrize("name", [*PER_TENSOR, *PER_CHANNEL])
def test_nan_is_recorded_as_the_oracle_records_it(name):
    both = pair(name)
    for x in (torch.ones(1, 3), torch.tensor([[1.0, float("nan"), 2.0]]), torch.zeros(1, 3)):
        feed(both, x)
        assert_same_state(*both)
        assert both[0].min_val.isnan().all() == both[1].min_val.isnan().all()


@pytest.mark.parametrize("last", [1.541, 3.4e38], ids=["by rounding", "by overflow"])
def test_averages_that_passed_each_other_are_recorded_as_the_oracle_records_them(last):
    both = pair("MovingAverageMinMaxObserver", averaging_constant=1.0)
    first = [-1.7, 0.3] if last < 2 else [-3e38, 3e38]
    for x in (first, [last]):
        feed(both, torch.tensor(x))
    assert upside_down(both[1])  # both ways of `assert_same_qparams` do happen
    assert_twins(*both)


@pytest.mark.parametrize(
    "kind", [MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("prepared", [lambda o: o, torch.jit.script], ids=["eager", "scripted"])
def test_averages_of_a_constant_that_rounding_put_in_the_wrong_order_still_have_parameters(kind, prepared):
    """PyTorch fails here, in the middle of training."""
    wrong = 0
    for seed in range(20):
        observer = prepared(kind(averaging_constant=1.0))
        observer(torch.randn(1, 9, generator=generator(seed)))
        observer(torch.full((1, 9), 1.541))
        wrong += int((observer.min_val > observer.max_val).any())
        scale, zero_point = observer.calculate_qparams()
        torch.testing.assert_close(scale, torch.tensor([1.541 / 255]), rtol=1e-5, atol=0)
        assert zero_point.tolist() == [0]
    assert wrong > 0  # it did happen


@pytest.mark.parametrize(
    "kind", [MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("sign", [1, -1])
def test_averages_that_overflow_are_refused_in_words(kind, sign):
    observer = kind()
    observer(sign * torch.tensor([[3.2e38, -2.8e37]]))
    observer(sign * torch.tensor([[-3e38, -3e38]]))
    with pytest.raises(ValueError, match="must not be above the maximum"):
        observer.calculate_qparams()


def test_dynamic_observers_remember_only_the_last_tensor():
    both = pair("MovingAverageMinMaxObserver", averaging_constant=1, is_dynamic=True)
    x = torch.randn(3, 3, generator=generator(0))
    feed(both, x)
    first = qparams(both[0])
    for seed in range(1, 6):
        feed(both, 10 * torch.randn(3, 3, generator=generator(seed)))
        assert_twins(*both)
        assert not torch.equal(qparams(both[0])[0], first[0])
        feed(both, x)
        assert_twins(*both)
        # min + 1 * (x.min() - min) is x.min() but for rounding.
        torch.testing.assert_close(qparams(both[0])[0], first[0], rtol=1e-6, atol=0)
        assert torch.equal(qparams(both[0])[1], first[1])


@pytest.mark.parametrize("shape", [(3, 3), (3, 3, 3), (2, 3, 4, 5)], ids=str)
def test_dynamic_observers_find_what_dynamic_quantization_chooses(shape):
    observer = MovingAverageMinMaxObserver(averaging_constant=1, is_dynamic=True)
    x = torch.randn(shape, generator=generator(1))
    observer(x)
    scale, zero_point = torch._choose_qparams_per_tensor(x)
    assert observer.calculate_qparams()[0].item() == pytest.approx(scale, rel=1e-6)
    assert observer.calculate_qparams()[1].item() == zero_point


# ------------------------------------------------------------------------------------------------- state dicts


def fed(name: str, **options: Any) -> tuple[Any, Any]:
    both = pair(name, **options)
    for seed in range(2):
        feed(both, torch.randn(4, 5, generator=generator(seed)))
    return both


@pytest.mark.parametrize("name", [*PER_TENSOR, *PER_CHANNEL])
@examples(50)
@given(data=st.data())
def test_state_dicts_move_to_the_oracle_and_back(name, data):
    given = data.draw(arguments(name))
    mine, other = pair(name, **given)
    fresh_mine, fresh_other = pair(name, **given)
    if data.draw(st.booleans()):
        feed((mine, other), torch.randn(4, 5, generator=generator(0)))
    with quietly():
        fresh_other.load_state_dict(copy.deepcopy(mine.state_dict()))
        fresh_mine.load_state_dict(copy.deepcopy(other.state_dict()))
    assert_twins(fresh_mine, fresh_other)
    # And they go on from there.
    x = torch.randn(4, 5, generator=generator(1))
    feed((fresh_mine, fresh_other, mine), x)
    assert_twins(fresh_mine, fresh_other)
    assert_twins(mine, fresh_other)


@every_observer
def test_state_dicts_survive_a_file(name, tmp_path):
    mine, other = fed(name)
    torch.save(mine.state_dict(), tmp_path / "state.pt")
    again, _ = pair(name)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert_twins(again, other)
    assert again.state_dict()._metadata[""]["version"] == other.state_dict()._metadata[""]["version"]


@every_observer
def test_loading_changes_buffers_in_place_and_keeps_nothing_of_the_source(name):
    mine, _ = fed(name)
    again, _ = pair(name)
    before = ids_of_buffers(again)
    source = mine.state_dict()
    again.load_state_dict(source)
    assert ids_of_buffers(again) == before
    mine.min_val.fill_(-123.0)
    assert not (again.min_val == -123.0).any()


def old(state: Any, version: int | None) -> Any:
    state = copy.deepcopy(state)
    if version is None:
        state._metadata[""].pop("version")
    else:
        state._metadata[""]["version"] = version
    return state


@every_observer
@pytest.mark.parametrize("version", [None, 1])
def test_files_without_eps_load_with_the_default(name, version):
    mine, other = fed(name)
    state = old(mine.state_dict(), version)
    del state["eps"]
    if name in PER_CHANNEL and version is not None:
        for end in ("min_val", "max_val"):
            state[end + "s"] = state.pop(end)
    again, _ = pair(name)
    again.load_state_dict(state)
    assert_twins(again, other)


@pytest.mark.parametrize("name", PER_CHANNEL)
@pytest.mark.parametrize("version", [1, 2])
def test_files_with_the_old_names_of_ranges_load(name, version):
    mine, other = fed(name)
    state = old(mine.state_dict(), version)
    for end in ("min_val", "max_val"):
        state[end + "s"] = state.pop(end)
    again, _ = pair(name)
    again.load_state_dict(state)
    assert_twins(again, other)


@pytest.mark.parametrize("name", [*PER_TENSOR, "HistogramObserver"])
@pytest.mark.parametrize("seen", [False, True], ids=["fresh", "after data"])
def test_files_with_an_empty_range_mean_no_data(name, seen):
    state = old(pair(name)[0].state_dict(), 2)
    state["min_val"], state["max_val"] = torch.empty(0), torch.empty(0)
    again = fed(name)[0] if seen else pair(name)[0]
    again.load_state_dict(state)
    assert (again.min_val.item(), again.max_val.item()) == (float("inf"), -float("inf"))
    assert again.min_val.shape == ()


@pytest.mark.parametrize("name", PER_CHANNEL)
def test_an_observer_that_saw_data_takes_the_empty_range_of_one_that_did_not(name):
    mine, _ = fed(name)
    mine.load_state_dict(pair(name)[0].state_dict())
    assert mine.min_val.numel() == 0
    mine(torch.ones(7, 2))
    assert mine.min_val.shape == (7,)


@every_observer
def test_strict_loading_reports_missing_and_unknown_keys(name):
    mine, _ = fed(name)
    state = mine.state_dict()
    del state["max_val"]
    with pytest.raises(RuntimeError, match="max_val"):
        pair(name)[0].load_state_dict(state)
    state = mine.state_dict()
    state["something"] = torch.ones(1)
    with pytest.raises(RuntimeError, match="something"):
        pair(name)[0].load_state_dict(state)


@every_observer
def test_nested_modules_load_under_their_prefix(name):
    mine, other = fed(name)
    model, again = torch.nn.Sequential(torch.nn.ReLU(), mine), torch.nn.Sequential(torch.nn.ReLU(), pair(name)[0])
    again.load_state_dict(model.state_dict())
    assert_twins(again[1], other)


# ------------------------------------------------------------------------------------------------- being a module


@every_observer
def test_reset_forgets_everything_in_place(name):
    mine, _other = fed(name)
    before = ids_of_buffers(mine)
    mine.reset_min_max_vals()
    assert ids_of_buffers(mine) == before
    fresh, fresh_other = pair(name)
    assert_same_state(mine, fresh)
    x = torch.randn(3, 2, generator=generator(4))  # as many channels as before are no must
    feed((mine, fresh_other), x)
    assert_twins(mine, fresh_other)


@each_of_ours
def test_buffers_are_modified_in_place_only(kind):
    observer = kind(dtype=torch.qint8)
    before = ids_of_buffers(observer)
    for seed in range(4):
        observer(torch.randn(4, 4, 4, generator=generator(seed)) * (seed + 1))
        observer(torch.empty(0, 4))
        qparams(observer)
    assert ids_of_buffers(observer) == before


@each_of_ours
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["deepcopy", "pickle"])
def test_copies_are_equal_and_independent(kind, copied):
    observer = kind()
    observer(torch.randn(4, 5, generator=generator(0)))
    again = copied(observer)
    assert type(again) is kind
    assert_twins(again, observer)
    again(torch.full((4, 5), 100.0))
    assert observer.max_val.max() < 100
    assert (again.dtype, again.qscheme) == (observer.dtype, observer.qscheme)


@each_of_ours
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients_pass_and_no_graph_is_kept(kind, dtype):
    observer = kind()
    x = torch.randn(4, 5, generator=generator(0)).to(dtype).requires_grad_()
    y = observer(x)
    assert y is x
    (y * 3).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 3))
    assert not observer.min_val.requires_grad
    assert not any(t.requires_grad for t in qparams(observer))


@each_of_ours
def test_buffers_take_device_and_dtype_of_factory_kwargs(kind):
    observer = kind(factory_kwargs={"device": "meta", "dtype": torch.float64})
    for buffer in observer.buffers():
        assert buffer.device.type == "meta"
        assert buffer.dtype == torch.float64


@each_of_ours
def test_float64_observers_keep_what_float32_would_round(kind):
    observer = kind(factory_kwargs={"dtype": torch.float64})
    observer(torch.tensor([[0.1, 0.7 + 1e-12]], dtype=torch.float64))
    assert observer.min_val.flatten()[0].item() == 0.1
    assert observer.max_val.flatten()[0].item() == 0.7 + 1e-12
    assert qparams(observer)[0].dtype == torch.float64


@each_of_ours
def test_moving_a_module_moves_its_buffers(kind):
    observer = kind()
    observer(torch.ones(2, 3))
    assert all(b.dtype == torch.float64 for b in observer.double().buffers())
    assert all(b.device.type == "meta" for b in observer.to("meta").buffers())


@pytest.mark.parametrize(
    "kind", [kind for kind in OURS if "PerChannel" not in kind.__name__], ids=lambda kind: kind.__name__
)
def test_shapes_of_buffers_do_not_change_with_data(kind):
    observer = kind()
    before = [b.shape for b in observer.buffers()]
    for _ in range(2):
        observer(torch.randn(4, 4, 4, 4))
    assert [b.shape for b in observer.buffers()] == before


def reloaded(scripted: Any) -> Any:
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


@each_of_ours
@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8], ids=str)
def test_scripted_observers_equal_eager_ones_and_survive_a_file(kind, dtype):
    scheme = "per_channel_symmetric" if "PerChannel" in kind.__name__ else "per_tensor_symmetric"
    for options in ({}, {"qscheme": getattr(torch, scheme)}):
        eager = kind(dtype=dtype, **options)
        scripted = torch.jit.script(kind(dtype=dtype, **options))
        assert_same_qparams(eager, scripted)  # before data
        empty = reloaded(scripted)
        for seed in range(2):
            x = torch.randn(3, 4, generator=generator(seed)) * (seed + 1)
            assert torch.equal(scripted(x), eager(x))
        loaded = reloaded(scripted)
        for seed in range(2):
            empty(torch.randn(3, 4, generator=generator(seed)) * (seed + 1))
        for other in (scripted, loaded, empty):
            assert_same_state(eager, other)
            assert_same_qparams(eager, other)
        x = torch.randn(3, 4, generator=generator(9)) * 9
        eager(x), loaded(x), scripted(x)
        assert_same_state(eager, loaded)
        assert_same_state(eager, scripted)
        loaded.reset_min_max_vals()
        assert loaded.min_val.numel() == 0 or loaded.min_val.item() == float("inf")


@each_of_ours
def test_scripted_state_loads_into_eager_observers_and_back(kind):
    scripted = torch.jit.script(kind())
    scripted(torch.randn(4, 5, generator=generator(0)))
    eager = kind()
    eager.load_state_dict(scripted.state_dict())
    assert_same_qparams(eager, scripted)


@each_of_ours
def test_observers_run_inside_a_compiled_graph(kind):
    observer, eager = kind(), kind()
    x = torch.randn(4, 5, generator=generator(0))
    eager(x)
    if "PerChannel" in kind.__name__:
        observer(x)  # as many channels as there are must be known before
    torch._dynamo.reset()
    compiled = torch.compile(lambda t: observer(t) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), x * 2)
    assert_equal(observer.min_val, eager.min_val)
    assert_equal(observer.max_val, eager.max_val)


# ------------------------------------------------------------------------------------------------- merging


@pytest.mark.parametrize("kind", [MinMaxObserver, PerChannelMinMaxObserver], ids=lambda k: k.__name__)
@given(data=st.data())
def test_two_halves_merge_to_the_range_of_all(kind, data):
    stream = [data.draw(batches((3, 5))) for _ in range(data.draw(st.integers(0, 6)))]
    at = data.draw(st.integers(0, len(stream)))
    one, two, every = kind(), kind(), kind()
    for observer, part in ((one, stream[:at]), (two, stream[at:]), (every, stream)):
        for x in part:
            observer(x)
    untouched = copy.deepcopy(two)
    one.merge(two)
    assert_same_state(one, every)
    assert_same_qparams(one, every)
    assert_same_state(two, untouched)


@pytest.mark.parametrize(
    "kind", [MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver], ids=lambda k: k.__name__
)
def test_two_averages_merge_to_their_mean(kind):
    one, two, nothing = kind(), kind(), kind()
    one(torch.tensor([[-1.0, 3.0]]))
    two(torch.tensor([[-3.0, 4.0]]))
    one.merge(nothing)
    assert (one.min_val.item(), one.max_val.item()) == (-1.0, 3.0)
    one.merge(two)
    assert (one.min_val.item(), one.max_val.item()) == (-2.0, 3.5)
    nothing.merge(two)
    assert_same_state(nothing, two)
