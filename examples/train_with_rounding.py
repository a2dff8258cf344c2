"""Quantization-aware training: the model learns with the rounding that it will be deployed with."""

# %%
import torch
from torch import nn

import zeropoint
from zeropoint import demo_digits

torch.manual_seed(0)
images, classes, test_images, test_classes = demo_digits.digits()
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
    nn.Flatten(), nn.Linear(64, 10),
)  # fmt: skip
demo_digits.train(model, epochs=2, rate=0.01)
print(f"float32:           {demo_digits.accuracy(model.eval()):.1%}")

# %% [markdown]
# Fake quantization goes in where the integers will be rounded; batch norms are trained inside of their layers.

# %%
mapping = zeropoint.get_default_qat_qconfig_mapping("native")
trained = zeropoint.prepare_qat_graph(model.train(), mapping, (images[:2],))
demo_digits.train(trained, epochs=1, rate=0.001)
trained.eval().apply(zeropoint.disable_observer)
print(f"with rounding:     {demo_digits.accuracy(trained):.1%}")

# %% [markdown]
# What is deployed computes what was trained.

# %%
deployed = zeropoint.convert_graph(trained)
print(f"deployed:          {demo_digits.accuracy(deployed):.1%}")
with torch.no_grad():
    same = trained(test_images).argmax(1) == deployed(test_images).argmax(1)
print(f"the same answer:   {same.float().mean():.1%}")
