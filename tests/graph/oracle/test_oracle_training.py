"""Models trained with rounding by graph mode and by torch.ao's FX mode, from the same weights on the same batch."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.ao.quantization as theirs
from graph_models import MobileNet, ResNet
from observer_pairs import quietly
from torch import Tensor, nn
from torch.ao.quantization import quantize_fx as their_fx

import zeropoint

pytestmark = pytest.mark.oracle

BATCH = 8


def prepared_by_both(model: nn.Module) -> tuple[Any, Any, Tensor, Tensor]:
    x, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # each would drop other values
    with quietly():
        mapping = theirs.get_default_qat_qconfig_mapping("fbgemm")
        expected = their_fx.prepare_qat_fx(copy.deepcopy(model).train(), mapping, (x,))
    mapping = zeropoint.get_default_qat_qconfig_mapping("fbgemm")
    return zeropoint.prepare_qat_graph(copy.deepcopy(model).train(), mapping, (x,)), expected, x, labels


def trained(prepared: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    output = prepared(x)
    nn.functional.cross_entropy(output, labels).backward()
    return output.detach()


def layers(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The weights of convolutions and linear layers by their path. Theirs keeps the batch norm inside the layer."""
    for name, parameter in model.named_parameters():
        if name.endswith("weight") and parameter.dim() > 1:
            yield name.removeprefix("graph_module."), parameter


def weight_scales(model: nn.Module) -> dict[str, Tensor]:
    ending = ".weight_fake_quant.scale"
    found = dict(model.named_buffers())
    return {name.removeprefix("graph_module."): found[name] for name in found if name.endswith(ending)}


def test_first_step_of_a_residual_network_is_that_of_the_oracle_to_the_bit() -> None:
    torch.manual_seed(0)
    ours, expected, x, labels = prepared_by_both(ResNet((8, 16, 24, 32), 1, 10))
    with quietly():
        right = trained(expected, x, labels)
    assert torch.equal(trained(ours, x, labels), right)
    gradients = {name: parameter.grad for name, parameter in layers(expected)}
    found = {name: parameter.grad for name, parameter in layers(ours)}
    assert found.keys() == gradients.keys()
    assert [name for name in found if not torch.equal(found[name], gradients[name])] == []
    scales = weight_scales(expected)
    assert {name for name, scale in weight_scales(ours).items() if not torch.equal(scale, scales[name])} == set()
    assert len(scales) == len(found)


def test_gradients_differ_only_by_the_rounding_of_the_mean() -> None:
    """Ours gives a mean the value that integers will have, theirs rounds it a second time: half a step of the mean."""
    torch.manual_seed(0)
    ours, expected, x, labels = prepared_by_both(MobileNet())
    with quietly():
        right = trained(expected, x, labels)
    classifier = dict(layers(expected))["classifier.1.weight"]
    step = max(
        float(module.scale) for module in expected.modules() if getattr(module, "scale", torch.ones(2)).numel() == 1
    )
    most = step * float(classifier.detach().abs().sum(1).max())
    assert float((trained(ours, x, labels) - right).abs().max()) <= most
    gradients = dict(layers(expected))
    for name, parameter in layers(ours):
        difference = (parameter.grad - gradients[name].grad).norm() / gradients[name].grad.norm()
        assert float(difference) < (0.1 if name.startswith("classifier") else 0.01), name
