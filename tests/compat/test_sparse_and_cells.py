"""Names of the old stack that few programs use: sparse layers, cells from floats, sizes of packed weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import zeropoint
from zeropoint.compat import sparse
from zeropoint.compat.packed import make_quantized_cell_params


def sparsified() -> nn.Linear:
    torch.manual_seed(0)
    layer = nn.Linear(8, 4)
    with torch.no_grad():
        layer.weight[:, 4:] = 0
    layer.sparse_params = {"sparse_block_shape": (1, 4)}  # type: ignore[assignment]
    return layer


def test_a_sparse_layer_computes_what_the_dense_one_does() -> None:
    model = nn.Sequential(zeropoint.QuantStub(), sparsified(), zeropoint.DeQuantStub()).eval()
    model.qconfig = zeropoint.get_default_qconfig("x86")
    prepared, x = zeropoint.prepare(model), torch.randn(3, 8)
    prepared(x)
    mapping = zeropoint.get_default_static_quant_module_mappings()
    dense = zeropoint.convert(prepared, mapping=mapping)
    made = zeropoint.convert(prepared, mapping=mapping | sparse.get_default_static_sparse_quant_module_mappings())
    assert type(made[1]) is sparse.Linear
    assert (made[1].row_block_size, made[1].col_block_size) == (1, 4)
    assert torch.equal(made(x), dense(x))


def test_a_sparse_layer_of_dynamic_quantization() -> None:
    model, x = nn.Sequential(sparsified()), torch.randn(3, 8)
    mapping = sparse.get_default_dynamic_sparse_quant_module_mappings()
    made = zeropoint.quantize_dynamic(model, {nn.Linear}, mapping=mapping)
    assert type(made[0]) is sparse.DynamicLinear
    assert torch.equal(made(x), zeropoint.quantize_dynamic(model, {nn.Linear})(x))


def test_a_state_of_torch_ao_has_the_blocks_behind_the_weight() -> None:
    layer = sparse.Linear(8, 4, 1, 4)
    weight = zeropoint.quantize_per_tensor(torch.randn(4, 8), 0.1, 0, zeropoint.qint8)
    state: Any = {
        "scale": torch.tensor(0.5), "zero_point": torch.tensor(3), "op_type": "sparse",
        "_packed_params.dtype": zeropoint.qint8, "_packed_params._packed_params": (weight, torch.ones(4), 8, 1),
    }  # fmt: skip
    layer.load_state_dict(state)
    assert torch.equal(layer.weight().int_repr(), weight.int_repr())
    assert (layer.scale, layer.zero_point, layer.row_block_size, layer.col_block_size) == (0.5, 3, 8, 1)


def test_a_layer_without_blocks_is_refused() -> None:
    layer = nn.Linear(8, 4)
    layer.qconfig = zeropoint.default_dynamic_qconfig  # type: ignore[assignment]
    with pytest.raises(ValueError, match="sparse_block_shape"):
        sparse.DynamicLinear.from_float(layer)


def test_the_sizes_of_blocks_hold_inside_a_with() -> None:
    with sparse.LinearBlockSparsePattern(8, 1):
        assert sparse.LinearBlockSparsePattern.block_size() == (8, 1)
    assert sparse.LinearBlockSparsePattern.block_size() == (1, 4)
    with pytest.raises(ValueError, match="2 x 2"):
        sparse.LinearBlockSparsePattern(2, 2)


def test_cells_from_floats_are_those_of_pytorch() -> None:
    torch.manual_seed(0)
    weights = torch.randn(16, 3), torch.randn(16, 4), torch.randn(16), torch.randn(16)
    x, state = torch.randn(5, 2, 3), [torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)]
    arguments = True, 1, 0.0, False, False, False
    theirs = torch.ops.quantized.make_quantized_cell_params(*weights)
    expected = torch.quantized_lstm(x, state, [theirs], *arguments, dtype=torch.qint8, use_dynamic=True)[0]
    cell = make_quantized_cell_params(*weights)
    h, c = state[0][0], state[1][0]
    found = []
    for step in x:
        h, c = zeropoint.qfunctions.quantized_lstm_cell_dynamic(step, [h, c], cell.w_ih, cell.w_hh, *weights[2:])
        found.append(h)
    # Inputs are rounded to 1/255 of their range, and PyTorch does so for the whole sequence, a cell for each step.
    assert (torch.stack(found) - expected).abs().max() < 0.05


@pytest.mark.usefixtures("installed")
def test_sizes_of_packed_weights() -> None:
    weight = zeropoint.quantize_per_tensor(torch.randn(4, 2, 3, 3), 0.1, 0, zeropoint.qint8)
    packed = torch.ops.quantized.conv2d_prepack(weight, torch.zeros(4), [2, 1], [1, 0], [1, 1], 1)
    assert torch.ops.quantized.conv2d_unpack_sizes(packed) == ([4, 2, 3, 3], [4], [2, 1], [1, 0], [1, 1], 1)
