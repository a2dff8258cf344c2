"""A call that quantizes nothing says so."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import zeropoint
from zeropoint.compat.fx import convert_fx, prepare_fx

CALLS = {
    "quantize_dynamic": lambda m: zeropoint.quantize_dynamic(m),
    "quantize": lambda m: zeropoint.quantize(m, lambda model: model(torch.randn(2, 3)), []),
    "convert": lambda m: zeropoint.convert(zeropoint.prepare(m)),
    "convert_fx": lambda m: convert_fx(prepare_fx(m, zeropoint.QConfigMapping(), (torch.randn(2, 3),))),
}


class Scaled(nn.Linear):
    """A class of its own, which no mapping knows."""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore:prepare. no module has a qconfig")
def test_a_call_that_quantizes_nothing_warns_with_its_name(call: str) -> None:
    with pytest.warns(UserWarning, match=f"^{call}: no module of .* was quantized"):
        CALLS[call](nn.Sequential(Scaled(3, 2)).eval())


def test_a_call_that_quantizes_a_layer_is_silent() -> None:
    model = zeropoint.QuantWrapper(nn.Linear(3, 2)).eval()
    model.qconfig = zeropoint.default_qconfig
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*was quantized")
        zeropoint.quantize(model, lambda m: m(torch.randn(2, 3)), [])
        zeropoint.quantize_dynamic(nn.Sequential(nn.Linear(3, 2)))
        mapping = zeropoint.get_default_qconfig_mapping("native")
        convert_fx(prepare_fx(nn.Sequential(nn.Linear(3, 2)).eval(), mapping, (torch.randn(2, 3),)))
