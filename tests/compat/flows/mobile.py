"""A model for phones: the qconfig for qnnpack, fused, calibrated, scripted and saved."""

import io

import torch
import torch.ao.quantization as tq
from torch import nn

torch.manual_seed(0)
layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
model = tq.QuantWrapper(nn.Sequential(*layers)).eval()
images = torch.randn(8, 3, 8, 8)
expected = model(images)
model.qconfig = tq.get_default_qconfig("qnnpack")
fused = tq.fuse_modules(model, [["module.0", "module.1", "module.2"]])
prepared = tq.prepare(fused)
prepared(images)
converted = tq.convert(prepared)
scripted = torch.jit.script(converted)
buffer = io.BytesIO()
torch.jit.save(scripted, buffer)
buffer.seek(0)
loaded = torch.jit.load(buffer)
assert torch.equal(loaded(images), converted(images))
RESULT = converted(images)
STEP = float(converted.module[5].scale)
assert (RESULT - expected).abs().max() < 4 * STEP
