"""Quantized tensors and operators by hand."""

import torch

torch.manual_seed(0)
x = torch.randn(4, 8)
q = torch.quantize_per_tensor(x, scale=0.05, zero_point=64, dtype=torch.quint8)
rows = torch.quantize_per_channel(x, torch.full((4,), 0.02), torch.zeros(4), 0, torch.qint8)
assert q.qscheme() == torch.per_tensor_affine
assert rows.q_per_channel_axis() == 0
total = torch.ops.quantized.add(q, q, 0.1, 64)
RESULT = torch.cat([total.dequantize(), rows.dequantize()])
STEP = 0.1
