"""nn.Transformer and its parts with masks: captured, quantized, compiled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import zeropoint

_STEPS = 4  # of the result's range over 255, what attention and two layers may lose


class _Translator(nn.Module):
    def __init__(self, additive: bool) -> None:
        super().__init__()
        self.additive, self.transformer = additive, nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        size = target.size(1)
        mask = torch.triu(torch.ones(size, size, dtype=torch.bool), diagonal=1)
        if self.additive:
            mask = torch.zeros(size, size).masked_fill(mask, float("-inf"))
        return self.transformer(source, target, tgt_mask=mask)


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.window = torch.zeros(7, 7, dtype=torch.bool)
        self.window[0, 3:] = True

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x, mask=self.window)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("additive", [True, False], ids=["additive", "bool"])
def test_a_causal_mask_of_a_translator_is_applied(additive: bool, mode: str) -> None:
    torch.manual_seed(0)
    model, inputs = _Translator(additive).eval(), (torch.randn(2, 5, 16), torch.randn(2, 4, 16))
    data = {"calibration": [inputs]} if mode == "static" else {}
    quantized = zeropoint.to_int8(model, inputs, mode=mode, progress=False, **data)
    expected, given = model(*inputs), quantized(*inputs)
    assert float((given - expected).abs().max()) <= _STEPS * float(expected.abs().max()) * 2 / 255
    longer = (inputs[0], torch.cat([inputs[1], torch.randn(2, 3, 16)], 1))
    program = zeropoint.compile(quantized, inputs)
    assert torch.equal(program(*longer), quantized(*longer))
    assert torch.allclose(quantized(*longer)[:, :4], given, atol=0.2), "what comes later must not be seen"


def test_a_mask_that_is_not_causal_is_applied_as_it_is() -> None:
    torch.manual_seed(0)
    model, x = _Encoder().eval(), torch.randn(2, 7, 16)
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    expected = model(x)
    assert float((quantized(x) - expected).abs().max()) <= _STEPS * float(expected.abs().max()) * 2 / 255
    other = x.clone()
    other[:, 3:] += 1
    assert torch.allclose(quantized(other)[:, 0], quantized(x)[:, 0], atol=0.05), "masked places are not seen"


class Sinks(nn.Module):
    """Attention with a learned score for no key at all, as GPT-OSS has it: scores are masked, joined, and shifted."""

    def __init__(self, filled: bool) -> None:
        super().__init__()
        self.filled, self.q, self.k, self.v = filled, nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.sink = nn.Linear(16, 1)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        lowest = torch.finfo(scores.dtype).min
        if self.filled:
            scores = scores.masked_fill(~keep[:, None], lowest)
        else:
            scores = scores + torch.where(keep, 0.0, lowest)[:, None]
        scores = torch.cat([scores, self.sink(x)], -1)
        scores = scores - scores.max(-1, keepdim=True).values
        return scores.softmax(-1)[..., :-1] @ self.v(x)


@pytest.mark.parametrize("filled", [True, False], ids=["filled", "added"])
def test_a_mask_that_meets_scores_before_they_are_joined_and_shifted_leaves_them_their_steps(filled: bool) -> None:
    torch.manual_seed(0)
    model = Sinks(filled).eval()
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[1, 4:] = False
    batches = [(torch.randn(2, 6, 16), keep) for _ in range(8)]
    quantized = zeropoint.to_int8(model, batches[0], batches, progress=False)
    expected = model(*batches[0])
    # Three layers and two products, each with half a step of inputs and of weights.
    assert float((quantized(*batches[0]) - expected).abs().max()) < 5 * float(expected.abs().max()) / 127
    assert torch.equal(zeropoint.compile(quantized, batches[0])(*batches[0]), quantized(*batches[0]))
