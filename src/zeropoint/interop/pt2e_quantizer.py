"""Our choices for users of torchao's PT2E: what `to_int8` would quantize, as a quantizer for `prepare_pt2e`.

from zeropoint.interop.pt2e_quantizer import ZeropointQuantizer

prepared = prepare_pt2e(exported, ZeropointQuantizer())
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e.observer import HistogramObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

from zeropoint.graph.passes.annotate import plan, skip_rounding
from zeropoint.graph.passes.canonicalize import make_plain
from zeropoint.graph.policy import Policy, choose_policy
from zeropoint.operators import BY_ATEN, Output
from zeropoint.operators.choice import Choice, Precision
from zeropoint.operators.node import arguments, aten_name
from zeropoint.operators.record import Effect

_KEY = "quantization_annotation"
_ACTIVATION = QuantizationSpec(
    dtype=torch.uint8, quant_min=0, quant_max=255, qscheme=torch.per_tensor_affine,
    observer_or_fake_quant_ctr=HistogramObserver.with_args(eps=2**-12),
)  # fmt: skip
_FIXED = {
    Output.UNIT: FixedQParamsQuantizationSpec(torch.uint8, 1 / 256, 0, 0, 255, torch.per_tensor_affine),
    Output.SYMMETRIC: FixedQParamsQuantizationSpec(torch.uint8, 2 / 256, 128, 0, 255, torch.per_tensor_affine),
}


def _weight(axis: int) -> QuantizationSpec:
    return QuantizationSpec(
        dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_channel_symmetric, ch_axis=axis,
        observer_or_fake_quant_ctr=PerChannelMinMaxObserver.with_args(eps=2**-12),
    )  # fmt: skip


class ZeropointQuantizer(Quantizer):
    """Annotates what `to_int8` would compute on integers: uint8 activations, int8 weights for each output channel.

    Args:
        policy: what stays float; by default chosen from the graph, as `to_int8` does.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        super().__init__()
        self.policy = policy

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """The graph in the spelling that our records know: nothing in place, attention in parts."""
        make_plain(model)
        for node in model.graph.nodes:  # what a pass made of nodes without an origin has none either
            if node.meta.get("origin", "") is None:
                del node.meta["origin"]
        return model

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        policy = self.policy or choose_policy(model)
        mapping = policy.mapping(None, "static")
        policy.mark(model, mapping)
        choices = plan(model, mapping)
        skip_rounding(choices)
        by_name = {node.name: node for node in model.graph.nodes}
        for node, choice in choices.items():
            if choice.precision is Precision.STATIC:
                _annotate(node, choice, by_name)
            elif choice.rounded:
                node.meta[_KEY] = QuantizationAnnotation(output_qspec=_ACTIVATION, _annotated=True)
            elif choice.precision is Precision.PASSED:
                _keep_scale(node)
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Whatever is annotated has a record, so there is nothing to refuse."""


def _annotate(node: fx.Node, choice: Choice, by_name: dict[str, fx.Node]) -> None:
    record = choice.operator
    inputs: dict[fx.Node, Any] = {by_name[name]: _spec_of(by_name[name]) for name in choice.inputs}
    if record.effect is Effect.JOINS:
        first, *others = inputs
        inputs = {first: inputs[first], **{other: SharedQuantizationSpec((first, node)) for other in others}}
    for name in record.weights:
        inputs[arguments(node)[name]] = _weight(record.weight_axis)
    result = (
        SharedQuantizationSpec((next(iter(inputs)), node))
        if record.effect is Effect.JOINS
        else _FIXED.get(record.output, _ACTIVATION)
    )
    last = by_name[choice.relu] if choice.relu else node
    is_last = last is node
    node.meta[_KEY] = QuantizationAnnotation(
        input_qspec_map=inputs, output_qspec=result if is_last and not choice.to_float else None, _annotated=True
    )
    if not is_last:
        last.meta[_KEY] = QuantizationAnnotation(output_qspec=result, _annotated=True)


def _spec_of(value: fx.Node) -> Any:
    """The parameters that a value has already, or new ones."""
    known = value.meta.get(_KEY)
    return _ACTIVATION if known is None or known.output_qspec is None else SharedQuantizationSpec(value)


def _keep_scale(node: fx.Node) -> None:
    """A result with the parameters of its input, where that has some; averages too are rounded to its steps."""
    first = node.args[0]
    record = BY_ATEN.get(aten_name(node) or "")
    if not isinstance(first, fx.Node) or record is None or first.meta.get(_KEY) is None:
        return
    if first.meta[_KEY].output_qspec is None:
        return
    shared = SharedQuantizationSpec(first)
    node.meta[_KEY] = QuantizationAnnotation(input_qspec_map={first: shared}, output_qspec=shared, _annotated=True)
