"""Fusion of float32 functions into the layer before them, and of sums and quantization into norms."""

from __future__ import annotations

from zeropoint.compiler.def_use import Fresh, StepUses, replace_steps
from zeropoint.compiler.program_builder import ProgramBuilder, Step

_FUNCTIONS = ("gelu", "gelu_tanh", "tanh", "sigmoid", "silu")  # of native/kernels/float_function/float_function.h
_SUM = [["add", "float32", 0, 1]]
_BYTES = ("dtype", "scale", "zero_point", "low", "high")


def _rounds_as_layers_do(quantize: Step | None) -> bool:
    return quantize is not None and quantize.attributes.get("rounding", "split") == "split"


def _is_function(step: Step) -> bool:
    code = step.attributes["code"]
    return len(code) == 1 and code[0][0] in _FUNCTIONS


def fuse_functions(builder: ProgramBuilder) -> None:
    """``linear`` to float32, ``map`` of one function, ``quantize`` become ``linear`` with a function."""
    for quantize in [step for step in builder.steps if step.op == "quantize"]:
        uses = StepUses(builder)
        function = uses.maker(quantize.inputs[0], "map")
        if function is None or not _is_function(function) or not _rounds_as_layers_do(quantize):
            continue
        linear = uses.maker(function.inputs[0], "linear")
        if linear is None or linear.attributes["dtype"] != "float32" or linear.attributes["relu"]:
            continue
        attributes = {name: value for name, value in linear.attributes.items() if name not in ("dtype", "relu")}
        attributes |= {name: quantize.attributes[name] for name in _BYTES} | {
            "function": function.attributes["code"][0][0]
        }
        fused = Step("linear", linear.inputs, quantize.outputs, attributes)
        replace_steps(builder, [linear, function, quantize], quantize, fused)


def split_functions(step: Step, fresh: Fresh) -> list[Step] | None:
    """The three steps that `fuse_functions` made one of."""
    a = step.attributes
    if step.op != "linear" or "function" not in a:
        return None
    product, value = fresh(step.outputs[0]), fresh(step.outputs[0])
    layer = {name: number for name, number in a.items() if name not in (*_BYTES, "function")}
    layer |= {"dtype": "float32", "relu": False}
    rounded = {name: a[name] for name in _BYTES}
    return [
        Step("linear", step.inputs, [product], layer),
        _function_step(a["function"], product, value),
        Step("quantize", [value], step.outputs, rounded),
    ]


def _function_step(function: str, x: str, y: str) -> Step:
    return Step("map", [x], [y], {"types": ["float32"], "code": [[function, "float32", 0]]})


def split_norms(step: Step, fresh: Fresh) -> list[Step] | None:
    """What `fuse_norms` made one step of: a sum before it, and the bytes behind it."""
    a = step.attributes
    if step.op != "float_layer_norm" or (len(step.inputs) == 3 and "dtype" not in a):
        return None
    x, made = step.inputs[0], []
    if len(step.inputs) > 3:
        x = fresh(step.outputs[0])
        made.append(
            Step("map", [step.inputs[0], step.inputs[3]], [x], {"types": ["float32"] * 2, "code": [list(_SUM[0])]})
        )
    y = step.outputs[0] if "dtype" not in a or len(step.outputs) > 1 else fresh(step.outputs[0])
    numbers = {name: number for name, number in a.items() if name not in _BYTES}
    made.append(Step(step.op, [x, *step.inputs[1:3]], [y], numbers))
    if "dtype" in a:
        made.append(Step("quantize", [y], step.outputs[-1:], {name: a[name] for name in _BYTES}))
    return made


def split_dynamic_layers(step: Step, fresh: Fresh) -> list[Step] | None:
    """One layer for each weight, and its function behind it."""
    a = step.attributes
    if step.op != "linear_dynamic" or (len(step.outputs) == 1 and "function" not in a):
        return None
    numbers = {name: number for name, number in a.items() if name != "function"}
    made = []
    for i, output in enumerate(step.outputs):
        product = fresh(output) if "function" in a else output
        made.append(Step(step.op, [step.inputs[0], *step.inputs[1 + 4 * i : 5 + 4 * i]], [product], numbers))
        if "function" in a:
            made.append(_function_step(a["function"], product, output))
    return made


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


def fuse_dynamic_functions(builder: ProgramBuilder) -> None:
    """``linear_dynamic`` and ``map`` of one function become ``linear_dynamic`` with a function."""
    for function in [step for step in builder.steps if step.op == "map" and _is_function(step)]:
        linear = StepUses(builder).maker(function.inputs[0], "linear_dynamic")
        if linear is None or linear.attributes["relu"] or "function" in linear.attributes:
            continue
        attributes = linear.attributes | {"function": function.attributes["code"][0][0]}
        fused = Step(linear.op, linear.inputs, function.outputs, attributes)
        replace_steps(builder, [linear, function], function, fused)


def join_dynamic_layers(builder: ProgramBuilder) -> None:
    """``linear_dynamic`` of one input with different weights become one, which quantizes the input once."""
    first: dict[tuple[object, ...], Step] = {}
    kept = []
    for step in builder.steps:
        if step.op == "linear_dynamic":
            one = first.setdefault((step.inputs[0], *sorted(step.attributes.items())), step)
            if one is not step:
                one.inputs += step.inputs[1:]
                one.outputs += step.outputs
                continue
        kept.append(step)
    builder.steps = kept
