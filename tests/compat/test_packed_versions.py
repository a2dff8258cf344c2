"""Packed weights and code as older releases of PyTorch wrote them."""

from __future__ import annotations

import io
import zipfile

import pytest
import torch

import zeropoint.compat
from zeropoint.compat.packed_versions import conv_state, current_code

NUMBERS = [2, 1, 2, 3, 4, 1, 1, 0, 0, 5, 0]
LAYER = """class Conv2d(Module):
  _packed_params : Tensor
  scale : float
  def forward(self: __torch__.torch.nn.quantized.modules.conv.Conv2d,
    input: Tensor) -> Tensor:
    _1 = ops.quantized.conv2d(input, self._packed_params, [1, 1], [0, 0], [1, 1], 1, self.scale, 0)
    return ops.quantized.conv2d_relu(_1, self._packed_params, 1., 0)
"""


def tensors(values: list[int]) -> list[torch.Tensor]:
    return [torch.tensor([value]) for value in values]


def test_three_versions_of_a_convolution_say_the_same() -> None:
    first = ("weight", "bias", tensors([1, 2]), tensors([3, 4]), tensors([1, 1]), torch.tensor([5]))
    second = ("2", [torch.tensor(NUMBERS, dtype=torch.int16), "weight"], ["bias"])
    third = (3, NUMBERS, [None, "weight", "bias"])
    assert conv_state(first) == conv_state(second) == conv_state(third) == (NUMBERS, "weight", "bias")


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match="a packed convolution has version 4"):
        conv_state((4, [], []))


def test_code_that_took_packed_weights_for_tensors_gets_their_type_and_loses_the_second_geometry() -> None:
    code = current_code(LAYER, "a/code/__torch__/torch/nn/quantized/modules/conv.py", lambda kind: f"ours.{kind}")
    assert "_packed_params : ours.Conv\n" in code
    assert "ops.quantized.conv2d(input, self._packed_params, self.scale, 0)" in code
    assert "ops.quantized.conv2d_relu(_1, self._packed_params, 1., 0)" in code


def test_a_file_without_types_of_packed_weights_loads_and_computes_the_same() -> None:
    torch.manual_seed(0)
    layer = torch.ao.nn.quantized.Linear(3, 2)
    x = torch.quantize_per_tensor(torch.randn(4, 3), 0.05, 10, torch.quint8)
    written = io.BytesIO()
    torch.jit.save(torch.jit.script(layer), written)
    older, found = io.BytesIO(), 0
    with zipfile.ZipFile(written) as archive, zipfile.ZipFile(older, "w") as made:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith(".py"):
                content = content.replace(b"__torch__.torch.classes.quantized.LinearPackedParamsBase", b"Tensor")
                found += content.count(b"_packed_params : Tensor")
            if not name.endswith(".debug_pkl"):
                made.writestr(name, content)
    assert found == 1
    loaded = zeropoint.compat.load_script(io.BytesIO(older.getvalue()))
    ours = zeropoint.quantize_per_tensor(x.dequantize(), 0.05, 10, zeropoint.quint8)
    assert loaded(ours).int_repr().tolist() == layer(x).int_repr().tolist()
