"""A quantized LSTM in one native call for each sequence: the bytes of its steps, one after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import zeropoint
from zeropoint.nn.quantized import lstm_sequence
from zeropoint.tensor.recording import has_hooks


def converted(qconfig: str = "fbgemm", **options: Any) -> Any:
    torch.manual_seed(0)
    model = zeropoint.QuantWrapper(nn.LSTM(5, 7, **options)).eval()
    model.dequant = nn.Identity()
    model.qconfig = zeropoint.get_default_qconfig(qconfig)
    prepared = zeropoint.prepare(model)
    prepared(torch.randn(12, 3, 5))
    return zeropoint.convert(prepared)


def quantized_inputs(steps: int = 9, batch: int = 3) -> torch.Tensor:
    return torch.randn(steps, batch, 5, generator=torch.Generator().manual_seed(1))


def same_result(ours: Any, theirs: Any) -> None:
    (y, (h, c)), (expected_y, (expected_h, expected_c)) = ours, theirs
    for got, expected in ((y, expected_y), (h, expected_h), (c, expected_c)):
        assert torch.equal(got.int_repr(), expected.int_repr())
        assert (got.q_scale(), got.q_zero_point()) == (expected.q_scale(), expected.q_zero_point())


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
def test_the_bytes_are_those_of_the_steps(options: dict[str, Any], batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = converted(**options), quantized_inputs(batch=batch)
    calls: list[int] = []
    native = lstm_sequence._native.integer_lstm
    monkeypatch.setattr(
        lstm_sequence._native, "integer_lstm", lambda *arguments: (calls.append(1), native(*arguments))[1]
    )
    at_once = model(x)
    directions = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    assert len(calls) == directions
    handles = [m.register_forward_hook(lambda *_: None) for m in model.modules() if type(m) is nn.Tanh]
    assert any(map(has_hooks, model.modules()))
    same_result(at_once, model(x))
    assert len(calls) == directions  # hooks see every step
    assert handles


def test_states_that_are_given_have_scales_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = converted(), quantized_inputs()
    q = model.quant(x)
    h = zeropoint.quantize_per_tensor(torch.randn(1, 3, 7), 0.02, 100, zeropoint.quint8)
    c = zeropoint.quantize_per_tensor(torch.randn(1, 3, 7), 0.04, 90, zeropoint.quint8)
    at_once = model.module(q, (h, c))
    monkeypatch.setattr("zeropoint.nn.quantized.lstm.whole_sequence", lambda *_: None)
    same_result(at_once, model.module(q, (h, c)))


def test_the_last_state_is_memory_of_its_own() -> None:
    y, (h, _) = converted()(quantized_inputs())
    assert torch.equal(h[0].int_repr(), y[-1].int_repr())
    h._data.zero_()
    assert y[-1].int_repr().any()


def test_scripted_and_eager_agree() -> None:
    model, x = converted(), quantized_inputs()
    q = model.quant(x)
    y = model.module(q)[0]
    assert torch.equal(torch.jit.trace(lambda t: model.module(model.quant(t))[0].dequantize(), x)(x), y.dequantize())


def test_a_logger_on_a_part_sees_each_step() -> None:
    model, x = converted(), quantized_inputs(steps=4)
    seen: list[int] = []

    class Logger(nn.Module):
        def forward(self, t: Any) -> Any:
            seen.append(1)
            return t

    model.module.layers[0].layer_fw.cell.ogate_cy.activation_post_process = Logger()
    model(x)
    assert len(seen) == 4
