"""Attention as one step: two products of bytes, and the scale, the masks and the softmax between them."""

from __future__ import annotations

from typing import Any, NamedTuple

from zeropoint.compiler.def_use import Fresh, StepUses, replace_steps
from zeropoint.compiler.program_builder import ProgramBuilder, Step

_MOST_OPERATIONS = 8  # as native/kernels/attention/attention.h has it
# What makes a copy in the order of the axes anyway, so that it does not show in which order the memory was before.
_IN_ORDER = ("flatten", "reshape", "contiguous")
_SCALE = ("scale", "zero_point")
_MASKED = ("add_mask", "keep", "replace")


class _Operation(NamedTuple):
    """What is done to a score, and the mask that it reads."""

    name: str
    number: Any = None
    mask: str | None = None

    def described(self) -> list[Any]:
        return [self.name] if self.number is None else [self.name, self.number]


def fuse_attention(builder: ProgramBuilder) -> None:
    """``matmul, dequantize, map..., float_softmax, quantize, matmul (, transpose)`` become ``attention``."""
    for softmax in [step for step in builder.steps if step.op == "float_softmax"]:
        uses = StepUses(builder)
        found = _Attention.around(builder, uses, softmax)
        if found is not None:
            replace_steps(builder, found.steps, found.last, *found.fused(builder))


class _Attention(NamedTuple):
    scores: Step
    dequantize: Step
    operations: list[_Operation]
    maps: list[Step]
    softmax: Step
    quantize: Step
    product: Step
    transpose: Step | None
    windows: list[
        Step
    ]  # reshapes around a mask of windows: (images * windows, ...) to (images, windows, ...), and back

    @property
    def steps(self) -> list[Step]:
        steps = [self.scores, self.dequantize, *self.maps, *self.windows, self.softmax, self.quantize, self.product]
        return steps if self.transpose is None else [*steps, self.transpose]

    @property
    def last(self) -> Step:
        return self.product if self.transpose is None else self.transpose

    @classmethod
    def around(cls, builder: ProgramBuilder, uses: StepUses, softmax: Step) -> _Attention | None:
        """What attention a softmax is a part of, if it is of one that the step computes."""
        if not _is_last_axis(builder, softmax):
            return None
        name, maps, operations = softmax.inputs[0], list[Step](), list[_Operation]()
        windows, outside = list[Step](), list[_Operation]()
        while (step := uses.maker(name, "map", "reshape")) is not None:
            if step.op == "reshape":
                windows.insert(0, step)
                name = step.inputs[0]
                continue
            chain = next((found for i in step.inputs if (found := _chain(builder, uses, step, i)) is not None), None)
            if chain is None:
                return None
            name, more = chain
            maps.insert(0, step)
            operations = more + operations
            outside += more if len(windows) != 1 else []
        if windows and not _are_windows(builder, windows, outside):
            return None
        dequantize = uses.maker(name, "dequantize")
        scores = uses.maker(dequantize.inputs[0], "matmul") if dequantize is not None else None
        quantize = uses.reader(softmax.outputs[0], "quantize")
        product = uses.reader(quantize.outputs[0], "matmul") if quantize is not None else None
        if dequantize is None or scores is None or quantize is None or product is None:
            return None
        is_left = product.inputs[0] == quantize.outputs[0] != product.inputs[1]
        is_stored = scores.inputs[1] in builder.constants or product.inputs[1] in builder.constants
        if not is_left or is_stored or len(operations) > _MOST_OPERATIONS:
            return None
        if quantize.attributes.get("rounding", "split") != "split":
            return None
        if not _is_same_scale(scores, "", dequantize, "") or not _is_same_scale(quantize, "", product, "a_"):
            return None
        transpose = _transpose_behind(builder, uses, product)
        return cls(scores, dequantize, operations, maps, softmax, quantize, product, transpose, windows)

    def fused(self, builder: ProgramBuilder) -> list[Step]:
        """The step, between those that give its inputs an axis of windows and take it from the result."""
        scores, quantize, product = self.scores.attributes, self.quantize.attributes, self.product.attributes
        attributes: dict[str, Any] = {}
        for kind in ("scale", "zero_point"):
            attributes |= {f"q_{kind}": scores[f"a_{kind}"], f"k_{kind}": scores[f"b_{kind}"]}
            attributes |= {f"score_{kind}": scores[kind], f"share_{kind}": quantize[kind]}
            attributes |= {f"v_{kind}": product[f"b_{kind}"], kind: product[kind]}
        attributes |= {f"share_{name}": quantize[name] for name in ("dtype", "low", "high")}
        attributes["operations"] = [operation.described() for operation in self.operations]
        attributes |= {"safe": self.softmax.attributes["safe"], "heads_inside": self.transpose is not None}
        masks = [operation.mask for operation in self.operations if operation.mask is not None]
        matrices = [str(name) for name in (self.scores.inputs[0], self.scores.inputs[1], self.product.inputs[1])]
        if not self.windows:
            return [Step("attention", [*matrices, *masks], self.last.outputs, attributes)]
        *batch, rows, columns = self.windows[0].attributes["shape"]
        shapes = ([*batch, rows, -1], [*batch, -1, columns], [*batch, columns, -1])
        split = [builder.fresh(name) for name in matrices]
        made = builder.fresh(self.last.outputs[0])
        return [
            *(Step("reshape", [x], [y], {"shape": shape}) for x, y, shape in zip(matrices, split, shapes)),
            Step("attention", [*split, *masks], [made], attributes),
            Step("flatten", [made], self.last.outputs, {"first": 0, "last": 1}),
        ]


def split_attention(step: Step, fresh: Fresh) -> list[Step] | None:
    """The steps that `fuse_attention` made one of."""
    if step.op != "attention":
        return None
    a, (q, k, v, *masks) = step.attributes, step.inputs
    last = step.outputs[0]
    bytes_, scores, shares, share_bytes = (fresh(last) for _ in range(4))

    def pair(x: str, y: str, result: str) -> dict[str, Any]:
        sides = {f"{side}_{kind}": a[f"{given}_{kind}"] for side, given in (("a", x), ("b", y)) for kind in _SCALE}
        return sides | {kind: a[f"{result}_{kind}" if result else kind] for kind in _SCALE}

    made = [
        Step("matmul", [q, k], [bytes_], pair("q", "k", "score")),
        Step("dequantize", [bytes_], [scores], {kind: a[f"score_{kind}"] for kind in _SCALE}),
    ]
    for name, *number in a["operations"]:
        x, scores = scores, fresh(last)
        made.append(_operation_step(name, number, x, masks.pop(0) if name in _MASKED else None, scores))
    product = fresh(last) if a["heads_inside"] else last
    rounded = {name: a[f"share_{name}"] for name in (*_SCALE, "dtype", "low", "high")}
    made += [
        Step("float_softmax", [scores], [shares], {"axis": -1, "safe": a["safe"]}),
        Step("quantize", [shares], [share_bytes], rounded),
        Step("matmul", [share_bytes, v], [product], pair("share", "v", "")),
    ]
    if a["heads_inside"]:
        made.append(Step("transpose", [product], [last], {"first": -3, "second": -2}))
    return made


def _operation_step(name: str, number: list[Any], x: str, mask: str | None, y: str) -> Step:
    """What is done to a score, as an expression."""
    if name in ("keep", "replace"):
        types, places = ["float32", "bool"], [1, 0, 2] if name == "keep" else [1, 2, 0]
        code = [["number", "float32", *number], ["where", "float32", *places]]
    elif name == "add_mask":
        types, code = ["float32", "float32"], [["add", "float32", 0, 1]]
    else:
        types = ["float32"]
        code = [["number", "float32", *number], [{"multiply": "mul", "divide": "div"}.get(name, name), "float32", 0, 1]]
    return Step("map", [x] if mask is None else [x, mask], [y], {"types": types, "code": code})


def _are_windows(builder: ProgramBuilder, windows: list[Step], outside: list[_Operation]) -> bool:
    """Whether reshapes split the first axis of scores and join it again, with no mask that has this axis outside."""
    if len(windows) != 2:
        return False
    split, joined = windows[0].attributes["shape"], windows[1].attributes["shape"]
    masks = [builder.shapes.get(operation.mask) for operation in outside if operation.mask is not None]
    are_repeated = all(shape is not None and (len(shape) < 4 or shape[-4] == 1) for shape in masks)
    sizes = split[-3:]
    # Sizes that are numbers are the same for all inputs.
    is_known = all(type(size) is int and size > 0 for size in sizes) and -1 not in split
    shape = builder.shapes.get(windows[0].inputs[0] or "")
    has_sizes = shape is not None and len(shape) == 4 and list(shape[1:]) == sizes
    return is_known and has_sizes and are_repeated and len(split) == 5 and list(joined[1:]) == sizes


def _is_last_axis(builder: ProgramBuilder, softmax: Step) -> bool:
    axis, shape = softmax.attributes["axis"], builder.shapes.get(softmax.outputs[0])
    return axis == -1 or (shape is not None and axis == len(shape) - 1)


def _is_same_scale(a: Step, a_prefix: str, b: Step, b_prefix: str) -> bool:
    return all(a.attributes[a_prefix + kind] == b.attributes[b_prefix + kind] for kind in ("scale", "zero_point"))


def _chain(
    builder: ProgramBuilder, uses: StepUses, step: Step, name: str | None
) -> tuple[str, list[_Operation]] | None:
    """The code of a map as operations on one of its inputs, if it is that: each reads what the one before it gave."""
    if name is None or uses.maker(name, "map", "dequantize", "reshape") is None:
        return None
    types, code = step.attributes["types"], step.attributes["code"]
    first = len(step.inputs)
    at = step.inputs.index(name)
    numbers: dict[int, Any] = {}
    operations: list[_Operation] = []
    for index, (op, dtype, *operands) in enumerate(code, first):
        if op == "number":
            numbers[index] = operands[0]
            continue
        if dtype != "float32" or operands.count(at) != 1:
            return None
        others = [i for i in operands if i != at]
        made = _operation(op, operands.index(at), [_operand(step, types, numbers, i) for i in others])
        if made is None:
            return None
        operations.append(made)
        at = index
    return (name, operations) if at == first + len(code) - 1 else None


def _operand(step: Step, types: list[str], numbers: dict[int, Any], index: int) -> tuple[str, Any]:
    """An operand of a fused chain: its kind (a number, a tensor of a dtype, or a computed value), and the operand."""
    if index in numbers:
        return "number", numbers[index]
    if index < len(step.inputs):
        return types[index], step.inputs[index]
    return "computed", None


def _operation(op: str, place: int, others: list[tuple[str, Any]]) -> _Operation | None:
    """What an instruction does to the score, which is its operand number `place`."""
    kinds, things = [kind for kind, _ in others], [thing for _, thing in others]
    match op, place, kinds:
        case "mul", _, ["number"]:
            return _Operation("multiply", things[0])
        case "div", 0, ["number"]:
            return _Operation("divide", things[0])
        case "add", _, ["number"]:
            return _Operation("add", things[0])
        case "add", _, ["float32"]:
            return _Operation("add_mask", mask=things[0])
        case "where", 1, ["bool", "number"]:
            return _Operation("keep", things[1], things[0])
        case "where", 2, ["bool", "number"]:
            return _Operation("replace", things[1], things[0])
    return None


def _transpose_behind(builder: ProgramBuilder, uses: StepUses, product: Step) -> Step | None:
    """The transpose that puts heads next to what each of them gives, if all who read it want them in this order."""
    shape, step = builder.shapes.get(product.outputs[0]), uses.reader(product.outputs[0], "transpose")
    if step is None or shape is None or len(shape) < 3:
        return None
    axes = {axis % len(shape) for axis in (step.attributes["first"], step.attributes["second"])}
    readers = uses.readers(step.outputs[0])
    in_order = bool(readers) and not uses.is_output(step.outputs[0]) and all(r.op in _IN_ORDER for r in readers)
    return step if in_order and axes == {len(shape) - 3, len(shape) - 2} else None
