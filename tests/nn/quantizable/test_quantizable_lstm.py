"""LSTM: the observed form computes what nn.LSTM does, the quantized form what torch.ao's does."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from script_graphs import reloaded
from torch import Tensor, nn
from torch.ao import quantization as tq

import zeropoint
import zeropoint.eager
from zeropoint.context import Context
from zeropoint.nn import quantizable, quantized
from zeropoint.nn.quantizable.lstm import joint_qparams

pytestmark = [
    pytest.mark.filterwarnings("ignore:All inputs of this cat operator"),  # torch.ao's
    pytest.mark.filterwarnings("ignore:prepare. the converted model will return quantized tensors"),
]

SHAPES = [
    {},
    {"num_layers": 2},
    {"bidirectional": True},
    {"bidirectional": True, "num_layers": 2},
    {"batch_first": True, "num_layers": 2},
    {"bias": False},
]


class Model(nn.Module):
    def __init__(self, stub: Any, **options: Any) -> None:
        super().__init__()
        self.quant = stub()
        self.lstm = nn.LSTM(16, 24, **options)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return self.lstm(self.quant(x))


def pair(**options: Any) -> tuple[nn.Module, nn.Module, Tensor]:
    torch.manual_seed(0)
    ours, theirs = Model(zeropoint.QuantStub, **options).eval(), Model(tq.QuantStub, **options).eval()
    theirs.load_state_dict(ours.state_dict())
    ours.qconfig, theirs.qconfig = zeropoint.default_qconfig, tq.default_qconfig  # 7 bits
    return ours, theirs, torch.randn(9, 4, 16)


def converted(model: nn.Module, x: Tensor) -> Any:
    prepared = zeropoint.prepare(model)
    prepared(x)
    return zeropoint.convert(prepared)


def flat(output: Any) -> list[Tensor]:
    y, (h, c) = output
    return [y, h, c]


def assert_near(found: Tensor, exact: Tensor) -> None:
    """Gates, states are rounded to 7 bits one after the other: four steps at most, less than one on average."""
    steps = (found.dequantize() - exact).abs() / found.q_scale()
    assert steps.max() <= 4
    assert steps.mean() <= 0.75


def with_qconfig(module: nn.Module, qconfig: Any = zeropoint.default_qconfig) -> Any:
    module.qconfig = qconfig
    return module


@pytest.mark.parametrize("split_gates", [False, True])
@pytest.mark.parametrize("options", SHAPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 3, 6), (5, 6)], ids=["batched", "unbatched"])
def test_the_observed_lstm_gives_what_the_float_one_gives(options: Any, split_gates: bool, shape: Any) -> None:
    lstm = with_qconfig(nn.LSTM(6, 7, **options).eval())
    observed = quantizable.LSTM.from_float(lstm, split_gates=split_gates)
    x = torch.randn(shape)
    for a, b in zip(flat(lstm(x)), flat(observed(x)), strict=True):
        torch.testing.assert_close(a, b)
    hidden = tuple(torch.randn_like(t) for t in lstm(x)[1])
    for a, b in zip(flat(lstm(x, hidden)), flat(observed(x, hidden)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_a_new_lstm_has_the_weights_of_the_float_one(options: Any) -> None:
    made, lstm = quantizable.LSTM(6, 7, **options), nn.LSTM(6, 7, **options)
    assert sum(p.numel() for p in made.parameters()) == sum(p.numel() for p in lstm.parameters())
    assert [t.shape for t in flat(made(torch.randn(5, 3, 6)))] == [t.shape for t in flat(lstm(torch.randn(5, 3, 6)))]


@pytest.mark.parametrize("options", [o for o in SHAPES if "bidirectional" not in o], ids=str)
def test_a_converted_lstm_gives_the_integers_of_torch(options: Any) -> None:
    ours, theirs, x = pair(**options)
    prepared, their_prepared = zeropoint.prepare(ours, example_inputs=(x,)), tq.prepare(theirs)
    prepared(x), their_prepared(x)
    assert prepared.state_dict().keys() == their_prepared.state_dict().keys()
    quantized_model, their_model = zeropoint.convert(prepared), tq.convert(their_prepared)
    assert type(quantized_model.lstm) is quantized.LSTM
    assert quantized_model.state_dict().keys() == their_model.state_dict().keys()
    for a, b in zip(flat(quantized_model(x)), flat(their_model(x)), strict=True):
        assert (a.q_scale(), a.q_zero_point()) == pytest.approx((b.q_scale(), b.q_zero_point()))
        steps = (a.int_repr().int() - b.int_repr().int()).abs()
        assert steps.max() <= 1
        assert (steps == 0).float().mean() >= 0.999


@pytest.mark.parametrize("options", [o for o in SHAPES if "bidirectional" in o], ids=str)
def test_a_converted_bidirectional_lstm_is_as_near_to_float_as_torch(options: Any) -> None:
    ours, theirs, x = pair(**options)
    their_prepared = tq.prepare(theirs)
    their_prepared(x)
    results = flat(converted(ours, x)(x)), flat(tq.convert(their_prepared)(x)), flat(ours(x))
    for a, b, exact in zip(*results, strict=True):
        ours_off, theirs_off = ((t.dequantize() - exact).square().mean().sqrt() for t in (a, b))
        assert ours_off <= 1.1 * theirs_off


def test_states_of_different_ranges_are_not_clipped() -> None:
    # torch.ao's would keep the range of the first layer for all
    torch.manual_seed(0)
    model = Model(zeropoint.QuantStub, num_layers=2).eval()
    with torch.no_grad():
        model.lstm.weight_ih_l0.mul_(0.1)
        model.lstm.weight_hh_l0.mul_(0.1)
        model.lstm.bias_ih_l1.add_(2.0)
    model.qconfig = zeropoint.default_qconfig
    x = torch.randn(9, 4, 16)
    _, (_, cell) = converted(model, x)(x)
    # Errors of nine steps in time add up; a state cut off at the first layer's range would be tens of steps away.
    torch.testing.assert_close(cell.dequantize(), model(x)[1][1], atol=3 * cell.q_scale(), rtol=0)


def test_joint_parameters_hold_every_range() -> None:
    scale, zero_point = joint_qparams([0.1, 0.02], [0, 200], 0, 255)
    assert (0 - zero_point) * scale == pytest.approx(-4.0, abs=scale)
    assert (255 - zero_point) * scale == pytest.approx(25.5, abs=scale)


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_a_quantized_lstm_can_be_copied_saved_scripted_and_traced(options: Any) -> None:
    ours, _, x = pair(**options)
    model = converted(ours, x)
    expected = [t.int_repr() for t in flat(model(x))]

    for same in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        reloaded(torch.jit.script(model)),
        torch.jit.trace(model, x, check_trace=False),
    ):
        assert all(torch.equal(a.int_repr(), b) for a, b in zip(flat(same(x)), expected, strict=True))

    torch.manual_seed(1)
    other = Model(zeropoint.QuantStub, **options).eval()
    other.qconfig = zeropoint.default_qconfig
    fresh = converted(other, 3 * x)
    state = io.BytesIO()
    torch.save(model.state_dict(), state)
    state.seek(0)
    fresh.load_state_dict(torch.load(state, weights_only=True))
    assert all(torch.equal(a.int_repr(), b) for a, b in zip(flat(fresh(x)), expected, strict=True))


def test_the_state_of_torchs_lstm_loads() -> None:
    ours, theirs, x = pair(num_layers=2)
    their_prepared = tq.prepare(theirs)
    their_prepared(x)
    their_model = tq.convert(their_prepared)
    model = converted(ours, 2 * x)
    model.load_state_dict(their_model.state_dict())
    for a, b in zip(flat(model(x)), flat(their_model(x)), strict=True):
        assert (a.int_repr().int() - b.int_repr().int()).abs().max() <= 1


def test_a_quantized_lstm_goes_on_from_quantized_states() -> None:
    ours, _, x = pair(num_layers=2)
    model = converted(ours, x)
    whole, (h, c) = model(x)
    _, states = model(x[:5])
    second, (h2, c2) = model.lstm(model.quant(x[5:]), states)
    # The states in between are rounded once more, as results of the first call.
    torch.testing.assert_close(second.dequantize(), whole[5:].dequantize(), atol=4 * whole.q_scale(), rtol=0)
    assert h2.shape == h.shape
    assert c2.shape == c.shape


@pytest.mark.parametrize("split_gates", [False, True])
def test_a_quantizable_lstm_in_a_model_is_prepared_and_converted(split_gates: bool) -> None:
    model = Model(zeropoint.QuantStub).eval()
    model.lstm = quantizable.LSTM(16, 24, split_gates=split_gates).eval()
    model.qconfig = zeropoint.default_qconfig
    x = torch.randn(9, 4, 16)
    done = converted(model, x)
    assert type(done.lstm) is quantized.LSTM
    assert_near(done(x)[0], model(x)[0])
    assert torch.equal(torch.jit.script(done)(x)[0].int_repr(), done(x)[0].int_repr())


def test_a_cell_is_observed_and_quantized_by_itself() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant = zeropoint.QuantStub()
            self.cell = nn.LSTMCell(6, 7)

        def forward(self, x: Tensor) -> Tensor:
            return self.cell(self.quant(x))[0]

    model = with_qconfig(Cell().eval())
    x = torch.randn(8, 6)
    zeropoint.propagate_qconfig_(model)
    observed = copy.deepcopy(model)
    observed.cell = quantizable.LSTMCell.from_float(model.cell)
    torch.testing.assert_close(observed(x), model(x))
    prepared = zeropoint.prepare(observed)
    prepared(x)
    done = zeropoint.convert(prepared)
    assert type(done.cell.igates) is quantized.Linear
    assert_near(done(x), model(x))


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}], ids=str)
def test_training_with_rounding_is_what_is_deployed(options: Any) -> None:
    torch.manual_seed(0)
    model = Model(zeropoint.QuantStub, **options).train()
    model.qconfig = zeropoint.get_default_qat_qconfig()
    prepared = zeropoint.prepare_qat(model)
    x = torch.randn(9, 4, 16)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        prepared(x)[0].square().mean().backward()
        optimizer.step()
    prepared.eval().apply(zeropoint.disable_observer)
    trained, _ = prepared(x)
    deployed, _ = zeropoint.convert(prepared)(x)
    steps = ((trained - deployed.dequantize()) / deployed.q_scale()).abs()
    assert steps.max() <= 1.01
    assert (steps < 0.5).float().mean() >= 0.99


def test_what_cannot_be_quantized_is_said() -> None:
    with pytest.raises(NotImplementedError, match="proj_size=3"):
        quantizable.LSTM.from_float(with_qconfig(nn.LSTM(6, 7, proj_size=3)))
    with pytest.raises(TypeError, match="takes a LSTM, got a GRU"):
        quantizable.LSTM.from_float(with_qconfig(nn.GRU(6, 7)))
    with pytest.raises(ValueError, match="no qconfig"):
        quantizable.LSTM.from_float(nn.LSTM(6, 7))
    with pytest.raises(NotImplementedError, match=r"quantized\.LSTM\.from_observed"):
        quantizable.LSTM.from_observed(quantizable.LSTM(6, 7))
    with pytest.raises(NotImplementedError, match=r"zeropoint\.prepare"):
        quantized.LSTM.from_float(nn.LSTM(6, 7))
    with pytest.raises(TypeError, match="takes a LSTM"):
        quantized.LSTM.from_observed(nn.GRU(6, 7))
    with pytest.raises(TypeError, match="quantize_dynamic"):
        quantizable.LSTM(6, 7)(nn.utils.rnn.pack_sequence([torch.randn(3, 6)]))
    with pytest.raises(ValueError, match="dropout must be a number"):
        quantizable.LSTM(6, 7, dropout=2.0)
    with pytest.raises(ValueError, match="both biases"):
        quantizable.LSTMCell.from_params(torch.zeros(8, 3), torch.zeros(8, 2), torch.zeros(8))


def test_without_eager_mode_its_workflows_are_asked_for() -> None:
    with pytest.raises(RuntimeError, match=r"import zeropoint\.eager"):
        Context().convert(nn.ReLU())


def test_names_are_those_of_torch() -> None:
    assert repr(quantizable.LSTM(1, 1)).startswith("QuantizableLSTM(")
    ours, _, x = pair()
    assert repr(converted(ours, x).lstm).startswith("QuantizedLSTM(")
