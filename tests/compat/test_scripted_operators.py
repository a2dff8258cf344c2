"""torch.ops.quantized in scripted code, with packed weights and without."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.compat import lookup, names, script, scripted

pytestmark = [pytest.mark.usefixtures("installed")]


def weight(*shape: int, axis: int | None = None) -> Any:
    w = torch.rand(*shape, generator=torch.Generator().manual_seed(0)) - 0.5
    if axis is None:
        return zeropoint.quantize_per_tensor(w, 0.01, 0, zeropoint.qint8)
    channels = shape[axis]
    return zeropoint.quantize_per_channel(
        w, torch.linspace(0.005, 0.02, channels), torch.zeros(channels, dtype=torch.int64), axis, zeropoint.qint8
    )


def image(*shape: int) -> Any:
    x = torch.rand(*shape, generator=torch.Generator().manual_seed(1))
    return zeropoint.quantize_per_tensor(x, 0.01, 3, zeropoint.quint8)


def again(scripted_module: Any) -> Any:
    buffer = io.BytesIO()
    torch.jit.save(scripted_module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def assert_same(module: nn.Module, *inputs: Any) -> None:
    """In Python, scripted, and from a file."""
    compiled = torch.jit.script(module)
    expected = module(*inputs)
    for result in (compiled(*inputs), again(compiled)(*inputs)):
        assert len(result) == len(expected)
        for a, b in zip(result, expected):
            assert torch.equal(a.dequantize(), b.dequantize()) if isinstance(b, Tensor) else a == b


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack(weight(5, 4, axis=0), torch.ones(5))
        self.half = torch.ops.quantized.linear_prepack_fp16(torch.rand(5, 4), None)

    def forward(self, q: Tensor) -> list[Tensor]:
        x = q.dequantize()
        return [
            torch.ops.quantized.linear(q, self.packed, 0.02, 60),
            torch.ops.quantized.linear_relu(q, self.packed, 0.02, 60),
            torch.ops.quantized.linear_tanh(q, self.packed, 1 / 128, 128),
            torch.ops.quantized.linear_leaky_relu(q, self.packed, 0.02, 60, 0.1),
            torch.ops.quantized.linear_dynamic(x, self.packed),
            torch.ops.quantized.linear_relu_dynamic(x, self.packed, True),
            torch.ops.quantized.linear_dynamic_fp16(x, self.half),
            torch.ops.quantized.linear_relu_dynamic_fp16(x, self.half),
            torch.ops.quantized.linear_unpack(self.packed)[0],
        ]


def test_linear_layers() -> None:
    assert_same(Linear(), image(3, 4))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        ops = torch.ops.quantized
        self.conv1 = ops.conv1d_prepack(weight(4, 2, 3), None, [1], [1], [1], 1)
        self.conv2 = ops.conv2d_prepack(weight(4, 2, 3, 3, axis=0), torch.ones(4), [2, 1], [1, 0], [1, 1], 1)
        self.conv3 = ops.conv3d_prepack(weight(4, 1, 1, 1, 1), None, [1, 1, 1], [0, 0, 0], [1, 1, 1], 2)
        self.same2 = ops.conv2d_prepack(weight(2, 2, 1, 1), None, [1, 1], [0, 0], [1, 1], 1)
        self.up2 = ops.conv_transpose2d_prepack(weight(2, 4, 2, 2), torch.ones(4), [2, 2], [0, 0], [1, 0], [1, 1], 1)

    def forward(self, row: Tensor, flat: Tensor, deep: Tensor) -> list[Tensor]:
        return [
            torch.ops.quantized.conv1d(row, self.conv1, 0.02, 60),
            torch.ops.quantized.conv1d_dynamic(row.dequantize(), self.conv1, True),
            torch.ops.quantized.conv2d(flat, self.conv2, 0.02, 60),
            torch.ops.quantized.conv2d_relu(flat, self.conv2, 0.02, 60),
            torch.ops.quantized.conv2d_add(flat, flat, self.same2, 0.02, 60),
            torch.ops.quantized.conv2d_add_relu(flat, flat, self.same2, 0.02, 60),
            torch.ops.quantized.conv3d(deep, self.conv3, 0.02, 60),
            torch.ops.quantized.conv_transpose2d(flat, self.up2, 0.02, 60),
            torch.ops.quantized.conv_transpose2d_dynamic(flat.dequantize(), self.up2),
            torch.ops.quantized.conv2d_unpack(self.conv2)[0],
        ]


def test_convolutions() -> None:
    assert_same(Convolutions(), image(2, 2, 6), image(1, 2, 5, 6), image(1, 2, 3, 4, 5))


class Geometry(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.packed = torch.ops.quantized.conv2d_prepack(weight(4, 1, 3, 3), None, [2, 1], [1, 0], [1, 3], 2)

    def forward(self) -> tuple[list[int], list[int], list[int], int, int]:
        return (
            torch.ops.quantized.conv2d_stride(self.packed),
            torch.ops.quantized.conv2d_padding(self.packed),
            torch.ops.quantized.conv2d_dilation(self.packed),
            torch.ops.quantized.conv2d_groups(self.packed),
            torch.ops.quantized.conv2d_transpose(self.packed),
        )


def test_geometry() -> None:
    assert_same(Geometry())


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ih = torch.ops.quantized.linear_prepack(weight(12, 4), torch.ones(12))
        self.hh = torch.ops.quantized.linear_prepack(weight(12, 3), torch.ones(12))
        self.bias = torch.ones(12)

    def forward(self, x: Tensor, h: Tensor) -> list[Tensor]:
        new, cell = torch.ops.quantized.quantized_lstm_cell_dynamic(x, [h, h], self.ih, self.hh, self.bias, self.bias)
        return [new, cell]


def test_a_cell() -> None:
    assert_same(Cells(), torch.rand(2, 4), torch.rand(2, 3))


def test_weights_may_be_packed_in_scripted_code() -> None:
    @torch.jit.script
    def packed_here(q: Tensor, w: Tensor) -> Tensor:
        packed = torch.ops.quantized.linear_prepack(w, None)
        return torch.ops.quantized.linear(q, packed, 0.02, 60)

    q, w = image(3, 4), weight(5, 4)
    expected = torch.ops.quantized.linear(q, torch.ops.quantized.linear_prepack(w, None), 0.02, 60)
    assert torch.equal(packed_here(q, w).int_repr(), expected.int_repr())


class OnTensors(nn.Module):
    """One operator of each signature."""

    def forward(self, q: Tensor, v: Tensor) -> list[Tensor]:
        ones, zeros = torch.ones(2), torch.zeros(2)
        return [
            torch.ops.quantized.add(q, q, 0.02, 5),
            torch.ops.quantized.add_relu(q, q, 0.02, 5),
            torch.ops.quantized.mul(q, 2.0),
            torch.ops.quantized.mul_scalar(q, 2.0),
            torch.ops.quantized.matmul(q, q, 0.05, 5),
            torch.ops.quantized.cat([q, q], 1, 0.02, 5),
            torch.ops.quantized.batch_norm2d(q, ones, zeros, zeros, ones, 1e-5, 0.02, 5),
            torch.ops.quantized.celu(q, 0.02, 5),
            torch.ops.quantized.elu(q, 0.02, 5, 2),
            torch.ops.quantized.dropout(q, 0.02, 5, 0.5, False),
            torch.ops.quantized.clamp(q, 0.1, 0.5),
            torch.ops.quantized.group_norm(q, 2, ones, zeros, 1e-5, 0.02, 128),
            torch.ops.quantized.instance_norm(q, ones, zeros, 1e-5, 0.02, 128),
            torch.ops.quantized.layer_norm(q, [4, 4], None, None, 1e-5, 0.02, 128),
            torch.ops.quantized.sigmoid(q, 1 / 256, 0),
            torch.ops.quantized.hardswish(q, 0.02, 5),
            torch.ops.quantized.softmax(q, -1, 1 / 256, 0),
            torch.ops.quantized.prelu(q, v, 0.02, 5),
            torch.ops.quantized.leaky_relu(q, 0.1, False, 0.02, 5),
            torch.ops.quantized.relu6(q),
            torch.ops.quantized.threshold(q, 0.2, 0.1),
            torch.ops.quantized.max_pool2d(q, [2, 2], [2, 2], [0, 0], [1, 1], False),
        ]


def test_operators_on_tensors() -> None:
    assert_same(OnTensors(), image(1, 2, 4, 4), image(2))


def test_compiled_code_has_no_operator_of_the_old_stack() -> None:
    for module in (Linear(), Convolutions(), OnTensors()):
        graph = str(torch.jit.script(module).inlined_graph)
        assert "quantized::" not in graph.replace("zeropoint_compat::", "")
        assert "torch.classes" not in graph


def test_signatures_are_those_of_pytorch() -> None:
    schemas = {(s.name, s.overload_name): s for s in torch._C._jit_get_all_schemas()}
    ours = {key: s for key, s in schemas.items() if key[0].removeprefix("zeropoint_compat::") in script.OPERATORS}
    assert len(ours) >= 35
    for (name, overload), schema in ours.items():
        theirs = schemas[name.replace("zeropoint_compat", "quantized"), overload]
        described = [[(str(a.type), a.default_value) for a in s.arguments] for s in (schema, theirs)]
        assert described[0] == described[1], name


def test_every_packed_operator_of_the_table_is_there_or_known_to_be_missing() -> None:
    table = {name for name, found in lookup.entries(names.OPERATORS) if found.path}
    assert set(scripted.FUNCTIONS) - table == set()
    left = {n for n in table - set(scripted.FUNCTIONS) - script.OPERATORS if not n.endswith("_out")}
    assert {n for n in left if "embedding" not in n} == {
        "conv2d_unpack_sizes",
        "linear_dynamic_fp16_unpacked_weight",
        "linear_with_input_q_dq_qweight_dq_output_fp32",
        "linear_with_input_q_dq_qweight_dq_relu_output_fp32",
        "make_quantized_cell_params",
    }
