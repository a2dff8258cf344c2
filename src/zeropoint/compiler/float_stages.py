"""What is float32 between layers of bytes: functions become part of the layer before them, sums and bytes of a norm."""

from __future__ import annotations

from zeropoint.compiler.program_builder import ProgramBuilder, Step
from zeropoint.compiler.step_uses import StepUses, replace_steps

__all__ = ["fuse_functions", "fuse_norms"]

_FUNCTIONS = ("gelu", "gelu_tanh", "tanh", "sigmoid", "silu")  # of native/kernels/float_function/float_function.h
_SUM = [["add", "float32", 0, 1]]
_BYTES = ("dtype", "scale", "zero_point", "low", "high")


def _rounds_as_layers_do(quantize: Step | None) -> bool:
    return quantize is not None and quantize.attributes.get("rounding", "split") == "split"


def fuse_functions(builder: ProgramBuilder) -> None:
    """``linear`` to float32, ``map`` of one function, ``quantize`` become ``linear`` with a function."""
    for quantize in [step for step in builder.steps if step.op == "quantize"]:
        uses = StepUses(builder)
        function = uses.maker(quantize.inputs[0], "map")
        code = function.attributes["code"] if function is not None else []
        if function is None or len(code) != 1 or code[0][0] not in _FUNCTIONS or not _rounds_as_layers_do(quantize):
            continue
        linear = uses.maker(function.inputs[0], "linear")
        if linear is None or linear.attributes["dtype"] != "float32" or linear.attributes["relu"]:
            continue
        attributes = {name: value for name, value in linear.attributes.items() if name not in ("dtype", "relu")}
        attributes |= {name: quantize.attributes[name] for name in _BYTES} | {"function": code[0][0]}
        fused = Step("linear", linear.inputs, quantize.outputs, attributes)
        replace_steps(builder, [linear, function, quantize], quantize, fused)


def fuse_norms(builder: ProgramBuilder) -> None:
    """``map`` of one sum, ``float_layer_norm``, ``quantize`` become ``float_layer_norm``, with two results or one."""
    for norm in [step for step in builder.steps if step.op == "float_layer_norm"]:
        uses = StepUses(builder)
        inputs, outputs, attributes, replaced = list(norm.inputs), list(norm.outputs), dict(norm.attributes), [norm]
        before = uses.maker(norm.inputs[0], "map")
        if before is not None and before.attributes["code"] == _SUM:
            inputs = [before.inputs[0], *inputs[1:], before.inputs[1]]
            replaced.append(before)
        readers = uses.readers(outputs[0])
        quantize = next((r for r in readers if r.op == "quantize" and _rounds_as_layers_do(r)), None)
        if quantize is not None:
            attributes |= {name: quantize.attributes[name] for name in _BYTES}
            only = len(readers) == 1 and not uses.is_output(outputs[0])
            outputs = quantize.outputs if only else [*outputs, *quantize.outputs]
            replaced.append(quantize)
        if len(replaced) > 1:
            replace_steps(builder, replaced, norm, Step(norm.op, inputs, outputs, attributes))
