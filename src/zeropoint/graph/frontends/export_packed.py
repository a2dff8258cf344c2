"""Packed sequences: pack_padded_sequence, recurrent layers and pad_packed_sequence as operators on padded tensors.

The rows of a packed sequence depend on lengths, so that torch.export cannot follow it. While a model is captured, the
data of a packed sequence is the padded tensor, ``(steps, batch, ...)``, between two marks; recurrent layers take it
with its batch sizes (`zeropoint.ops.sequences`). What else reads such data would read the padding, too: it is refused.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.rnn import PackedSequence

from zeropoint.graph.frontends.dynamic_shapes import EndsCapture
from zeropoint.operators import activations
from zeropoint.operators.node import arguments, aten_name

ours = torch.ops.zeropoint
_LIBRARY = torch.library.Library("zeropoint_capture", "FRAGMENT")  # export_recurrent.py defines the namespace
_KERNELS = {"packed_begin": torch.clone, "packed_end": torch.clone}
for _name, _kernel in _KERNELS.items():
    _LIBRARY.define(f"{_name}(Tensor data) -> Tensor")
    _LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"zeropoint_capture::{_name}", torch.empty_like, lib=_LIBRARY)
_BEGIN, _END = torch.ops.zeropoint_capture.packed_begin.default, torch.ops.zeropoint_capture.packed_end.default
_PADDED: dict[str, Any] = {
    "LSTM": ours.lstm_padded, "GRU": ours.gru_padded, "RNN_TANH": ours.rnn_tanh_padded,
    "RNN_RELU": ours.rnn_relu_padded,
}  # fmt: skip
_RECURRENT = {op.default for op in _PADDED.values()}
# What computes every value by itself: padding stays padding.
_BY_VALUE = frozenset(name for record in activations.RECORDS if not record.slopes for name in record.aten)


def _pack(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """The batch sizes have an axis of one in front, so that `_pad` can tell whether it is given a total length."""
    data = input.transpose(0, 1) if batch_first else input
    return _BEGIN(data), ours.batch_sizes(lengths, data.shape[0]).unsqueeze(0)


def _pad(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """`total_length` is the first size of `batch_sizes` where none was asked for."""
    steps, batch = batch_sizes.shape[1], data.shape[1]
    is_given = not (isinstance(total_length, int) and total_length == batch_sizes.shape[0])
    mask = ours.padding_mask(batch_sizes.squeeze(0), batch, not is_given)
    padded = torch.where(mask.unsqueeze(-1), _END(data), padding_value)
    if is_given and total_length < steps:
        raise NotImplementedError(
            f"pad_packed_sequence: total_length must not be below the {steps} steps of the input, got {total_length}"
        )
    if is_given and total_length > steps:
        more = padded.new_full((total_length - steps, batch, data.shape[2]), padding_value)
        padded = torch.cat([padded, more])
    lengths = mask.sum(0)
    return (padded.transpose(0, 1) if batch_first else padded), lengths


PACKING: dict[Any, Any] = {
    torch._C._VariableFunctions._pack_padded_sequence: _pack,
    torch._C._VariableFunctions._pad_packed_sequence: _pad,
}


def take_packed(model: nn.Module) -> None:
    """Let the recurrent layers of a model, which may be changed, take packed sequences as `PACKING` makes them."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase) and module.mode in _PADDED:
            module.forward = functools.partial(_forward, module, module.forward)


def _forward(module: nn.RNNBase, forward: Any, input: Any, hx: Any = None) -> Any:
    if not isinstance(input, PackedSequence):
        return forward(input, hx)
    data, batch_sizes, order, back = input
    several, directions = module.mode == "LSTM", 2 if module.bidirectional else 1
    if hx is None:
        layers, batch = module.num_layers * directions, data.shape[1]
        units = [module.proj_size or module.hidden_size, module.hidden_size]
        like = {"dtype": data.dtype, "device": data.device}
        states = [torch.zeros(layers, batch, n, **like) for n in (units if several else units[:1])]
        hx = states if several else states[0]
    else:
        hx = module.permute_hidden(hx, order)
    options = (module.bias, module.num_layers, module.dropout, module.training, module.bidirectional, False)
    weights = [getattr(module, name) for name in module._flat_weights_names]
    y, *last = _PADDED[module.mode](data, hx, weights, *options, batch_sizes.squeeze(0))
    result = PackedSequence(y, batch_sizes, order, back)
    return result, module.permute_hidden(tuple(last) if several else last[0], back)


def check_packed(graph: fx.GraphModule) -> None:
    """Refuse what reads a packed sequence and would count its padding; take the marks out.

    Raises:
        EndsCapture: with the operator.
    """
    marked = [node for node in graph.graph.nodes if node.target is _BEGIN]
    packed = set(marked)
    for node in graph.graph.nodes:
        read = [value for value in node.all_input_nodes if value in packed]
        if not read:
            continue
        if aten_name(node) in _BY_VALUE:
            packed.add(node)
        elif node.target is torch.ops.aten.sym_size.int and node.args[1] == 1:  # of the batch, for states and masks
            continue
        elif node.target in _RECURRENT and arguments(node)["input"] in read:
            packed |= {user for user in node.users if user.target is operator.getitem and user.args[1] == 0}
        elif node.target is not _END:
            raise EndsCapture(
                f"{node.target} reads the data of a packed sequence, whose size depends on lengths: use"
                " pad_packed_sequence before it"
            )
    for node in [n for n in graph.graph.nodes if n.target in (_BEGIN, _END)]:
        node.replace_all_uses_with(node.args[0])
        graph.graph.erase_node(node)
    if marked:
        graph.recompile()
