"""Fusion of float32 functions into the layer before them, and of sums and quantization into norms."""

from __future__ import annotations

from zeropoint.compiler.def_use import Fresh, StepUses, replace_steps
from zeropoint.compiler.program_builder import ProgramBuilder, Step

_FUNCTIONS = ("gelu", "gelu_tanh", "tanh", "sigmoid", "silu")  # of native/kernels/float_function/float_function.h
_SUM = [["add", "float32", 0, 1]]
_SCALE = ("scale", "zero_point")
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
    """What `fuse_norms` made one step of: bytes that become floats and a sum before it, and the bytes behind it."""
    a = step.attributes
    if step.op != "float_layer_norm" or (len(step.inputs) == 3 and not {"dtype", "x_scale"} & a.keys()):
        return None
    x, made, outputs = step.inputs[0], [], list(step.outputs)
    if "x_scale" in a:
        x = fresh(outputs[-1])
        made.append(Step("dequantize", [step.inputs[0]], [x], {name: a[f"x_{name}"] for name in _SCALE}))
    if len(step.inputs) > 3:
        operands = [x, step.inputs[3]]
        x = outputs.pop(0) if a.get("sum") else fresh(outputs[-1])
        made.append(Step("map", operands, [x], {"types": ["float32"] * 2, "code": [list(_SUM[0])]}))
    y = outputs[0] if "dtype" not in a or len(outputs) > 1 else fresh(outputs[0])
    fused = (*_BYTES, "sum", "x_scale", "x_zero_point")
    numbers = {name: number for name, number in a.items() if name not in fused}
    made.append(Step(step.op, [x, *step.inputs[1:3]], [y], numbers))
    if "dtype" in a:
        made.append(Step("quantize", [y], outputs[-1:], {name: a[name] for name in _BYTES}))
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
    """``dequantize, map`` of one sum, ``float_layer_norm, quantize`` become ``float_layer_norm``.

    Its results are the sum and the norm in float32, as far as others read them, and the bytes.
    """
    for norm in [step for step in builder.steps if step.op == "float_layer_norm"]:
        uses = StepUses(builder)
        inputs, outputs, attributes, replaced = list(norm.inputs), list(norm.outputs), dict(norm.attributes), [norm]
        before = _sum_before(builder, uses, norm)
        if before is not None:
            inputs = [before.inputs[0], *inputs[1:], before.inputs[1]]
            replaced.append(before)
            if uses.maker(inputs[0], "dequantize") is None and uses.maker(inputs[3], "dequantize") is not None:
                inputs[0], inputs[3] = inputs[3], inputs[0]
        dequantize = uses.maker(inputs[0], "dequantize")
        if dequantize is not None:
            inputs[0] = dequantize.inputs[0]
            attributes |= {f"x_{name}": dequantize.attributes[name] for name in _SCALE}
            replaced.append(dequantize)
        readers = uses.readers(outputs[0])
        quantize = next((r for r in readers if r.op == "quantize" and _rounds_as_layers_do(r)), None)
        if quantize is not None:
            attributes |= {name: quantize.attributes[name] for name in _BYTES}
            only = len(readers) == 1 and not uses.is_output(outputs[0])
            outputs = quantize.outputs if only else [*outputs, *quantize.outputs]
            replaced.append(quantize)
        if before is not None and uses.maker(norm.inputs[0], "map") is None:
            attributes["sum"] = True
            outputs = [*before.outputs, *outputs]
        if len(replaced) > 1:
            replace_steps(builder, replaced, norm, Step(norm.op, inputs, outputs, attributes))


def _sum_before(builder: ProgramBuilder, uses: StepUses, norm: Step) -> Step | None:
    """The sum that a norm is of, if all others who read it come later."""
    step = uses.any_maker(norm.inputs[0])
    if step is None or step.op != "map" or step.attributes["code"] != _SUM or step.inputs[0] == step.inputs[1]:
        return None
    order = {id(other): place for place, other in enumerate(builder.steps)}
    later = all(order[id(reader)] >= order[id(norm)] for reader in uses.readers(step.outputs[0]))
    return step if later else None


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
