"""Attention: the observed form computes what nn.MultiheadAttention does, the quantized form what torch.ao's does."""

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
from zeropoint.nn import quantizable, quantized

pytestmark = pytest.mark.filterwarnings("ignore:prepare. the converted model will return quantized tensors")

OPTIONS: list[dict[str, Any]] = [
    {},
    {"batch_first": True},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True},
    {"kdim": 4, "vdim": 6},
    {"kdim": 4, "vdim": 6, "bias": False},
]
LENGTH, SOURCES, BATCH, HEADS = 5, 7, 3, 4


class Model(nn.Module):
    def __init__(self, stub: Any, **options: Any) -> None:
        super().__init__()
        self.q, self.k, self.v = stub(), stub(), stub()
        self.attention = nn.MultiheadAttention(16, HEADS, **options)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.attention(self.q(query), self.k(key), self.v(value))


def inputs(options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    sizes = ((LENGTH, 16), (SOURCES, options.get("kdim", 16)), (SOURCES, options.get("vdim", 16)))
    made = [torch.randn(length, BATCH, features) for length, features in sizes]
    if options.get("batch_first"):
        made = [t.transpose(0, 1).contiguous() for t in made]
    return made[0], made[1], made[2]


def pair(options: dict[str, Any]) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    ours, theirs = Model(zeropoint.QuantStub, **options).eval(), Model(tq.QuantStub, **options).eval()
    theirs.load_state_dict(ours.state_dict())
    ours.qconfig, theirs.qconfig = zeropoint.default_qconfig, tq.default_qconfig  # 7 bits
    return ours, theirs, inputs(options)


def converted(model: nn.Module, xs: Any) -> Any:
    prepared = zeropoint.prepare(model, example_inputs=xs)
    prepared(*xs)
    return zeropoint.convert(prepared)


def observed(attention: Any) -> Any:
    attention.qconfig = zeropoint.default_qconfig
    return quantizable.MultiheadAttention.from_float(attention)


def masks() -> dict[str, dict[str, Any]]:
    causal = torch.ones(LENGTH, SOURCES, dtype=torch.bool).triu(1)
    padding = torch.zeros(BATCH, SOURCES, dtype=torch.bool)
    padding[1, 4:] = True
    return {
        "none": {},
        "causal": {"attn_mask": causal},
        "hinted": {"attn_mask": causal, "is_causal": True},
        "per head": {"attn_mask": causal.repeat(BATCH * HEADS, 1, 1)},
        "float": {"attn_mask": torch.randn(LENGTH, SOURCES)},
        "padding": {"key_padding_mask": padding},
        "float padding": {"key_padding_mask": torch.randn(BATCH, SOURCES)},
        "both": {"attn_mask": causal, "key_padding_mask": padding},
        "no weights": {"need_weights": False},
        "weights of each head": {"average_attn_weights": False},
    }


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("arguments", masks().values(), ids=list(masks()))
def test_the_observed_attention_gives_what_the_float_one_gives(options: Any, arguments: Any) -> None:
    attention = nn.MultiheadAttention(16, HEADS, **options).eval()
    xs = inputs(options)
    expected, weights = attention(*xs, **arguments)
    y, w = observed(attention)(*xs, **arguments)
    torch.testing.assert_close(y, expected)
    assert (w is None) == (weights is None)
    if w is not None:
        torch.testing.assert_close(w, weights)


def test_sequences_without_a_batch() -> None:
    attention = nn.MultiheadAttention(16, HEADS).eval()
    q, k, v = (t[:, 0] for t in inputs({}))
    for a, b in zip(attention(q, k, v), observed(attention)(q, k, v), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("options", [o for o in OPTIONS if "batch_first" not in o and "add_bias_kv" not in o], ids=str)
def test_a_converted_attention_gives_the_integers_of_torch(options: Any) -> None:
    ours, theirs, xs = pair(options)
    their_prepared = tq.prepare(theirs)
    their_prepared(*xs)
    model, their_model = converted(ours, xs), tq.convert(their_prepared)
    assert type(model.attention) is quantized.MultiheadAttention
    unused = {"attention.q_proj_weight", "attention.k_proj_weight", "attention.v_proj_weight"}
    assert model.state_dict().keys() == their_model.state_dict().keys() - unused
    for a, b in zip(model(*xs), their_model(*xs), strict=True):
        assert (a.q_scale(), a.q_zero_point()) == pytest.approx((b.q_scale(), b.q_zero_point()))
        steps = (a.int_repr().int() - b.int_repr().int()).abs()
        assert steps.max() <= 1
        assert (steps == 0).float().mean() >= 0.99

    model = converted(ours, tuple(2 * x for x in xs))
    model.load_state_dict(their_model.state_dict())
    assert (model(*xs)[0].int_repr().int() - their_model(*xs)[0].int_repr().int()).abs().max() <= 1


def test_the_state_of_torchs_observed_attention_loads() -> None:
    ours, theirs, xs = pair({})
    their_prepared, prepared = tq.prepare(theirs), zeropoint.prepare(ours)
    their_prepared(*xs)
    prepared.load_state_dict(their_prepared.state_dict())
    torch.testing.assert_close(prepared(*xs)[0], their_prepared(*xs)[0])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_converted_attention_is_near_to_float(options: Any) -> None:
    # also where torch.ao's is not: batch_first mixes its heads, and bias_v gets the range of bias_k
    ours, _, xs = pair(options)
    y, weights = ours(*xs)
    quantized_y, quantized_weights = converted(ours, xs)(*xs)
    # Projections, scores and their sum are rounded to 7 bits one after the other.
    torch.testing.assert_close(quantized_y.dequantize(), y, atol=4 * quantized_y.q_scale(), rtol=0)
    torch.testing.assert_close(quantized_weights.dequantize(), weights, atol=1.5 * quantized_weights.q_scale(), rtol=0)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_quantized_attention_can_be_copied_saved_scripted_traced_and_exported(options: Any) -> None:
    ours, _, xs = pair(options)
    model = converted(ours, xs)
    expected = [t.int_repr() for t in model(*xs)]

    for same in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        reloaded(torch.jit.script(model)),
        torch.jit.trace(model, xs, check_trace=False),
        torch.export.export(model, xs, strict=False).module(),
    ):
        assert all(torch.equal(a.int_repr(), b) for a, b in zip(same(*xs), expected, strict=True))

    torch.manual_seed(1)
    other = Model(zeropoint.QuantStub, **options).eval()
    other.qconfig = zeropoint.default_qconfig
    fresh = converted(other, tuple(3 * x for x in xs))
    state = io.BytesIO()
    torch.save(model.state_dict(), state)
    state.seek(0)
    fresh.load_state_dict(torch.load(state, weights_only=True))
    assert all(torch.equal(a.int_repr(), b) for a, b in zip(fresh(*xs), expected, strict=True))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_dequantize_gives_a_float_attention_back(options: Any) -> None:
    ours, _, xs = pair(options)
    back = converted(ours, xs).attention.dequantize()
    assert type(back) is nn.MultiheadAttention
    assert back.state_dict().keys() == ours.attention.state_dict().keys()
    torch.testing.assert_close(back(*xs)[0], ours(*xs)[0], atol=0.02, rtol=0)
    exact = observed(ours.attention).dequantize()
    for name, t in ours.attention.state_dict().items():
        assert torch.equal(exact.state_dict()[name], t), name


def test_an_encoder_layer_calls_its_quantized_attention() -> None:
    # in evaluation nn.TransformerEncoderLayer has a shortcut that would read the float weights
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, HEADS, 32, batch_first=True).eval()
    layer.self_attn.qconfig = zeropoint.default_qconfig
    layer.self_attn = observed(layer.self_attn)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        layer(x)
    assert layer.self_attn.linear_Q.activation_post_process.max_val > 0


def test_training_with_rounding_is_what_is_deployed() -> None:
    torch.manual_seed(0)
    model = Model(zeropoint.QuantStub).train()
    model.qconfig = zeropoint.get_default_qat_qconfig()
    prepared = zeropoint.prepare_qat(model)
    xs = inputs({})
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        prepared(*xs)[0].square().mean().backward()
        optimizer.step()
    prepared.eval().apply(zeropoint.disable_observer)
    for trained, deployed in zip(prepared(*xs), zeropoint.convert(prepared)(*xs), strict=True):
        steps = ((trained - deployed.dequantize()) / deployed.q_scale()).abs()
        assert steps.max() <= 1.01
        assert (steps < 0.5).float().mean() >= 0.99


def test_weights_that_nobody_asks_for_are_not_quantized() -> None:
    ours, _, xs = pair({})
    attention = converted(ours, xs).attention
    attention.quant_attn_output_weights = None
    q, k, v = (zeropoint.quantize_per_tensor(x, 0.03, 60, zeropoint.quint8) for x in xs)
    assert attention(q, k, v, need_weights=False)[1] is None


def test_mistakes_are_said() -> None:
    attention = quantizable.MultiheadAttention(16, HEADS)
    xs = inputs({})
    with pytest.raises(ValueError, match="is_causal describes attn_mask; pass attn_mask too"):
        attention(*xs, is_causal=True)
    with pytest.raises(ValueError, match="2 or 3 dimensions, got 1"):
        attention(*xs, attn_mask=torch.zeros(SOURCES, dtype=torch.bool))
    with pytest.raises(TypeError, match="bool or float"):
        attention(*xs, attn_mask=torch.zeros(LENGTH, SOURCES, dtype=torch.int32))
    with pytest.raises(TypeError, match="takes a MultiheadAttention, got a Linear"):
        quantizable.MultiheadAttention.from_float(nn.Linear(1, 1))
    with pytest.raises(ValueError, match="no qconfig"):
        quantizable.MultiheadAttention.from_float(nn.MultiheadAttention(16, HEADS))
    with pytest.raises(NotImplementedError, match=r"quantized\.MultiheadAttention\.from_observed"):
        quantizable.MultiheadAttention.from_observed(attention)
    with pytest.raises(NotImplementedError, match=r"zeropoint\.prepare"):
        quantized.MultiheadAttention.from_float(nn.MultiheadAttention(16, HEADS))
    with pytest.raises(TypeError, match="takes an observed MultiheadAttention"):
        quantized.MultiheadAttention.from_observed(nn.MultiheadAttention(16, HEADS))


def test_names_are_those_of_torch() -> None:
    assert repr(quantizable.MultiheadAttention(16, HEADS)).startswith("QuantizableMultiheadAttention(")
    ours, _, xs = pair({})
    assert repr(converted(ours, xs).attention).startswith("QuantizedMultiheadAttention(")
