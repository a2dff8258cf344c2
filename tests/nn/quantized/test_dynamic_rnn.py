"""LSTM, GRU and cells with int8 and float16 weights, next to torch.ao's, and all ways to copy them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.ao.quantization as oracle
from module_copies import (
    assert_copies_compute_the_same,
    assert_equal,
    largest_difference,
    tensors,
    through_file,
)
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import zeropoint
import zeropoint.nn.quantized.dynamic as nnqd
import zeropoint.nn.quantized.reference as nnqr

QCONFIGS = ["default_dynamic_qconfig", "per_channel_dynamic_qconfig", "float16_dynamic_qconfig"]
CELLS = [("LSTMCell", {}), ("GRUCell", {}), ("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu"})]


def dtype_of(qconfig: str) -> Any:
    return torch.float16 if qconfig.startswith("float16") else zeropoint.qint8


def made(kind: str, qconfig: str, *sizes: int, **options: Any) -> tuple[Any, Any, Any]:
    """A float module, ours and torch.ao's."""
    torch.manual_seed(7)
    module = getattr(nn, kind)(*sizes, **options).eval()
    theirs = copy.deepcopy(module)
    module.qconfig, theirs.qconfig = getattr(zeropoint, qconfig), getattr(oracle, qconfig)
    quantized = getattr(nnqd, kind).from_float(module), getattr(torch.ao.nn.quantized.dynamic, kind).from_float(theirs)
    return module, *quantized


def assert_same_weights(ours: Any, theirs: Any) -> None:
    for name, weight in theirs.get_weight().items():
        got = ours.get_weight()[name]
        if weight.is_quantized:
            assert torch.equal(got.int_repr(), weight.int_repr())
        else:
            assert torch.equal(got, weight)
    assert ours.get_weight().keys() == theirs.get_weight().keys()
    assert ours.get_bias().keys() == theirs.get_bias().keys()
    for name, bias in theirs.get_bias().items():
        assert torch.equal(ours.get_bias()[name], bias)


# ----------------------------------------------------------------------------------------------- layers on sequences


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True}])
@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_three_layers_compute_what_the_oracle_computes(kind, qconfig, options):
    module, ours, theirs = made(kind, qconfig, 8, 16, 3, **options)
    assert_same_weights(ours, theirs)
    assert repr(ours) == repr(theirs)
    x = torch.randn(6, 4, 8)
    wanted = module(x)
    assert largest_difference(ours(x), theirs(x)) < 1e-5
    assert largest_difference(ours(x), wanted) <= largest_difference(theirs(x), wanted) + 1e-5


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_first_states_are_taken_and_last_ones_given(kind, qconfig):
    _, ours, theirs = made(kind, qconfig, 8, 16, 2, bidirectional=True)
    x, h = torch.randn(6, 4, 8), torch.randn(4, 4, 16)
    states = (h, torch.randn(4, 4, 16)) if kind == "LSTM" else h
    got, wanted = ours(x, states), theirs(x, states)
    assert [t.shape for t in tensors(got)] == [t.shape for t in tensors(wanted)]
    assert largest_difference(got, wanted) < 1e-5


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences_of_any_order(kind, qconfig):
    _, ours, theirs = made(kind, qconfig, 8, 16, 2, bidirectional=True)
    x = pack_padded_sequence(torch.randn(6, 4, 8), [3, 6, 1, 4], enforce_sorted=False)
    got, wanted = ours(x), theirs(x)
    assert isinstance(got[0], PackedSequence)
    assert largest_difference(got[0].data, wanted[0].data) < 1e-5
    assert largest_difference(got[1], wanted[1]) < 1e-5
    h = torch.randn(4, 4, 16)
    states = (h, 2 * h) if kind == "LSTM" else h
    assert largest_difference(ours(x, states)[1], theirs(x, states)[1]) < 1e-5


@pytest.mark.parametrize("dtype", [zeropoint.qint8, torch.float16])
def test_gru_computes_what_the_function_computes_with_its_params(dtype):
    qconfig = "float16_dynamic_qconfig" if dtype == torch.float16 else "default_dynamic_qconfig"
    _, gru, _ = made("GRU", qconfig, 3, 7, 2)
    x, h = torch.rand(4, 2, 3), torch.rand(2, 2, 7)
    params = [m.param for m in gru._all_weight_values]
    y, last = zeropoint.qfunctions.quantized_gru(x, h, params, gru.bias, 2, gru.dropout, False, False, False)
    assert_equal(gru(x, h), (y, last))


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_copies_compute_the_same(kind, qconfig):
    _, ours, _ = made(kind, qconfig, 4, 5, 2, bidirectional=True)
    blank = getattr(nnqd, kind)(4, 5, 2, bidirectional=True, dtype=dtype_of(qconfig))
    assert_copies_compute_the_same(ours, blank, (torch.randn(3, 2, 4),))


class TakesPacked(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: PackedSequence):
        return self.inner(x)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_script_with_a_packed_sequence(kind):
    _, ours, _ = made(kind, "default_dynamic_qconfig", 4, 5, 2)
    x = pack_padded_sequence(torch.randn(6, 3, 4), [2, 6, 3], enforce_sorted=False)
    loaded = through_file(torch.jit.script(TakesPacked(ours)))
    assert_equal(loaded(x)[0].data, ours(x)[0].data)
    assert_equal(loaded(x)[1], ours(x)[1])


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_state_dict_of_torch_ao_loads(kind, qconfig):
    _, ours, theirs = made(kind, qconfig, 4, 5, 2, bidirectional=True)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    blank = getattr(nnqd, kind)(4, 5, 2, bidirectional=True, dtype=dtype_of(qconfig))
    blank.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 2, 4)
    assert_equal(blank(x), ours(x))


def test_a_state_dict_brings_its_dtype_but_must_fit():
    _, ours, _ = made("LSTM", "float16_dynamic_qconfig", 4, 5)
    blank = nnqd.LSTM(4, 5)
    assert blank.dtype is zeropoint.qint8
    blank.load_state_dict(ours.state_dict())
    assert blank.dtype == torch.float16
    x = torch.randn(3, 2, 4)
    assert_equal(blank(x), ours(x))
    with pytest.raises(RuntimeError, match=r"size mismatch for a weight in _all_weight_values.0.param: \(20, 4\)"):
        nnqd.LSTM(3, 5).load_state_dict(ours.state_dict())
    with pytest.raises(RuntimeError, match="size mismatch for a weight in _packed_weight_hh"):
        nnqd.GRUCell(3, 4).load_state_dict(nnqd.GRUCell(3, 5).state_dict())


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_layers_of_a_reference_are_those_of_the_float_module(kind):
    module, ours, _ = made(kind, "per_channel_dynamic_qconfig", 4, 5, 2, bidirectional=True)
    again = getattr(nnqd, kind).from_reference(getattr(nnqr, kind).from_float(module))
    x = torch.randn(3, 2, 4)
    assert_equal(again(x), ours(x))


def test_dropout_acts_between_layers_in_training_only():
    _, ours, _ = made("LSTM", "default_dynamic_qconfig", 4, 5, 2, dropout=0.5)
    x = torch.randn(3, 2, 4)
    assert_equal(ours(x), ours(x))
    ours.train()
    assert not torch.equal(ours(x)[0], ours(x)[0])


def test_set_weight_bias_is_seen_by_the_next_call():
    _, ours, _ = made("GRU", "default_dynamic_qconfig", 4, 5)
    x = torch.randn(3, 2, 4)
    before = ours(x)[0]
    doubled = {name: 2 * b for name, b in ours.get_bias().items()}
    ours.set_weight_bias({**ours.get_weight(), **doubled})
    assert not torch.equal(ours(x)[0], before)
    assert_equal(ours.get_bias()["bias_hh_l0"], doubled["bias_hh_l0"])


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="dropout must be a number between 0 and 1, got 2"):
        nnqd.LSTM(3, 4, 2, dropout=2)
    with pytest.warns(UserWarning, match="dropout=0.5 has no effect"):
        nnqd.GRU(3, 4, dropout=0.5)
    with pytest.raises(ValueError, match=r"qint8 or float16, got zeropoint\.quint8"):
        nnqd.LSTM(3, 4, dtype=zeropoint.quint8)
    with pytest.raises(TypeError, match=r"LSTM\.from_float takes a LSTM, got a GRU"):
        nnqd.LSTM.from_float(nn.GRU(3, 4))
    with pytest.raises(NotImplementedError, match="proj_size"):
        nnqd.LSTM.from_float(nn.LSTM(3, 4, proj_size=2))
    layer = nnqd.LSTM(3, 4)
    with pytest.raises(TypeError, match="weight_ih_l0 must be a quantized tensor, got Tensor"):
        layer.set_weight_bias(nnqd.LSTM(3, 4, dtype=torch.float16).get_weight())
    with pytest.raises(ValueError, match=r"weight_ih_l0 must have shape \(16, 3\), got \(16, 5\)"):
        layer.set_weight_bias(nnqd.LSTM(5, 4).get_weight())


# ------------------------------------------------------------------------------------------------------------ cells


def cell_and_state(kind: str, qconfig: str, options: dict[str, Any]) -> tuple[Any, Any, Any, torch.Tensor, Any]:
    module, ours, theirs = made(kind, qconfig, 3, 7, **options)
    x, h = torch.rand(7, 3), torch.rand(7, 7)
    return module, ours, theirs, x, (h, h) if kind == "LSTMCell" else h


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize(("kind", "options"), CELLS)
def test_cells_compute_what_the_oracle_computes(kind, options, qconfig):
    module, ours, theirs, x, state = cell_and_state(kind, qconfig, options)
    assert_same_weights(ours, theirs)
    assert repr(ours) == repr(theirs)
    assert largest_difference(ours(x, state), theirs(x, state)) < 1e-5
    assert largest_difference(ours(x), theirs(x)) < 1e-5
    error = largest_difference(theirs(x, state), module(x, state))
    assert largest_difference(ours(x, state), module(x, state)) <= error + 1e-5


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize(("kind", "options"), CELLS)
def test_cells_compute_what_the_functions_compute_with_their_weights(kind, options, qconfig):
    _, cell, _, x, state = cell_and_state(kind, qconfig, options)
    name = {"LSTMCell": "lstm", "GRUCell": "gru"}.get(kind, f"rnn_{options.get('nonlinearity', 'tanh')}")
    function = getattr(zeropoint.qfunctions, f"quantized_{name}_cell_dynamic")
    packed = cell._packed_weight_ih, cell._packed_weight_hh
    assert_equal(cell(x, state), function(x, state, *packed, cell.bias_ih, cell.bias_hh))


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize(("kind", "options"), CELLS)
def test_copies_of_cells_compute_the_same(kind, options, qconfig):
    _, ours, _, x, state = cell_and_state(kind, qconfig, options)
    blank = getattr(nnqd, kind)(3, 7, **options, dtype=dtype_of(qconfig))
    assert_copies_compute_the_same(ours, blank, (x,))
    assert_copies_compute_the_same(ours, blank, (x, state))


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize(("kind", "options"), CELLS)
def test_state_dict_of_a_cell_of_torch_ao_loads(kind, options, qconfig):
    _, ours, theirs, x, state = cell_and_state(kind, qconfig, options)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    blank = getattr(nnqd, kind)(3, 7, **options, dtype=dtype_of(qconfig))
    blank.load_state_dict(theirs.state_dict())
    assert_equal(blank(x, state), ours(x, state))


@pytest.mark.parametrize(("kind", "options"), CELLS)
def test_cell_of_a_reference_is_the_cell_of_the_float_cell(kind, options):
    module, ours, _, x, state = cell_and_state(kind, "per_channel_dynamic_qconfig", options)
    again = getattr(nnqd, kind).from_reference(getattr(nnqr, kind).from_float(module))
    assert_equal(again(x, state), ours(x, state))


@pytest.mark.parametrize("qconfig", QCONFIGS)
@pytest.mark.parametrize(("kind", "options"), [("LSTM", {"num_layers": 2}), ("GRU", {}), *CELLS])
def test_no_bias_is_a_bias_of_zeros(kind, options, qconfig):
    """torch.ao refuses modules without bias."""
    without = getattr(nn, kind)(3, 7, bias=False, **options)
    zeros = getattr(nn, kind)(3, 7, **options)
    for name, parameter in zeros.named_parameters():
        parameter.data.copy_(getattr(without, name).data if name.startswith("weight") else torch.zeros(1))
    without.qconfig = zeros.qconfig = getattr(zeropoint, qconfig)
    kind_of_ours = getattr(nnqd, kind)
    made_without = kind_of_ours.from_float(without)
    x = torch.randn(4, 2, 3) if kind in ("LSTM", "GRU") else torch.randn(4, 3)
    assert_equal(made_without(x), kind_of_ours.from_float(zeros)(x))
    assert made_without.get_bias() == {}
    assert "bias=False" in repr(made_without)
    blank = kind_of_ours(3, 7, bias=False, dtype=dtype_of(qconfig), **options)
    assert_copies_compute_the_same(made_without, blank, (x,))


def test_a_missing_weight_of_a_cell_is_named():
    cell = nnqd.GRUCell(3, 4)
    state = cell.state_dict()
    del state["_packed_weight_hh"]
    with pytest.raises(RuntimeError, match="_packed_weight_hh"):
        cell.load_state_dict(state)
