"""The graph form of recurrent layers: plain tensors in lists, packed once, and refused where they do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zeropoint
from zeropoint import qfunctions

ours = torch.ops.zeropoint
HIDDEN, INPUTS = 6, 5


def floats(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def arguments(half: bool = False) -> dict[str, Any]:
    shapes = ((4 * HIDDEN, INPUTS), (4 * HIDDEN, HIDDEN))
    weights = [floats(*s, seed=i) for i, s in enumerate(shapes)]
    return {
        "input": floats(4, 3, INPUTS),
        "hx": [floats(1, 3, HIDDEN), floats(1, 3, HIDDEN, seed=1)],
        "weights": [w.half() if half else (w * 30).clamp(-128, 127).to(torch.int8) for w in weights],
        "weight_scales": [] if half else [torch.tensor([0.01]), torch.full((4 * HIDDEN,), 0.02)],
        "weight_zero_points": [] if half else [torch.tensor([3]), torch.zeros(4 * HIDDEN, dtype=torch.int64)],
        "biases": [floats(4 * HIDDEN, seed=2), floats(4 * HIDDEN, seed=3)],
        "num_layers": 1,
        "dropout": 0.0,
        "train": False,
        "bidirectional": False,
        "batch_first": False,
    }


@pytest.mark.parametrize("reduce_range", [False, True])
def test_is_the_eager_form_on_plain_tensors(reduce_range):
    a = arguments()
    (w_ih, w_hh), (s_ih, s_hh), (z_ih, z_hh) = a["weights"], a["weight_scales"], a["weight_zero_points"]
    packed = (
        qfunctions.linear_prepack(
            zeropoint.make_per_tensor_quantized_tensor(w_ih, s_ih.item(), int(z_ih)), a["biases"][0]
        ),
        qfunctions.linear_prepack(
            zeropoint.make_per_channel_quantized_tensor(w_hh, s_hh.double(), z_hh, 0), a["biases"][1]
        ),
    )
    cell = qfunctions.make_quantized_cell_params_dynamic(*packed, *a["biases"], reduce_range)
    want = qfunctions.quantized_lstm(a["input"], a["hx"], [cell], True, 1, 0.0, False, False, False)
    got = ours.quantized_lstm.input(**a, reduce_range=reduce_range)
    assert all(torch.equal(x, y) for x, y in zip(got, want))


@pytest.mark.parametrize("half", [False, True], ids=["int8", "float16"])
def test_a_weight_that_changes_is_packed_again(half):
    a = arguments(half)
    before = ours.quantized_lstm.input(**a)[0]
    assert torch.equal(before, ours.quantized_lstm.input(**a)[0])
    for weight in a["weights"]:
        weight.mul_(-1)
        after = ours.quantized_lstm.input(**a)[0]
        assert not torch.equal(before, after)
        before = after


def test_missing_biases_are_zero():
    a = arguments()
    zeros = [torch.zeros_like(b) for b in a["biases"]]
    without, with_zeros = ours.quantized_lstm.input(**{**a, "biases": []}), {**a, "biases": zeros}
    assert all(torch.equal(x, y) for x, y in zip(without, ours.quantized_lstm.input(**with_zeros)))


@pytest.mark.parametrize(
    ("error", "match", "change"),
    [
        (ValueError, "w_ih and w_hh for each direction", lambda a: {"weights": a["weights"][:1]}),
        (ValueError, "but 1 weight_scales", lambda a: {"weight_scales": a["weight_scales"][:1]}),
        (ValueError, "but 1 biases", lambda a: {"biases": a["biases"][:1]}),
        (ValueError, "need a scale and a zero point", lambda a: {"weight_scales": []}),
        (ValueError, "no scale", lambda a: {"weights": [w.half() for w in a["weights"]]}),
        (ValueError, "float32 weights have no scale", lambda a: {"weights": [w.float() for w in a["weights"]]}),
        (TypeError, "must be one of uint8, int8, float16", lambda a: {"weights": [w.double() for w in a["weights"]]}),
        (ValueError, "has 7 elements", lambda a: {"weight_scales": [torch.ones(7), torch.ones(1)]}),
        (ValueError, "finite and positive", lambda a: {"weight_scales": [torch.zeros(1), torch.ones(1)]}),
        (ValueError, "zero_point", lambda a: {"weight_zero_points": [torch.tensor([200]), torch.tensor([0])]}),
        (ValueError, "bias has shape", lambda a: {"biases": [torch.zeros(3), a["biases"][1]]}),
        (ValueError, "hidden and the cell state", lambda a: {"hx": a["hx"][:1]}),
    ],
)
def test_tensors_that_do_not_fit_are_refused(error, match, change):
    a = arguments()
    with pytest.raises(error, match=match):
        ours.quantized_lstm.input(**{**a, **change(a)})


def test_a_cell_refuses_what_does_not_fit():
    a = arguments()
    (w_ih, w_hh), (s_ih, s_hh), (z_ih, z_hh) = a["weights"], a["weight_scales"], a["weight_zero_points"]
    matrices = w_ih, s_ih, z_ih, w_hh, s_hh, z_hh, None, None
    h = floats(3, HIDDEN)
    assert ours.quantized_lstm_cell_dynamic(floats(3, INPUTS), [h, h], *matrices)[0].shape == (3, HIDDEN)
    with pytest.raises(ValueError, match="input must be"):
        ours.quantized_lstm_cell_dynamic(floats(3, INPUTS + 1), [h, h], *matrices)
    with pytest.raises(ValueError, match=r"expected \(4, 6\)"):
        ours.quantized_lstm_cell_dynamic(floats(4, INPUTS), [h, h], *matrices)


def rows_as_bytes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row by its own range, zero included, on 0 to 255: what the bytes stand for, and the steps."""
    low, high = x.amin(-1, True).clamp(max=0), x.amax(-1, True).clamp(min=0)
    step = (high - low) / 255
    zero_point = (-low / step).round()
    return ((x / step + zero_point).round().clamp(0, 255) - zero_point) * step, step


def test_with_ranges_of_tokens_every_row_is_rounded_by_its_own(isa):
    a = arguments()
    a["input"] = a["input"] * torch.tensor([10.0, 1.0, 0.1])[:, None]  # rows of other sizes beside each other
    weights = [
        (w.float() - z[:, None]) * s[:, None]
        for w, s, z in zip(a["weights"], a["weight_scales"], a["weight_zero_points"])
    ]
    h, c = (state[0] for state in a["hx"])
    wanted = []
    for x in a["input"]:
        gates = (
            rows_as_bytes(x)[0] @ weights[0].T + a["biases"][0] + rows_as_bytes(h)[0] @ weights[1].T + a["biases"][1]
        )
        i, f, g, o = gates.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        wanted.append(h)
    y, last_h, last_c = ours.quantized_lstm.input(**a, per_token=True)
    assert torch.allclose(y, torch.stack(wanted), atol=1e-5)
    assert torch.equal(last_h[0], y[-1])
    assert torch.allclose(last_c[0], c, atol=1e-5)
    assert not torch.allclose(ours.quantized_lstm.input(**a)[0], y, atol=1e-3)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_with_ranges_of_tokens_a_sequence_gives_the_same_alone_and_beside_others(isa, bidirectional):
    a = arguments() | {"bidirectional": bidirectional}
    if bidirectional:
        a |= {name: a[name] * 2 for name in ("weights", "weight_scales", "weight_zero_points", "biases")}
        a["hx"] = [state.repeat(2, 1, 1) for state in a["hx"]]
    together = ours.quantized_lstm.input(**a, per_token=True)
    for row in range(3):
        one = {"input": a["input"][:, [row]], "hx": [state[:, [row]] for state in a["hx"]]}
        alone = ours.quantized_lstm.input(**(a | one), per_token=True)
        assert all(torch.equal(x, y[:, [row]]) for x, y in zip(alone, together))


def test_a_step_with_ranges_of_tokens_is_a_sequence_of_one():
    a = arguments()
    matrices = [part[i] for i in (0, 1) for part in (a["weights"], a["weight_scales"], a["weight_zero_points"])]
    x, hx = a["input"][:1], a["hx"]
    _, h, c = ours.quantized_lstm.input(**(a | {"input": x}), per_token=True)
    got = ours.quantized_lstm_cell_dynamic(x[0], [s[0] for s in hx], *matrices, *a["biases"], False, True)
    assert torch.equal(got[0], h[0])
    assert torch.equal(got[1], c[0])
