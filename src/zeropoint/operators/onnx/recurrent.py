"""LSTM, GRU and RNN layers.

The gates of ONNX stand in another order than PyTorch's: input, output, forget, cell; update, reset, new.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, Read, ReadNode, Write, reads, writes

# Metadata of a layer whose inputs are rounded to so many bits here when it runs; ONNX has no such operator.
DYNAMIC = "zeropoint.dynamic"
_BY_ROW = " by row"  # behind the bits, where each row has a range of its own
# PyTorch's gates in the order of ONNX.
_ORDER = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}
_USUAL = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
_STATES = {"LSTM": 3, "GRU": 2, "RNN": 2}  # inputs of states, and the one before them
_MOST_STEPS = 512  # that a layer is written out for


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


class _Layer:
    """What the file says about a layer, with its values as ``(sequence, batch, ...)``."""

    def __init__(self, r: OnnxReader, n: ReadNode, kind: str) -> None:
        self.kind, self.hidden = kind, n.attribute("hidden_size", None)
        count = {"LSTM": 8, "GRU": 6, "RNN": 6}[kind]
        self.given = n.first(count) + [None] * (8 - count)
        self.by_batch = bool(n.attribute("layout", 0))
        self.direction = n.attribute("direction", "forward")
        self.x, self.states = r.tensor(self.given[0]), [r.tensor(value) for value in self.given[5 : 4 + _STATES[kind]]]
        if self.by_batch:
            self.x = self.x.transpose(0, 1)
            self.states = [None if state is None else state.transpose(0, 1) for state in self.states]
        self.lengths = self.given[4]
        if r.is_known(self.lengths) and all(length == self.x.shape[0] for length in r.numbers(self.lengths)):
            self.lengths = None
        self.peepholes = self.given[7]
        self.clip = n.attribute("clip", None)
        self.coupled = bool(n.attribute("input_forget", 0)) if kind == "LSTM" else False
        self.after_reset = kind != "GRU" or bool(n.attribute("linear_before_reset", 0))
        self._activations(r, n)

    def _activations(self, r: OnnxReader, n: ReadNode) -> None:
        usual = _USUAL[self.kind] * (2 if self.direction == "bidirectional" else 1)
        names = [str(name).lower() for name in n.attribute("activations", None) or usual]
        self.names = names * (len(usual) // len(names)) if names else usual
        self.factors = (
            list(n.attribute("activation_alpha", None) or []),
            list(n.attribute("activation_beta", None) or []),
        )
        unknown = [name for name in self.names if name not in _ACTIVATIONS]
        if unknown or len(self.names) != len(usual):
            raise r.unsupported(f"unsupported activations: {', '.join(self.names)}")
        self.is_relu = self.kind == "RNN" and set(self.names) == {"relu"}
        self.is_usual = (self.names == usual or self.is_relu) and not any(self.factors)

    @property
    def is_pytorchs(self) -> bool:
        plain = self.lengths is None and self.peepholes is None and self.clip is None
        return plain and self.is_usual and not self.coupled and self.after_reset

    def starts(self, directions: int) -> list[Any]:
        shape = (directions, self.x.shape[1], self.hidden)
        return [self.x.new_zeros(shape) if state is None else state for state in self.states]

    def results(self, y: Any, last: list[Any]) -> list[Any]:
        """From ``(sequence, directions, batch, hidden)`` and the last states."""
        if self.by_batch:
            return [y.permute(2, 0, 1, 3), *(state.transpose(0, 1) for state in last)]
        return [y, *last]


def _read_layer(kind: str) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        layer = _Layer(r, n, kind)
        if layer.hidden is None:
            layer.hidden = r.tensor(layer.given[2]).shape[-1]
        stored = [_integers(r, value) for value in layer.given[1:3]] if n.mark(DYNAMIC) else [None]
        if not layer.is_pytorchs:
            return layer.results(*_step_by_step(r, layer))
        if layer.direction == "reverse":
            layer.x = torch.flip(layer.x, [0])
        if all(part is not None for part in stored):
            name = {"RNN": "rnn_relu" if layer.is_relu else "rnn_tanh"}.get(kind, kind.lower())
            y, *last = _on_integers(r, layer, name, _ORDER[kind], stored, n.mark(DYNAMIC))
        else:
            y, *last = _computed(r, layer)
        return layer.results(torch.flip(y, [0]) if layer.direction == "reverse" else y, last)

    return read


# The functions of gates, of a value and two numbers with their defaults.
_ACTIVATIONS: dict[str, tuple[Any, float, float]] = {
    "sigmoid": (lambda x, a, b: torch.sigmoid(x), 0.0, 0.0),
    "tanh": (lambda x, a, b: torch.tanh(x), 0.0, 0.0),
    "relu": (lambda x, a, b: torch.relu(x), 0.0, 0.0),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: F.leaky_relu(x, a), 0.01, 0.0),
    "thresholdedrelu": (lambda x, a, b: F.threshold(x, a, 0.0), 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: a * torch.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: torch.clamp(a * x + b, 0.0, 1.0), 0.2, 0.5),
    "elu": (lambda x, a, b: F.elu(x, a), 1.0, 0.0),
    "softsign": (lambda x, a, b: F.softsign(x), 0.0, 0.0),
    "softplus": (lambda x, a, b: F.softplus(x), 0.0, 0.0),
}  # fmt: skip


def _step_by_step(r: OnnxReader, layer: _Layer) -> tuple[Any, list[Any]]:
    """A layer that PyTorch has no operator for, written out: one cell after the other."""
    steps = layer.x.shape[0]
    if not isinstance(steps, int) or steps > _MOST_STEPS:
        raise r.unsupported(
            f"a layer with clip, peepholes, sequence_lens or other activations is written out, of {steps} steps; it "
            f"needs a fixed number of at most {_MOST_STEPS}"
        )
    weights, recurrent = (r.weight(value) for value in layer.given[1:3])
    directions = weights.shape[0]
    starts = layer.starts(directions)
    sides, ends = [], []
    for d in range(directions):
        bias = torch.zeros_like(weights[d, :, 0]).repeat(2) if layer.given[3] is None else r.tensor(layer.given[3])[d]
        holes = None if layer.peepholes is None else r.tensor(layer.peepholes)[d].chunk(3)
        cell = _Cell(layer, d, weights[d], recurrent[d], bias, holes)
        state = [start[d] for start in starts]
        backwards = layer.direction == "reverse" or d == 1
        made: list[Any] = [None] * steps
        for t in reversed(range(steps)) if backwards else range(steps):
            new = cell(layer.x[t], state)
            if layer.lengths is not None:
                running = (t < r.tensor(layer.lengths)).unsqueeze(-1)
                made[t] = torch.where(running, new[0], torch.zeros_like(new[0]))
                new = [torch.where(running, after, before) for after, before in zip(new, state)]
            else:
                made[t] = new[0]
            state = new
        sides.append(torch.stack(made))
        ends.append(state)
    return torch.stack(sides, 1), [torch.stack(list(parts)) for parts in zip(*ends)]


class _Cell:
    """One step of one direction."""

    def __init__(self, layer: _Layer, direction: int, weight: Any, recurrent: Any, bias: Any, holes: Any) -> None:
        self.layer, self.weight, self.recurrent, self.holes = layer, weight, recurrent, holes
        self.bias, self.recurrent_bias = bias.chunk(2)
        count = len(_USUAL[layer.kind])
        self.places = range(direction * count, (direction + 1) * count)

    def _function(self, number: int, x: Any) -> Any:
        place = self.places[number]
        function, *defaults = _ACTIVATIONS[self.layer.names[place]]
        factors = (f[place] if place < len(f) else d for f, d in zip(self.layer.factors, defaults))
        limit = self.layer.clip
        return function(x if limit is None else torch.clamp(x, -limit, limit), *factors)

    def __call__(self, x: Any, state: list[Any]) -> list[Any]:
        gates = F.linear(x, self.weight, self.bias)
        return getattr(self, f"_{self.layer.kind.lower()}")(gates, *state)

    def _rnn(self, gates: Any, h: Any) -> list[Any]:
        return [self._function(0, gates + F.linear(h, self.recurrent, self.recurrent_bias))]

    def _gru(self, gates: Any, h: Any) -> list[Any]:
        size = h.shape[-1]
        first = gates[:, : 2 * size] + F.linear(h, self.recurrent[: 2 * size], self.recurrent_bias[: 2 * size])
        update, reset = self._function(0, first).chunk(2, -1)
        last = self.recurrent[2 * size :], self.recurrent_bias[2 * size :]
        behind = reset * F.linear(h, *last) if self.layer.after_reset else F.linear(reset * h, *last)
        new = self._function(1, gates[:, 2 * size :] + behind)
        return [(1.0 - update) * new + update * h]

    def _lstm(self, gates: Any, h: Any, c: Any) -> list[Any]:
        i, o, f, g = (gates + F.linear(h, self.recurrent, self.recurrent_bias)).chunk(4, -1)
        if self.holes is not None:
            i, f = i + self.holes[0] * c, f + self.holes[2] * c
        into = self._function(0, i)
        kept = 1.0 - into if self.layer.coupled else self._function(0, f)
        c = kept * c + into * self._function(1, g)
        out = self._function(0, o if self.holes is None else o + self.holes[1] * c)
        return [out * self._function(2, c), c]


def _integers(r: OnnxReader, value: Any) -> list[tuple[Any, Any, Any]] | None:
    """Of weights that are stored as integers: those of each direction, with scale and zero point."""
    found = r.stored_parts(value)
    if found is None or any(axis not in (None, 1) for *_, axis in found):
        return None
    return [(part, scale.reshape(-1), shift.reshape(-1)) for whole, scale, shift, _ in found for part in whole]


def _on_integers(r: OnnxReader, layer: _Layer, name: str, gates: list[int], matrices: list[Any], mark: str) -> Any:
    """A layer of 8-bit weights whose inputs are rounded when it runs.

    Args:
        matrices: for inputs and for hidden states, for each direction: integers, scale and zero point.
        mark: of `_bits`; none, in files of others, for 8 bits and one range.
    """
    x, hidden, given = layer.x, layer.hidden, layer.given
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
    starts = layer.starts(directions)
    options = 1, 0.0, False, directions == 2, False, mark.startswith("7"), None, mark.endswith(_BY_ROW)
    op = getattr(torch.ops.zeropoint, f"quantized_{name}").input
    y, *last = op(x, starts if name == "lstm" else starts[0], *columns, biases, *options)
    y = y.unflatten(2, (directions, hidden)).transpose(1, 2)
    return [y, *last]


def _computed(r: OnnxReader, layer: _Layer) -> Any:
    x, hidden, given, kind = layer.x, layer.hidden, layer.given, layer.kind
    weights, recurrent = r.weight(given[1]), r.weight(given[2])
    directions = weights.shape[0]
    order = [_ORDER[kind].index(i) for i in range(len(_ORDER[kind]))]  # the other way round
    bias = None if given[3] is None else r.tensor(given[3])
    params = []
    for d in range(directions):
        params += [_in_order(weights[d], order), _in_order(recurrent[d], order)]
        if bias is not None:
            params += [_in_order(part, order) for part in bias[d].chunk(2)]
    starts = layer.starts(directions)
    options = bias is not None, 1, 0.0, False, directions == 2, False
    if kind == "LSTM":
        y, *last = torch.lstm(x, starts, params, *options)
    else:
        function = torch.gru if kind == "GRU" else torch.rnn_relu if layer.is_relu else torch.rnn_tanh
        y, *last = function(x, starts[0], params, *options)
    y = y.unflatten(2, (directions, hidden)).transpose(1, 2)  # (sequence, directions, batch, hidden)
    return [y, *last]


def _read_dynamic(r: OnnxReader, n: ReadNode) -> Any:
    """ONNX Runtime's LSTM of 8-bit weights, whose inputs are rounded when it runs, as zeropoint's does."""
    layer = _Layer(r, n, "LSTM")
    if not layer.is_pytorchs:
        raise r.unsupported("clip, input_forget, sequence_lens, peepholes and other activations are not supported")
    matrices = []
    for weight, scale, shift in ((1, 8, 9), (2, 10, 11)):
        parts = zip(*(r.tensor(n.input(place)) for place in (weight, scale, shift)))
        matrices.append([(integers.t(), s.reshape(-1), z.reshape(-1)) for integers, s, z in parts])
    if layer.direction == "reverse":
        layer.x = torch.flip(layer.x, [0])
    y, *last = _on_integers(r, layer, "lstm", _ORDER["LSTM"], matrices, n.mark(DYNAMIC))
    return layer.results(torch.flip(y, [0]) if layer.direction == "reverse" else y, last)


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
