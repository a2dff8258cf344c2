"""LSTM, GRU, RNN and their cells: against PyTorch's, which quantize as they do, and against the formula in float64."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from side_by_side import in_threads
from strategies import examples
from torch.nn.utils.rnn import pack_padded_sequence

import zeropoint
from zeropoint import qfunctions

KINDS = ("LSTM", "GRU")
SEQUENCES = {"LSTM": qfunctions.quantized_lstm, "GRU": qfunctions.quantized_gru}
kinds = pytest.mark.parametrize("kind", KINDS)
dtypes = pytest.mark.parametrize("dtype", [torch.qint8, torch.float16], ids=["qint8", "float16"])


def floats(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def float_module(kind: str, inputs: int, hidden: int, layers: int = 1, **options: Any) -> torch.nn.RNNBase:
    torch.manual_seed(inputs * 1000 + hidden)
    return getattr(torch.nn, kind)(inputs, hidden, layers, **options).eval()


def theirs(module: torch.nn.RNNBase, dtype: torch.dtype) -> Any:
    """The module as PyTorch quantizes it."""
    wrapped = torch.nn.Sequential(module)
    return torch.ao.quantization.quantize_dynamic(wrapped, {type(module)}, dtype=dtype)[0]


def ours(module: Any, reduce_range: bool = True) -> list[qfunctions.CellParams]:
    """The parameters of a module that PyTorch quantized, packed anew."""
    cells = []
    for parameter in module._all_weight_values:
        packed = parameter.param.__getstate__()[0][4]
        if module.dtype == torch.float16:
            pairs = [torch.ops.quantized.linear_unpack_fp16(p) for p in packed]
            cells.append(
                qfunctions.make_quantized_cell_params_fp16(*(qfunctions.linear_prepack_fp16(w, b) for w, b in pairs))
            )
            continue
        again = []
        for w, b in (torch.ops.quantized.linear_unpack(p) for p in packed):
            weight = zeropoint.make_per_tensor_quantized_tensor(w.int_repr(), w.q_scale(), w.q_zero_point())
            again.append(qfunctions.linear_prepack(weight, b))
        cells.append(qfunctions.make_quantized_cell_params_dynamic(*again, None, None, reduce_range))
    return cells


def states_of(kind: str, cells: int, batch: int, hidden: int) -> Any:
    h = floats(cells, batch, hidden, seed=1).tanh()
    return [h, floats(cells, batch, hidden, seed=2)] if kind == "LSTM" else h


def listed(states: Any) -> list[torch.Tensor]:
    return [states] if isinstance(states, torch.Tensor) else list(states)


def native(states: Any) -> Any:
    """States as torch's modules take them."""
    return tuple(states) if isinstance(states, list) else states


def error(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    return max(float((x - y).abs().max()) if x.numel() else 0.0 for x, y in zip(a, b, strict=True))


def mean_error(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    return sum(float((x - y).abs().mean()) for x, y in zip(a, b, strict=True))


# ---------------------------------------------------------------------------------------------- against PyTorch's


@dtypes
@kinds
@pytest.mark.parametrize(
    ("inputs", "hidden", "layers", "bidirectional", "batch_first", "steps", "batch"),
    [
        (24, 32, 1, False, False, 7, 3),
        (16, 16, 1, False, True, 1, 1),
        (7, 5, 2, True, False, 4, 2),
        (64, 100, 2, True, True, 9, 13),
        (33, 64, 3, False, False, 5, 1),
        (12, 20, 1, True, False, 3, 100),
    ],
)
def test_sequences_give_what_pytorch_gives(
    kind, dtype, inputs, hidden, layers, bidirectional, batch_first, steps, batch
):
    module = float_module(kind, inputs, hidden, layers, bidirectional=bidirectional, batch_first=batch_first)
    reference = theirs(module, dtype)
    x = floats(batch, steps, inputs) if batch_first else floats(steps, batch, inputs)
    hx = states_of(kind, layers * (1 + bidirectional), batch, hidden)
    y, *last = SEQUENCES[kind](
        x, hx, ours(reference), True, layers, 0.0, False, bidirectional, batch_first, dtype=dtype, use_dynamic=True
    )
    with torch.no_grad():
        want, want_last = reference(x, native(hx))
        exact, exact_last = module(x, native(hx))
    got, expected, plain = [y, *last], [want, *listed(want_last)], [exact, *listed(exact_last)]
    assert error(got, expected) < 1e-5
    # The tails of PyTorch's loops round ties in another way; nothing is worse for ours.
    assert mean_error(got, plain) <= mean_error(expected, plain) * 1.05 + 1e-6
    assert y.stride() == want.stride()


@dtypes
@kinds
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_packed_sequences_give_what_pytorch_gives(kind, dtype, bidirectional):
    module = float_module(kind, 10, 18, 2, bidirectional=bidirectional)
    reference = theirs(module, dtype)
    packed = pack_padded_sequence(floats(9, 6, 10), [9, 9, 5, 4, 4, 1])
    hx = states_of(kind, 2 * (1 + bidirectional), 6, 18)
    y, *last = SEQUENCES[kind](packed.data, packed.batch_sizes, hx, ours(reference), True, 2, 0.0, False, bidirectional)
    with torch.no_grad():
        want, want_last = reference(packed, native(hx))
        exact, exact_last = module(packed, native(hx))
    got, expected = [y, *last], [want.data, *listed(want_last)]
    plain = [exact.data, *listed(exact_last)]
    # Backwards, PyTorch quantizes a packed input step by step, and ours as a whole: one step of the input apart.
    close = 1e-5 if dtype == torch.float16 or not bidirectional else 2e-2
    assert error(got, expected) < close
    if close < 1e-2:
        assert mean_error(got, plain) <= mean_error(expected, plain) * 1.05 + 1e-6
    else:
        assert mean_error(got, plain) <= mean_error(expected, plain) * 1.3


@kinds
@dtypes
def test_a_packed_sequence_of_equal_lengths_is_the_sequence(kind, dtype):
    cells = ours(theirs(float_module(kind, 10, 18, 2, bidirectional=True), dtype))
    x, hx = floats(4, 3, 10), states_of(kind, 4, 3, 18)
    y, *last = SEQUENCES[kind].input(x, hx, cells, True, 2, 0.0, False, True, False)
    data, *others = SEQUENCES[kind].data(
        x.reshape(12, 10), torch.tensor([3, 3, 3, 3]), hx, cells, True, 2, 0.0, False, True
    )
    assert torch.equal(data.reshape(y.shape), y)
    assert all(torch.equal(a, b) for a, b in zip(last, others))


@kinds
def test_rows_of_a_packed_sequence_end_where_they_should(kind):
    """With float16 weights, rows share no scale: each is as if it were alone."""
    cells = ours(theirs(float_module(kind, 6, 18, bidirectional=True), torch.float16))
    lengths = [7, 4, 4, 1]
    x, hx = floats(7, 4, 6), states_of(kind, 2, 4, 18)
    packed = pack_padded_sequence(x, lengths)
    y, *last = SEQUENCES[kind].data(packed.data, packed.batch_sizes, hx, cells, True, 1, 0.0, False, True)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(packed._replace(data=y))
    for row, length in enumerate(lengths):
        one = [s[:, row : row + 1].contiguous() for s in listed(hx)]
        alone, *ends = SEQUENCES[kind].input(
            x[:length, row : row + 1], one if kind == "LSTM" else one[0], cells, True, 1, 0.0, False, True, False
        )
        assert torch.equal(padded[:length, row : row + 1], alone)
        assert all(torch.equal(a[:, row : row + 1], b) for a, b in zip(last, ends))


CELLS = {
    "quantized_lstm_cell_dynamic": 4,
    "quantized_gru_cell_dynamic": 3,
    "quantized_rnn_tanh_cell_dynamic": 1,
    "quantized_rnn_relu_cell_dynamic": 1,
}


@dtypes
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(("batch", "inputs", "hidden"), [(1, 16, 16), (3, 24, 33), (40, 5, 7)])
def test_cells_give_what_pytorch_gives(name, dtype, batch, inputs, hidden):
    rows = CELLS[name] * hidden
    w_ih, w_hh = floats(rows, inputs, seed=3) / 4, floats(rows, hidden, seed=4) / 4
    b_ih, b_hh = floats(rows, seed=5), floats(rows, seed=6)
    mine, other = [], []
    for w, b in ((w_ih, b_ih), (w_hh, b_hh)):
        if dtype == torch.float16:
            mine.append(qfunctions.linear_prepack_fp16(w, b))
            other.append(torch.ops.quantized.linear_prepack_fp16(w, b))
        else:
            scale = float(w.abs().max() / 127)
            mine.append(qfunctions.linear_prepack(zeropoint.quantize_per_tensor(w, scale, 0, zeropoint.qint8), b))
            other.append(torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(w, scale, 0, torch.qint8), b))
    x, h = floats(batch, inputs), floats(batch, hidden, seed=1)
    hx: Any = [h, floats(batch, hidden, seed=2)] if "lstm" in name else h
    got = listed(getattr(qfunctions, name)(x, hx, *mine, b_ih, b_hh))
    want = listed(getattr(torch.ops.quantized, name)(x, hx, *other, b_ih, b_hh))
    assert error(got, want) < 1e-5
    again = listed(getattr(qfunctions, name)(x, hx, *mine, None, None))
    assert all(torch.equal(a, b) for a, b in zip(got, again))


# ----------------------------------------------------------------------------------- against the formula in float64


def product(x: torch.Tensor, matrix: Any, reduce_range: bool) -> torch.Tensor:
    """x W' + b in float64, with x quantized by its own range."""
    weight, bias = matrix.unpack()
    if isinstance(matrix, qfunctions.LinearPackedParamsFp16):
        y = x.double() @ weight.double().t()
    else:
        scale, zero_point = zeropoint.choose_qparams(x, reduce_range) if x.numel() else (1.0, 0)
        inverse = torch.tensor(1.0) / torch.tensor(scale)
        q = (x.double() * inverse.double() + zero_point).round().clamp(0, 255) - zero_point
        y = (q * scale) @ weight.dequantize().double().t()
    return y if bias is None else y + bias.double()


def next_states(kind: str, gates: torch.Tensor, cell: Any, states: list[torch.Tensor]) -> list[torch.Tensor]:
    h = states[0]
    recurrent = product(h.float(), cell.w_hh, cell.reduce_range)
    if kind == "LSTM":
        i, f, g, o = (gates + recurrent).chunk(4, 1)
        c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
        return [o.sigmoid() * c.tanh(), c]
    if kind == "GRU":
        (xr, xz, xn), (hr, hz, hn) = gates.chunk(3, 1), recurrent.chunk(3, 1)
        r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        n = (xn + r * hn).tanh()
        return [(h - n) * z + n]
    return [(gates + recurrent).tanh() if kind == "RNN_TANH" else (gates + recurrent).relu()]


def plainly(kind: str, x: torch.Tensor, states: list[torch.Tensor], cell: Any) -> list[torch.Tensor]:
    steps, batch, inputs = x.shape
    gates = product(x.reshape(steps * batch, inputs), cell.w_ih, cell.reduce_range).reshape(steps, batch, -1)
    states = [s[0].double() for s in states]
    outputs = []
    for t in range(steps):
        states = next_states(kind, gates[t], cell, states)
        outputs.append(states[0])
    return [torch.stack(outputs), *(s.unsqueeze(0) for s in states)]


OPERATORS = {
    "LSTM": (qfunctions.quantized_lstm, 4),
    "GRU": (qfunctions.quantized_gru, 3),
    "RNN_TANH": (qfunctions.quantized_rnn_tanh, 1),
    "RNN_RELU": (qfunctions.quantized_rnn_relu, 1),
}


@examples(60)
@given(
    kind=st.sampled_from(sorted(OPERATORS)),
    inputs=st.integers(0, 70),
    hidden=st.integers(1, 70),
    batch=st.integers(1, 20),
    steps=st.integers(1, 6),
    weights=st.sampled_from(["per tensor", "per channel", "quint8", "float16"]),
    biases=st.booleans(),
    reduce_range=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_sequences_follow_the_formula(kind, inputs, hidden, batch, steps, weights, biases, reduce_range, seed):
    operator, gates = OPERATORS[kind]
    g = torch.Generator().manual_seed(seed)
    rows = gates * hidden

    def packed(columns: int) -> Any:
        w = torch.randn(rows, columns, generator=g) / (columns + 1) ** 0.5
        b = torch.randn(rows, generator=g) if biases else None
        if weights == "float16":
            return qfunctions.linear_prepack_fp16(w, b)
        if weights == "per channel":
            zeros = torch.randint(-20, 20, (rows,), generator=g)
            scales = torch.rand(rows, generator=g) / 50 + 1e-3
            return qfunctions.linear_prepack(zeropoint.quantize_per_channel(w, scales, zeros, 0, zeropoint.qint8), b)
        dtype, zero = (zeropoint.quint8, 120) if weights == "quint8" else (zeropoint.qint8, 0)
        return qfunctions.linear_prepack(zeropoint.quantize_per_tensor(w, 0.02, zero, dtype), b)

    w_ih, w_hh = packed(inputs), packed(hidden)
    if weights == "float16":
        cell = qfunctions.make_quantized_cell_params_fp16(w_ih, w_hh)
    else:
        cell = qfunctions.make_quantized_cell_params_dynamic(w_ih, w_hh, None, None, reduce_range)
    x = torch.randn(steps, batch, inputs, generator=g) * 2
    states = [torch.randn(1, batch, hidden, generator=g) for _ in range(2 if kind == "LSTM" else 1)]
    got = operator(x, states if kind == "LSTM" else states[0], [cell], biases, 1, 0.0, False, False, False)
    want = plainly(kind, x, states, cell)
    assert [t.shape for t in got] == [t.shape for t in want]
    size = max(1.0, float(want[0].abs().max()))
    # A value that float32 rounds to the other side of a tie is a step apart from there on.
    apart = torch.cat([(a - b).abs().flatten() for a, b in zip(got, want)]) / size
    assert float(apart.max()) < 0.05
    assert float(apart.median()) < 5e-6


# ------------------------------------------------------------------------------------------------ threads and layouts


@pytest.fixture
def _threads():
    before = zeropoint.get_num_threads()
    yield
    zeropoint.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@kinds
@dtypes
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_any_number_of_threads_gives_the_same_bytes(kind, dtype, bidirectional):
    cells = ours(theirs(float_module(kind, 40, 130, 2, bidirectional=bidirectional), dtype))
    x, hx = floats(30, 9, 40), states_of(kind, 2 * (1 + bidirectional), 9, 130)
    results = []
    for threads in (1, 2, 3, 4, 7):
        zeropoint.set_num_threads(threads)
        results.append(SEQUENCES[kind](x, hx, cells, True, 2, 0.0, False, bidirectional, False))
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.usefixtures("_threads")
def test_several_python_threads_may_run_one_layer_at_once():
    zeropoint.set_num_threads(2)
    cells = ours(theirs(float_module("LSTM", 20, 70), torch.qint8))
    inputs = [floats(20 + i, 1 + i, 20, seed=i) for i in range(4)]
    run = [
        lambda x=x: qfunctions.quantized_lstm(
            x, states_of("LSTM", 1, x.shape[1], 70), cells, True, 1, 0.0, False, False, False
        )
        for x in inputs
    ]
    want = [r() for r in run]
    wrong = []

    def work(i: int) -> None:
        for _ in range(20):
            if not all(torch.equal(a, b) for a, b in zip(run[i](), want[i], strict=True)):
                wrong.append(i)

    in_threads(work, 4)
    assert wrong == []


@pytest.mark.parametrize("layout", ["sliced", "permuted", "expanded"])
def test_layouts_of_the_input_and_of_the_states_do_not_matter(layout):
    cells = ours(theirs(float_module("LSTM", 8, 12), torch.qint8))
    make = {
        "sliced": lambda *s: floats(s[0], s[1], 2 * s[2])[..., ::2],
        "permuted": lambda *s: floats(s[2], s[0], s[1]).permute(1, 2, 0),
        "expanded": lambda *s: floats(s[0], 1, s[2]).expand(*s),
    }[layout]
    x, hx = make(5, 4, 8), [make(1, 4, 12), make(1, 4, 12)]
    arguments = cells, True, 1, 0.0, False, False, False
    got = qfunctions.quantized_lstm(x, hx, *arguments)
    want = qfunctions.quantized_lstm(x.contiguous(), [h.contiguous() for h in hx], *arguments)
    assert all(torch.equal(a, b) for a, b in zip(got, want))


@kinds
@dtypes
def test_an_empty_batch_gives_empty_tensors(kind, dtype):
    cells = ours(theirs(float_module(kind, 8, 12), dtype))
    y, *last = SEQUENCES[kind](floats(5, 0, 8), states_of(kind, 1, 0, 12), cells, True, 1, 0.0, False, False, False)
    assert y.shape == (5, 0, 12)
    assert all(s.shape == (1, 0, 12) for s in last)


# ---------------------------------------------------------------------------------------------------------- options


def test_dropout_acts_between_layers_and_in_training_only():
    cells = ours(theirs(float_module("LSTM", 8, 12, 2), torch.qint8))
    x, hx = floats(5, 4, 8), states_of("LSTM", 2, 4, 12)
    plain = qfunctions.quantized_lstm(x, hx, cells, True, 2, 0.0, True, False, False)[0]
    evaluated = qfunctions.quantized_lstm(x, hx, cells, True, 2, 0.5, False, False, False)[0]
    torch.manual_seed(0)
    trained = qfunctions.quantized_lstm(x, hx, cells, True, 2, 0.5, True, False, False)[0]
    assert torch.equal(plain, evaluated)
    assert not torch.equal(plain, trained)
    one = qfunctions.quantized_lstm(x, [h[:1] for h in hx], cells[:1], True, 1, 0.5, True, False, False)[0]
    assert torch.equal(
        one, qfunctions.quantized_lstm(x, [h[:1] for h in hx], cells[:1], True, 1, 0.0, False, False, False)[0]
    )


@dtypes
def test_cell_params_survive_copies_and_files(dtype):
    cells = ours(theirs(float_module("GRU", 8, 12), dtype))
    x, hx = floats(5, 4, 8), states_of("GRU", 1, 4, 12)
    want = qfunctions.quantized_gru(x, hx, cells, True, 1, 0.0, False, False, False)
    file = io.BytesIO()
    torch.save(cells, file)
    file.seek(0)
    for again in (copy.deepcopy(cells), pickle.loads(pickle.dumps(cells)), torch.load(file, weights_only=True)):
        assert again[0].reduce_range == cells[0].reduce_range
        got = qfunctions.quantized_gru(x, hx, again, True, 1, 0.0, False, False, False)
        assert all(torch.equal(a, b) for a, b in zip(got, want))


def test_results_do_not_depend_on_the_instruction_set():
    cells = ours(theirs(float_module("LSTM", 8, 12), torch.qint8))
    run = lambda: qfunctions.quantized_lstm(  # noqa: E731
        floats(5, 4, 8), states_of("LSTM", 1, 4, 12), cells, True, 1, 0.0, False, False, False
    )
    want = run()
    with zeropoint.use_isa("reference"):
        assert all(torch.equal(a, b) for a, b in zip(run(), want))


# ----------------------------------------------------------------------------------------------------------- errors


def refused(error: type[Exception], match: str, **changes: Any) -> None:
    """The call that works, with some arguments changed."""
    arguments: dict[str, Any] = {
        "input": floats(5, 4, 8),
        "hx": states_of("LSTM", 1, 4, 12),
        "params": ours(theirs(float_module("LSTM", 8, 12), torch.qint8)),
        "has_biases": True,
        "num_layers": 1,
        "dropout": 0.0,
        "train": False,
        "bidirectional": False,
        "batch_first": False,
    }
    qfunctions.quantized_lstm(**arguments)
    with pytest.raises(error, match=match):
        qfunctions.quantized_lstm(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("error", "match", "changes"),
    [
        (TypeError, "input must be one of float32", {"input": floats(5, 4, 8).double()}),
        (ValueError, "three dimensions", {"input": floats(5, 8)}),
        (ValueError, "no steps", {"input": floats(0, 4, 8)}),
        (ValueError, "8 inputs", {"input": floats(5, 4, 9)}),
        (ValueError, "finite to be quantized", {"input": floats(5, 4, 8) / 0.0}),
        (ValueError, "finite to be quantized", {"input": floats(5, 4, 8) * float("nan")}),
        (ValueError, "expected .1, 4, 12.", {"hx": states_of("LSTM", 1, 3, 12)}),
        (ValueError, "hidden and the cell state", {"hx": floats(1, 4, 12)}),
        (TypeError, "float32", {"hx": [h.half() for h in states_of("LSTM", 1, 4, 12)]}),
        (ValueError, "finite", {"hx": [h * float("nan") for h in states_of("LSTM", 1, 4, 12)]}),
        (TypeError, "params must be a list", {"params": [torch.zeros(3)]}),
        (ValueError, "need 2 cells, got 1", {"bidirectional": True}),
        (ValueError, "need 2 cells, got 1", {"num_layers": 2}),
        (ValueError, "has_biases is False", {"has_biases": False}),
        (ValueError, "between 0 and 1", {"dropout": 1.5}),
        (TypeError, "dtype must be", {"dtype": torch.float64}),
        (NotImplementedError, "use_dynamic", {"use_dynamic": False}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_refused(error, match, changes):
    refused(error, match, **changes)


def test_a_hidden_state_that_overflows_is_refused():
    packed = qfunctions.linear_prepack(zeropoint.quantize_per_tensor(torch.ones(1, 1), 1e30, 0, zeropoint.qint8))
    huge = zeropoint.make_per_tensor_quantized_tensor(torch.full((1, 1), 100, dtype=torch.int8), 1e30, 0)
    cell = qfunctions.make_quantized_cell_params_dynamic(packed, qfunctions.linear_prepack(huge), None, None)
    with pytest.raises(ValueError, match="became NaN or infinite"):
        qfunctions.quantized_rnn_relu(
            torch.ones(9, 1, 1), torch.ones(1, 1, 1), [cell], False, 1, 0.0, False, False, False
        )


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ([3, 4, 5], "must not grow"),
        ([5, 5], "add up to the 12 rows"),
        ([12, 0], "positive"),
        ([], "add up"),
        ([[6, 6]], "one dimension"),
    ],
    ids=str,
)
def test_batch_sizes_that_do_not_fit_are_refused(sizes, match):
    cells = ours(theirs(float_module("GRU", 8, 12), torch.qint8))
    with pytest.raises(ValueError, match=match):
        qfunctions.quantized_gru.data(
            floats(12, 8),
            torch.tensor(sizes, dtype=torch.int64),
            floats(1, 4, 12),
            cells,
            True,
            1,
            0.0,
            False,
            False,
        )


def test_weights_that_do_not_fit_are_refused():
    def packed(*shape: int) -> Any:
        return qfunctions.linear_prepack(zeropoint.quantize_per_tensor(floats(*shape), 0.02, 0, zeropoint.qint8))

    def run(w_ih: Any, w_hh: Any) -> None:
        cell = qfunctions.make_quantized_cell_params_dynamic(w_ih, w_hh, None, None)
        qfunctions.quantized_lstm(
            floats(5, 4, 8), states_of("LSTM", 1, 4, 12), [cell], False, 1, 0.0, False, False, False
        )

    run(packed(48, 8), packed(48, 12))
    with pytest.raises(ValueError, match="proj_size"):
        run(packed(48, 8), packed(48, 5))
    with pytest.raises(ValueError, match="needs 48 rows"):
        run(packed(36, 8), packed(48, 12))
    with pytest.raises(TypeError, match="linear_prepack"):
        qfunctions.make_quantized_cell_params_dynamic(floats(48, 8), floats(48, 12), None, None)
    with pytest.raises(TypeError, match="linear_prepack_fp16"):
        qfunctions.make_quantized_cell_params_fp16(packed(48, 8), packed(48, 12))
    with pytest.raises(ValueError, match="packed with no bias"):
        qfunctions.make_quantized_cell_params_dynamic(packed(48, 8), packed(48, 12), floats(48), None)
