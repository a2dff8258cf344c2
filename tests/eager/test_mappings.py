"""The mapping getters: every one that torch.ao has, and what they hold."""

from __future__ import annotations

import pytest
import torch.ao.quantization.quantization_mappings as theirs
import torch.nn.functional as F
from torch import nn

import zeropoint
from zeropoint.eager import mappings
from zeropoint.nn import intrinsic as nni, quantized as nnq


def test_every_getter_of_torch_exists() -> None:
    getters = {name for name in theirs.__all__ if name.islower() and "sparse" not in name}
    assert getters <= set(mappings.__all__)
    assert all(getattr(zeropoint, name) is getattr(mappings, name) for name in mappings.__all__)


@pytest.mark.parametrize(
    "getter",
    [
        "get_default_static_quant_module_mappings",
        "get_default_static_quant_reference_module_mappings",
        "get_embedding_static_quant_module_mappings",
        "get_default_qat_module_mappings",
        "get_embedding_qat_module_mappings",
        "get_default_dynamic_quant_module_mappings",
    ],
)
def test_entries_have_the_names_that_torch_gives_them(getter: str) -> None:
    """For those classes that both know: the class they become has the same name."""
    peers = {k.__name__: v.__name__ for k, v in getattr(theirs, getter)().items()}
    mine = {k.__name__: v.__name__ for k, v in getattr(zeropoint, getter)().items()}
    both = mine.keys() & peers.keys()
    assert {k: mine[k] for k in both} == {k: peers[k] for k in both}


def test_what_a_getter_gives_is_a_copy() -> None:
    zeropoint.get_default_static_quant_module_mappings().clear()
    zeropoint.get_default_float_to_quantized_operator_mappings().clear()
    assert zeropoint.get_default_static_quant_module_mappings()[nn.Linear] is nnq.Linear
    assert zeropoint.get_quantized_operator(F.elu) is zeropoint.qfunctions.elu


def test_classes_one_by_one() -> None:
    assert zeropoint.get_static_quant_module_class(nn.Linear) is nnq.Linear
    assert zeropoint.get_static_quant_module_class(nn.GELU, {nn.GELU: nn.ReLU}) is nn.ReLU
    with pytest.raises(ValueError, match=r"GELU has no static quantized version.*qconfig"):
        zeropoint.get_static_quant_module_class(nn.GELU)
    with pytest.raises(ValueError, match="GELU has no dynamic quantized version"):
        zeropoint.get_dynamic_quant_module_class(nn.GELU)
    assert zeropoint.get_dynamic_quant_module_class(nn.GELU, {nn.GELU: nn.ReLU}) is nn.ReLU


def test_operators_are_those_of_torch() -> None:
    peers = theirs.get_default_float_to_quantized_operator_mappings()
    mine = zeropoint.get_default_float_to_quantized_operator_mappings()
    assert {f: op.__name__ for f, op in mine.items()} == {f: op.__name__ for f, op in peers.items()}
    with pytest.raises(ValueError, match="gelu has no quantized version; supported: dropout, elu"):
        zeropoint.get_quantized_operator(F.gelu)


def test_lists_of_modules() -> None:
    observed = zeropoint.get_default_qconfig_propagation_list()
    assert {nn.Linear, nni.ConvReLU2d, zeropoint.QuantStub} <= observed
    assert {nn.ReLU, nn.MaxPool2d, nn.Flatten}.isdisjoint(observed)
    compared = zeropoint.get_default_compare_output_module_list()
    assert {nn.Linear, nnq.Linear, nni.LinearReLU} <= compared
