"""Reference modules: float modules with rounded weights, next to torch.ao's, and all ways to copy them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.ao.quantization as oracle
import torch.ao.quantization.fx._decomposed
from module_copies import assert_copies_compute_the_same, assert_equal
from torch import nn
from torch.ao.quantization.utils import get_qparam_dict
from torch.nn.utils.rnn import pack_padded_sequence

import zeropoint
import zeropoint.nn.quantized as nnq
import zeropoint.nn.quantized.dynamic as nnqd
import zeropoint.nn.quantized.reference as nnqr

pytestmark = [
    pytest.mark.filterwarnings("ignore:To copy construct from a tensor"),  # torch.ao's
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

nnqr_oracle = torch.ao.nn.quantized.reference

# name of the class: a float module, and what it is called with
LAYERS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "Linear": (lambda: nn.Linear(8, 5), (torch.randn(3, 8),)),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), (torch.randn(2, 4, 9),)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, bias=False), (torch.randn(2, 4, 9, 8),)),
    "Conv3d": (lambda: nn.Conv3d(4, 6, 2), (torch.randn(2, 4, 4, 5, 6),)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), (torch.randn(2, 4, 9),)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, dilation=2), (torch.randn(2, 4, 6, 5),)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 6, 2, padding=1), (torch.randn(2, 4, 4, 5, 6),)),
    "Embedding": (lambda: nn.Embedding(10, 4), (torch.tensor([[1, 2], [3, 9]]),)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(10, 4), (torch.tensor([1, 2, 3, 9]), torch.tensor([0, 2]))),
}
RECURRENT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "RNNCell": (lambda: nn.RNNCell(4, 5), (torch.randn(3, 4),)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 5), (torch.randn(3, 4),)),
    "GRUCell": (lambda: nn.GRUCell(4, 5, bias=False), (torch.randn(3, 4),)),
    "LSTM": (lambda: nn.LSTM(4, 5, 2, bidirectional=True), (torch.randn(6, 3, 4),)),
    "GRU": (lambda: nn.GRU(4, 5, 2, batch_first=True), (torch.randn(6, 3, 4),)),
}
EVERY = {**LAYERS, **RECURRENT}
OBSERVERS = ["default_weight_observer", "default_per_channel_weight_observer"]


def numbers(module: nn.Module, library: Any, get: Any, observer: str, is_decomposed: bool) -> dict[str, Any]:
    """What an observer finds for the weights of `module`, as reference modules take it."""

    def found(weight: torch.Tensor) -> dict[str, Any]:
        watching = getattr(library, observer)()
        watching(weight)
        return get(watching)

    if hasattr(module, "weight"):
        return {**found(module.weight), "is_decomposed": is_decomposed}
    weights = {name: found(p) for name, p in module.named_parameters() if name.startswith("weight")}
    return {**weights, "is_decomposed": is_decomposed}


def made(kind: str, observer: str, is_decomposed: bool) -> tuple[Any, Any, tuple[Any, ...]]:
    """Ours and torch.ao's of the same float module, and an input."""
    torch.manual_seed(3)
    build, args = EVERY[kind]
    module = build()
    ours = numbers(module, zeropoint, zeropoint.get_qparam_dict, observer, is_decomposed)
    theirs = numbers(module, oracle, get_qparam_dict, observer, is_decomposed)
    other = getattr(nnqr_oracle, kind).from_float(copy.deepcopy(module), theirs)
    return getattr(nnqr, kind).from_float(module, ours), other, args


@pytest.mark.parametrize("is_decomposed", [False, True])
@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize("kind", EVERY)
def test_results_and_state_equal_the_oracle(kind, observer, is_decomposed):
    ours, theirs, args = made(kind, observer, is_decomposed)
    assert_equal(ours(*args), theirs(*args))
    if kind != "EmbeddingBag":  # which torch.ao prints as an Embedding
        assert repr(ours) == repr(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for parameter in ours.parameters():
        parameter.data.zero_()
    ours.load_state_dict(theirs.state_dict())
    assert_equal(ours(*args), theirs(*args))


@pytest.mark.parametrize(("observer", "is_decomposed"), list(zip(OBSERVERS, [False, True])))
@pytest.mark.parametrize("kind", EVERY)
def test_copies_compute_the_same(kind, observer, is_decomposed):
    ours, _, args = made(kind, observer, is_decomposed)
    blank = copy.deepcopy(ours)
    for parameter in blank.parameters():
        parameter.data.zero_()
    assert_copies_compute_the_same(ours, blank, args, script=kind not in ("LSTM", "GRU"))


@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_tables_with_float_zero_points_equal_the_oracle(kind):
    ours, theirs, args = made(kind, "default_float_qparams_observer", False)
    assert_equal(ours(*args), theirs(*args))


def test_a_table_of_four_bits():
    """torch.ao has no quantize_per_channel for it."""
    build, args = LAYERS["Embedding"]
    table = build()
    observer = zeropoint.default_float_qparams_observer_4bit()
    observer(table.weight)
    reference = nnqr.Embedding.from_float(table, zeropoint.get_qparam_dict(observer))
    assert_equal(reference.get_weight(), reference.get_quantized_weight().dequantize())
    assert len(reference(*args).unique()) > 4
    error = (reference.get_weight() - table.weight).detach().abs().max()
    assert error < observer.calculate_qparams()[0].max()


@pytest.mark.parametrize("observer", [*OBSERVERS, "default_float_qparams_observer"])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_weight_is_the_quantized_one_dequantized(kind, observer):
    if "float_qparams" in observer and "Embedding" not in kind:
        kind = "Embedding"
    ours, _, _ = made(kind, observer, False)
    assert_equal(ours.get_weight(), ours.get_quantized_weight().dequantize())


@pytest.mark.parametrize("kind", ["Linear", "LSTM", "GRUCell"])
def test_float16_weights_are_rounded(kind):
    build, args = EVERY[kind]
    module = build()
    module.qconfig = zeropoint.float16_dynamic_qconfig
    reference = getattr(nnqr, kind).from_float(module)
    wanted = copy.deepcopy(module)
    for name, parameter in wanted.named_parameters():
        if name.startswith("weight"):
            parameter.data = parameter.data.half().float()
    assert_equal(reference(*args), wanted(*args))
    quantized = getattr(nnqd, kind).from_reference(reference)
    torch.testing.assert_close(quantized(*args), wanted(*args), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------- the numbers, given by hand


def rounded(weight: torch.Tensor, qparams: dict[str, Any]) -> nn.Parameter:
    """What torch's own quantized tensors make of a weight."""
    if qparams["qscheme"] == torch.per_tensor_affine:
        q = torch.quantize_per_tensor(weight, qparams["scale"], qparams["zero_point"], qparams["dtype"])
    else:
        q = torch.quantize_per_channel(
            weight, qparams["scale"], qparams["zero_point"], qparams["axis"], qparams["dtype"]
        )
    return nn.Parameter(q.dequantize())


@pytest.mark.parametrize(
    ("kind", "options"),
    [("LSTMCell", {}), ("GRUCell", {}), ("RNNCell", {"nonlinearity": "tanh"}), ("RNNCell", {"nonlinearity": "relu"})],
)
def test_cells_with_the_weights_of_a_float_cell(kind, options):
    x, h = torch.rand(7, 3), torch.rand(7, 7)
    state = (h, h) if kind == "LSTMCell" else h
    cell = getattr(nn, kind)(3, 7, **options)
    qparams = {"qscheme": torch.per_tensor_affine, "dtype": torch.quint8, "scale": 2.0, "zero_point": 5}
    all_qparams = {"weight_ih": qparams, "weight_hh": qparams, "is_decomposed": False}
    reference = getattr(nnqr, kind)(3, 7, **options, weight_qparams_dict=all_qparams)
    for name, parameter in cell.named_parameters():
        setattr(reference, name, parameter)
    got = reference(x, state)
    cell.weight_ih, cell.weight_hh = rounded(cell.weight_ih, qparams), rounded(cell.weight_hh, qparams)
    assert_equal(got, cell(x, state))
    assert_equal(reference(x[0], tuple(s[0] for s in state) if kind == "LSTMCell" else state[0]), _first(got))


def _first(result: Any) -> Any:
    return tuple(t[0] for t in result) if isinstance(result, tuple) else result[0]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_lstm_with_the_weights_of_a_float_lstm(bidirectional):
    x = torch.randn(4, 2, 3)
    h, c = torch.randn(2, 2 * (bidirectional + 1), 2, 7)
    lstm = nn.LSTM(3, 7, 2, bidirectional=bidirectional)
    qparams = {"qscheme": torch.per_tensor_affine, "dtype": torch.qint8, "scale": 2.0, "zero_point": 5}
    weights = [name for name in lstm._flat_weights_names if name.startswith("weight")]
    reference = nnqr.LSTM(
        input_size=3,
        hidden_size=7,
        num_layers=2,
        bidirectional=bidirectional,
        weight_qparams_dict={**dict.fromkeys(weights, qparams), "is_decomposed": False},
    )
    for name in lstm._flat_weights_names:
        setattr(reference, name, copy.deepcopy(getattr(lstm, name)))
    for name in weights:
        setattr(lstm, name, rounded(getattr(lstm, name), qparams))
    assert_equal(reference(x, (h, c)), lstm(x, (h, c)))
    packed = pack_padded_sequence(x, [2, 4], enforce_sorted=False)
    assert_equal(reference(packed)[0].data, lstm(packed)[0].data)


@pytest.mark.parametrize("scheme", ["per_tensor", "per_channel"])
@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_tables_with_the_weight_of_a_float_table(kind, scheme):
    if scheme == "per_tensor":
        qparams: dict[str, Any] = {"qscheme": torch.per_tensor_affine, "scale": 2.0, "zero_point": 5}
    else:
        scale, zero_point = torch.rand(10) + 0.01, torch.randint(0, 255, (10,))
        qparams = {"qscheme": torch.per_channel_affine, "scale": scale, "zero_point": zero_point, "axis": 0}
    qparams |= {"dtype": torch.quint8, "is_decomposed": False}
    table = getattr(nn, kind)(10, 3)
    reference = getattr(nnqr, kind)(10, 3, weight_qparams=qparams)
    reference.weight = table.weight
    got = reference(torch.tensor([[1, 2, 4, 5], [4, 3, 2, 9]]))
    table.weight = rounded(table.weight, qparams)
    assert_equal(got, table(torch.tensor([[1, 2, 4, 5], [4, 3, 2, 9]])))


def test_decomposed_linear_has_the_range_of_its_observer_in_its_graph():
    linear = nn.Linear(2, 2)
    observer = zeropoint.default_symmetric_qnnpack_qconfig.weight()
    assert (observer.quant_min, observer.quant_max) == (-127, 127)
    observer(linear.weight)
    qparams = zeropoint.get_qparam_dict(observer)
    qparams["is_decomposed"] = True
    traced = torch.fx.symbolic_trace(nnqr.Linear.from_float(linear, qparams))
    ops = (torch.ops.zeropoint.quantize_per_tensor, torch.ops.zeropoint.dequantize_per_tensor)
    calls = [node for node in traced.graph.nodes if node.op == "call_function" and node.target in ops]
    assert [node.target for node in calls] == list(ops)
    for node in calls:
        assert node.args[3:] == (-127, 127, torch.int8)
    x = torch.randn(3, 2)
    assert_equal(traced(x), nnqr.Linear.from_float(linear, qparams)(x))


@pytest.mark.parametrize("observer", [*OBSERVERS, "default_float_qparams_observer", "default_histogram_observer"])
def test_get_qparam_dict_equals_the_oracle(observer):
    ours, theirs = getattr(zeropoint, observer)(), getattr(oracle, observer)()
    x = torch.randn(5, 4)
    ours(x), theirs(x)
    got, wanted = zeropoint.get_qparam_dict(ours), get_qparam_dict(theirs)
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(got[key], value, rtol=0, atol=0)
        elif key in ("qscheme", "dtype"):
            assert got[key].name == str(value).removeprefix("torch.")
        else:
            assert got[key] == value


# ------------------------------------------------------------------------------------------------------- conversion


@pytest.mark.parametrize("kind", [k for k in LAYERS if "Embedding" not in k])
def test_quantized_layer_of_a_reference_has_its_weight(kind):
    ours, _, _ = made(kind, "default_weight_observer", False)
    layer = getattr(nnq, kind).from_reference(ours, 0.25, 3)
    assert torch.equal(layer.weight().int_repr(), ours.get_quantized_weight().int_repr())
    assert (layer.scale, layer.zero_point) == (0.25, 3)


def test_convert_to_a_reference():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 5)).eval()
    model = zeropoint.fuse_modules(model, ["0", "1"])
    model.qconfig = zeropoint.get_default_qconfig("native")
    prepared = zeropoint.prepare(model)
    x = torch.randn(2, 1, 5, 5)
    prepared(x)
    reference = zeropoint.convert(prepared, is_reference=True)
    assert type(reference[0][0]) is nnqr.Conv2d
    assert type(reference[3]) is nnqr.Linear
    rounded_model = copy.deepcopy(model)
    for layer, source in ((rounded_model[0][0], reference[0][0]), (rounded_model[3], reference[3])):
        layer.weight = nn.Parameter(source.get_quantized_weight().dequantize())
    assert_equal(reference(x), rounded_model(x))
    assert not any(hasattr(m, "qconfig") for m in reference.modules())


def test_a_reference_between_stubs_rounds_its_input():
    model = zeropoint.QuantWrapper(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 1, 3))).eval()
    model.qconfig = zeropoint.default_qconfig
    prepared = zeropoint.prepare(model)
    x = torch.randn(2, 1, 5, 5)
    prepared(x)
    reference = zeropoint.convert(prepared, is_reference=True)
    assert_equal(reference(x), reference.module(reference.quant(x).dequantize()))


@pytest.mark.parametrize("qconfig", [zeropoint.default_qat_qconfig, zeropoint.get_default_qat_qconfig("native")])
def test_reference_of_a_trained_layer_has_the_weight_it_was_trained_with(qconfig):
    model = nn.Sequential(nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(45, 3)).train()
    model.qconfig = qconfig
    trained = zeropoint.prepare_qat(model)
    trained(torch.randn(3, 4, 5, 5))
    trained.eval().apply(zeropoint.disable_observer)
    reference = zeropoint.convert(trained, is_reference=True)
    for i in (0, 2):
        assert_equal(reference[i].get_weight(), trained[i].weight_fake_quant(trained[i].weight))


@pytest.mark.parametrize("kind", RECURRENT)
def test_convert_of_recurrent_modules_to_references(kind):
    build, _ = RECURRENT[kind]
    model = nn.ModuleList([build()])
    model.qconfig = zeropoint.per_channel_dynamic_qconfig
    zeropoint.propagate_qconfig_(model)
    reference = zeropoint.convert(model, is_reference=True)
    assert type(reference[0]) is getattr(nnqr, kind)
    names = [name for name, _ in model[0].named_parameters() if name.startswith("weight")]
    assert all(getattr(reference[0], f"{name}_qscheme").per_channel for name in names)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="has no entry for weight_hh"):
        nnqr.GRUCell(2, 2, weight_qparams_dict={"weight_ih": {"qscheme": None, "dtype": torch.float16}})
    with pytest.raises(TypeError, match=r"LSTM\.from_float takes a LSTM, got a GRU"):
        nnqr.LSTM.from_float(nn.GRU(2, 2))
    with pytest.raises(ValueError, match="pass weight_qparams_dict, or a module with a qconfig"):
        nnqr.GRU.from_float(nn.GRU(2, 2))
    with pytest.raises(ValueError, match="float16 has no qscheme"):
        nnqr.Linear(2, 2, weight_qparams={"qscheme": "per_tensor_affine", "dtype": torch.float16})
