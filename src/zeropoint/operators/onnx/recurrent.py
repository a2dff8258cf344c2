"""LSTM, GRU and RNN layers.

The gates of ONNX stand in another order than PyTorch's: input, output, forget, cell; update, reset, new.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, Read, ReadNode, Write, reads, writes

__all__ = ["DYNAMIC", "FORMS"]

# Metadata of a layer whose inputs are rounded to so many bits here when it runs; ONNX has no such operator.
DYNAMIC = "zeropoint.dynamic"
_BY_ROW = " by row"  # behind the bits, where each row has a range of its own
# PyTorch's gates in the order of ONNX.
_ORDER = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}


def _in_order(t: Tensor, order: list[int]) -> Tensor:
    """The gates along the first axis in another order."""
    gates = t.reshape(len(order), -1, *t.shape[1:])
    return torch.cat([gates[i] for i in order]).contiguous()


def _bits(a: dict[str, Any]) -> str:
    """The mark of a layer."""
    return ("7" if a["reduce_range"] else "8") + (_BY_ROW if a["per_token"] else "")


def _floats(weight: Tensor, scale: Tensor, zero_point: Tensor | None) -> Tensor:
    shift = 0 if zero_point is None else zero_point.reshape(-1, 1)
    return (weight.float() - shift) * scale.float().reshape(-1, 1)


# ------------------------------------------------------------------------------------------------------------- writing


class _Matrices:
    """The weights of a layer, by their numbers in its lists."""

    def __init__(self, w: OnnxWriter, a: dict[str, Any], kind: str) -> None:
        self.w, self.a, self.order = w, a, _ORDER[kind]

    def plain(self, number: int) -> tuple[Tensor, Tensor | None, Tensor | None, str]:
        """A matrix with its gates in the order of ONNX, its scales and zero points, or None for floats."""
        node = self.a["weights"][number]
        weight = _in_order(self.w.parameter(node), self.order)
        if not self.a["weight_scales"]:
            return weight, None, None, str(node.target)
        parts = [self.w.parameter(self.a[k][number]).reshape(-1) for k in ("weight_scales", "weight_zero_points")]
        scale, zero_point = (_in_order(t, self.order) if t.numel() > 1 else t for t in parts)
        return weight, scale, zero_point, str(node.target)

    def floats(self, numbers: list[int]) -> Any:
        """``(directions, gates * hidden, inputs)``"""
        made = []
        for number in numbers:
            weight, scale, zero_point, name = self.plain(number)
            if scale is not None and self.w.runtime == "openvino":  # which takes recurrent weights as floats only
                weight, scale = _floats(weight, scale, zero_point), None
            if scale is None:
                value = self.w.convert(self.w.constant(weight.unsqueeze(0), name), torch.float32)
            else:
                value = self.w.dequantized(weight.unsqueeze(0), scale, zero_point, 1, name)
            made.append(value)
        return made[0] if len(made) == 1 else self.w.op("Concat", *made, axis=0)

    def come_back(self, numbers: list[int]) -> bool:
        """Whether `_integers` finds the integers of these matrices again."""
        return self.w.runtime != "openvino" and all(self.plain(number)[1] is not None for number in numbers)

    def biases(self, numbers: list[int]) -> Any:
        """``(directions, 2 * gates * hidden)``: those of inputs, then those of hidden states."""
        if not self.a["biases"]:
            return None
        given = [[_in_order(self.w.parameter(self.a["biases"][n + i]), self.order) for i in (0, 1)] for n in numbers]
        return self.w.constant(torch.stack([torch.cat(pair).float() for pair in given]))

    def packed(self, numbers: list[int]) -> list[Any] | None:
        """What DynamicQuantizeLSTM takes: ``(directions, inputs, gates * hidden)``, scales and zero points."""
        parts = [self.plain(number) for number in numbers]
        if any(scale is None for _, scale, _, _ in parts):
            return None
        weights = torch.stack([weight.t() for weight, _, _, _ in parts])
        scales = torch.stack([scale.float() for _, scale, _, _ in parts if scale is not None])
        zero_points = torch.stack([z.to(weights.dtype) for _, _, z, _ in parts if z is not None])
        flat = scales.shape[1] == 1
        values = (weights, scales.reshape(-1) if flat else scales, zero_points.reshape(-1) if flat else zero_points)
        return [self.w.constant(value.contiguous(), parts[0][3]) for value in values]


def _write_layers(kind: str, activation: str = "") -> Write:
    """One operator for each layer: of ONNX around weights that are dequantized, or ONNX Runtime's own."""

    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a = arguments(node)
        directions, layers = 2 if a["bidirectional"] else 1, int(a["num_layers"])
        states = list(a["hx"]) if kind == "LSTM" else [a["hx"]]
        x = w.floats(a["input"])
        x = w.op("Transpose", x, perm=[1, 0, 2]) if a["batch_first"] else x
        begin = [
            w.ops("Split", layers, w.floats(h), axis=0, num_outputs=layers) if layers > 1 else [w.floats(h)]
            for h in states
        ]
        matrices = _Matrices(w, a, kind)
        hidden = int(w.found[states[0]].shape[-1])
        options: dict[str, Any] = {
            "hidden_size": hidden,
            "direction": "bidirectional" if directions == 2 else "forward",
        }
        if kind == "GRU":
            options["linear_before_reset"] = 1
        if activation:
            options["activations"] = [activation] * directions
        last: list[list[Any]] = [[] for _ in states]
        for layer in range(layers):
            first = layer * directions * 2
            numbers = [first + 2 * d for d in range(directions)]
            given = [values[layer] for values in begin]
            bias = matrices.biases(numbers)
            made = None
            if kind == "LSTM" and w.runtime == "onnxruntime":
                made = _runtimes_own(w, matrices, x, numbers, bias, given, options)
            if made is None:
                weights = matrices.floats(numbers), matrices.floats([n + 1 for n in numbers])
                made = w.ops(kind, 1 + len(states), x, *weights, bias, None, *given, **options)
                if matrices.come_back(numbers) and matrices.come_back([n + 1 for n in numbers]):
                    w.mark(made[0], DYNAMIC, _bits(a))
            x, *ends = made  # (sequence, directions, batch, hidden)
            if directions == 1:
                x = w.op("Squeeze", x, w.ints([1]))
            else:
                x = w.op("Reshape", w.op("Transpose", x, perm=[0, 2, 1, 3]), w.ints([0, 0, directions * hidden]))
            for kept, end in zip(last, ends):
                kept.append(end)
        x = w.op("Transpose", x, perm=[1, 0, 2]) if a["batch_first"] else x
        return [x, *(kept[0] if layers == 1 else w.op("Concat", *kept, axis=0) for kept in last)]

    return write


def _runtimes_own(w: OnnxWriter, m: _Matrices, x: Any, numbers: list[int], bias: Any, given: Any, options: Any) -> Any:
    inputs, hidden = m.packed(numbers), m.packed([n + 1 for n in numbers])
    if inputs is None or hidden is None:
        return None
    tensors = x, inputs[0], hidden[0], bias, None, *given, None, *inputs[1:], *hidden[1:]
    made = w.ops("DynamicQuantizeLSTM", 3, *tensors, domain="com.microsoft", **options)
    w.mark(made[0], DYNAMIC, _bits(m.a))
    return made


# ------------------------------------------------------------------------------------------------------------- reading


def _read_layer(kind: str) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        if n.attribute("direction", "forward") == "reverse":
            raise r.unsupported("direction=reverse is not supported")
        if n.attribute("layout", 0) or n.attribute("clip", None) is not None or n.attribute("input_forget", 0):
            raise r.unsupported("layout, clip and input_forget are not supported")
        names = [str(name).lower() for name in n.attribute("activations", None) or []]
        usual = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}[kind]
        is_relu = kind == "RNN" and bool(names) and set(names) == {"relu"}
        if names and not is_relu and names != usual * (len(names) // len(usual)):
            raise r.unsupported(f"unsupported activations: {', '.join(names)}")
        given = [*n.inputs, *[None] * 8]
        if given[4] is not None or (kind == "LSTM" and given[7] is not None):
            raise r.unsupported("sequence_lens and peepholes are not supported")
        if kind == "GRU" and not n.attribute("linear_before_reset", 0):
            raise r.unsupported("linear_before_reset=0 is not supported; PyTorch's GRU uses 1")
        stored = [_integers(r, value) for value in given[1:3]] if n.mark(DYNAMIC) else [None]
        if all(part is not None for part in stored):
            name = {"RNN": "rnn_relu" if is_relu else "rnn_tanh"}.get(kind, kind.lower())
            return _on_integers(r, n, name, _ORDER[kind], given, stored, n.mark(DYNAMIC))
        return _computed(r, n, kind, given, is_relu)

    return read


def _integers(r: OnnxReader, value: Any) -> list[tuple[Any, Any, Any]] | None:
    """Of weights that are stored as integers: those of each direction, with scale and zero point."""
    found = r.stored_parts(value)
    if found is None or any(axis not in (None, 1) for *_, axis in found):
        return None
    return [(part, scale.reshape(-1), shift.reshape(-1)) for whole, scale, shift, _ in found for part in whole]


def _on_integers(
    r: OnnxReader, n: ReadNode, name: str, gates: list[int], given: list[Any], matrices: list[Any], mark: str
) -> Any:
    """A layer of 8-bit weights whose inputs are rounded when it runs.

    Args:
        matrices: for inputs and for hidden states, for each direction: integers, scale and zero point.
        mark: of `_bits`; none, in files of others, for 8 bits and one range.
    """
    x, hidden = r.tensor(given[0]), n.attribute("hidden_size")
    order = [gates.index(i) for i in range(len(gates))]  # the other way round
    directions = len(matrices[0])
    columns: list[list[Any]] = [[], [], []]
    biases: list[Any] = []
    for d in range(directions):
        for weight, *numbers in (matrices[0][d], matrices[1][d]):
            scale, shift = (_in_order(part, order) if part.numel() > 1 else part for part in numbers)
            for column, part in zip(columns, (_in_order(weight, order), scale, shift.to(torch.int64))):
                column.append(part)
        if given[3] is not None:
            biases += [_in_order(part, order) for part in r.tensor(given[3])[d].chunk(2)]
    shape = (directions, x.shape[1], hidden)
    starts = [
        x.new_zeros(shape) if given[i] is None else r.tensor(given[i]) for i in ((5, 6) if name == "lstm" else (5,))
    ]
    options = 1, 0.0, False, directions == 2, False, mark.startswith("7"), None, mark.endswith(_BY_ROW)
    op = getattr(torch.ops.zeropoint, f"quantized_{name}").input
    y, *last = op(x, starts if name == "lstm" else starts[0], *columns, biases, *options)
    y = y.unflatten(2, (directions, hidden)).transpose(1, 2)
    return [y, *last][: n.outputs]


def _computed(r: OnnxReader, n: ReadNode, kind: str, given: list[Any], is_relu: bool) -> Any:
    x, hidden = r.tensor(given[0]), n.attribute("hidden_size")
    weights, recurrent = r.weight(given[1]), r.weight(given[2])
    directions = weights.shape[0]
    order = [_ORDER[kind].index(i) for i in range(len(_ORDER[kind]))]  # the other way round
    bias = None if given[3] is None else r.tensor(given[3])
    params = []
    for d in range(directions):
        params += [_in_order(weights[d], order), _in_order(recurrent[d], order)]
        if bias is not None:
            params += [_in_order(part, order) for part in bias[d].chunk(2)]
    shape = (directions, x.shape[1], hidden)
    starts = [
        x.new_zeros(shape) if given[i] is None else r.tensor(given[i]) for i in ((5, 6) if kind == "LSTM" else (5,))
    ]
    options = bias is not None, 1, 0.0, False, directions == 2, False
    if kind == "LSTM":
        y, *last = torch.lstm(x, starts, params, *options)
    else:
        function = torch.gru if kind == "GRU" else torch.rnn_relu if is_relu else torch.rnn_tanh
        y, *last = function(x, starts[0], params, *options)
    y = y.unflatten(2, (directions, hidden)).transpose(1, 2)  # (sequence, directions, batch, hidden)
    return [y, *last][: n.outputs]


def _read_dynamic(r: OnnxReader, n: ReadNode) -> Any:
    """ONNX Runtime's LSTM of 8-bit weights, whose inputs are rounded when it runs, as ours does."""
    if n.attribute("direction", "forward") == "reverse" or n.attribute("input_forget", 0):
        raise r.unsupported("direction=reverse and input_forget are not supported")
    given = [*n.inputs, *[None] * 12][:12]
    if given[4] is not None or given[7] is not None:
        raise r.unsupported("sequence_lens and peepholes are not supported")
    matrices = []
    for weight, scale, shift in ((given[1], given[8], given[9]), (given[2], given[10], given[11])):
        parts = zip(*(r.tensor(part) for part in (weight, scale, shift)))
        matrices.append([(integers.t(), s.reshape(-1), z.reshape(-1)) for integers, s, z in parts])
    return _on_integers(r, n, "lstm", _ORDER["LSTM"], given, matrices, n.mark(DYNAMIC))


FORMS = {
    "quantized_lstm": OnnxForms(
        writes(_write_layers("LSTM"), "zeropoint.quantized_lstm.input"),
        (*reads(_read_layer("LSTM"), "LSTM"), *reads(_read_dynamic, "com.microsoft.DynamicQuantizeLSTM")),
    ),
    "quantized_gru": OnnxForms(
        writes(_write_layers("GRU"), "zeropoint.quantized_gru.input"), reads(_read_layer("GRU"), "GRU")
    ),
    "quantized_rnn_tanh": OnnxForms(
        writes(_write_layers("RNN", "Tanh"), "zeropoint.quantized_rnn_tanh.input"), reads(_read_layer("RNN"), "RNN")
    ),
    "quantized_rnn_relu": OnnxForms(writes(_write_layers("RNN", "Relu"), "zeropoint.quantized_rnn_relu.input")),
}  # fmt: skip
