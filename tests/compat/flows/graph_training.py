"""FX graph mode, in training."""

import torch
from torch import nn
from torch.ao.quantization import get_default_qat_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

torch.manual_seed(0)
images = torch.randn(8, 3, 8, 8)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)).train()
trained = prepare_qat_fx(model, get_default_qat_qconfig_mapping("fbgemm"), (images,))
optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    trained(images).square().mean().backward()
    optimizer.step()
converted = convert_fx(trained.eval())
RESULT = converted(images)
STEP = float(getattr(converted, "4").scale)
