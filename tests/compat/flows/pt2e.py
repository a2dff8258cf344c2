"""Quantization of exported models (PT2E), which is torchao's: it goes on working beside the old names."""

import torch
import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as xiq
from torch import nn
from torch.ao.quantization import MinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
images = torch.randn(8, 3, 8, 8)
expected = model(images)
exported = torch.export.export(model, (images,)).module()
quantizer = xiq.X86InductorQuantizer()
quantizer.set_global(xiq.get_default_x86_inductor_quantization_config())
prepared = prepare_pt2e(exported, quantizer)
prepared(images)
converted = convert_pt2e(prepared)
RESULT = converted(images)
seen = MinMaxObserver()
seen(expected)
STEP = float(seen.calculate_qparams()[0])
assert (RESULT - expected).abs().max() < 8 * STEP
