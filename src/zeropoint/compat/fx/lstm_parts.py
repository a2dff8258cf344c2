"""LSTMs as custom modules whose parts have observers of your choice, each cell prepared as a graph."""

from __future__ import annotations

import copy
import operator
from typing import Any

import torch

from zeropoint.compat.fx.quantize_fx import convert_to_reference_fx, prepare_fx
from zeropoint.compat.fx.reference import is_dequantize, is_quantize
from zeropoint.fake_quant import FakeQuantizeBase, default_weight_fake_quant
from zeropoint.nn import quantizable, quantized
from zeropoint.observers import default_weight_observer
from zeropoint.qconfig import QConfig
from zeropoint.qconfig_mapping import QConfigMapping


def _fixed(constructor: Any) -> QConfig:
    is_fake = isinstance(constructor(), FakeQuantizeBase)
    return QConfig(activation=constructor, weight=default_weight_fake_quant if is_fake else default_weight_observer)


def lstm_with_observed_parts(
    float_lstm: Any,
    example_inputs: tuple[Any, ...],
    backend_config: Any = None,
    linear_output_obs_ctr: Any = None,
    sigmoid_obs_ctr: Any = None,
    tanh_obs_ctr: Any = None,
    cell_state_obs_ctr: Any = None,
    hidden_state_obs_ctr: Any = None,
    split_gates: bool = False,
) -> quantizable.LSTM:
    """The observed form of an nn.LSTM with a qconfig, whose parts have these observers; None: that of the qconfig."""
    made = quantizable.LSTM.with_weights_of(float_lstm, split_gates=split_gates)
    mapping = QConfigMapping().set_global(float_lstm.qconfig)
    if sigmoid_obs_ctr is not None:
        for gate in ("input_gate", "forget_gate", "output_gate"):
            mapping.set_module_name(gate, _fixed(sigmoid_obs_ctr))
    if tanh_obs_ctr is not None:
        mapping.set_module_name("cell_gate", _fixed(tanh_obs_ctr))
    gates = 4 if split_gates else 1
    # Sums and products of a cell, in their order: gates, what is kept, what is new, the cell state, the result.
    observers = {
        torch.add: [*[linear_output_obs_ctr] * gates, cell_state_obs_ctr],
        torch.mul: [cell_state_obs_ctr, cell_state_obs_ctr, hidden_state_obs_ctr],
    }
    for layer in made.layers:
        direction: Any = layer.layer_fw
        direction.cell = prepare_fx(direction.cell, mapping, example_inputs, backend_config=backend_config)
        _observe_parts(direction.cell, observers)
    return made


def _observe_parts(cell: Any, observers: dict[Any, list[Any]]) -> None:
    waiting = {function: list(constructors) for function, constructors in observers.items()}
    for node in cell.graph.nodes:
        constructors = waiting.get(node.target) if node.op == "call_function" else None
        constructor = constructors.pop(0) if constructors else None
        if constructor is not None:
            (observer,) = node.users
            setattr(cell, observer.name, constructor())


def reference_lstm(observed_lstm: Any, backend_config: Any = None) -> quantized.LSTM:
    """The quantized form of what `lstm_with_observed_parts` gave, with cells that are reference models."""
    made = quantized.LSTM(
        observed_lstm.input_size, observed_lstm.hidden_size, observed_lstm.num_layers, observed_lstm.bias,
        observed_lstm.batch_first, observed_lstm.dropout, observed_lstm.bidirectional,
    )  # fmt: skip
    for index, layer in enumerate(made.layers):
        cell = copy.deepcopy(observed_lstm.layers.get_submodule(str(index)).layer_fw.cell)
        reference = convert_to_reference_fx(cell, backend_config=backend_config)
        _take_quantized(reference)
        layer.layer_fw.cell = reference
    return made


def _take_quantized(cell: Any) -> None:
    """Let a cell take and give quantized tensors, as custom modules do."""
    graph = cell.graph
    for node in list(graph.nodes):
        if is_quantize(node) and _is_given(node.args[0]):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.op == "output":
            for value in node.args[0]:
                if is_dequantize(value):
                    node.replace_input_with(value, value.args[0])
    graph.eliminate_dead_code()
    cell.recompile()


def _is_given(node: Any) -> bool:
    """Whether a value is the input or one of the states."""
    return node.target == "x" or (node.target is operator.getitem and node.args[0].target == "hidden")
