"""A convolutional network on handwritten digits: from float32 to a program that runs without PyTorch."""

# %% [markdown]
# Train a small residual network on scikit-learn's digits. Two epochs are enough to see something.

# %%
import tempfile
from pathlib import Path

import torch

import zeropoint
from zeropoint import demo_digits

model = demo_digits.trained(epochs=2)
train_images, _, images, classes = demo_digits.digits()
print(f"float32: {demo_digits.accuracy(model):.1%} of {len(classes)} digits")

# %% [markdown]
# Quantize: the model is captured, run on some images to find the range of every value, and converted.

# %%
calibration = train_images[:256].split(64)
quantized = zeropoint.to_int8(model, (images[:1],), calibration)
print(f"int8:    {demo_digits.accuracy(quantized):.1%}")
print(quantized.summary())

# %% [markdown]
# Compile: one native call for an inference, with the same bytes as the graph.

# %%
program = zeropoint.compile(quantized, (images[:1],))
assert torch.equal(program(images), quantized(images))
folder = Path(tempfile.mkdtemp())
program.save(folder / "digits.zpt")
print(f"{(folder / 'digits.zpt').stat().st_size:,} bytes in {folder / 'digits.zpt'}")

# %% [markdown]
# Run it as it will be deployed: arrays in, arrays out, no PyTorch needed.

# %%
loaded = zeropoint.runtime.load(folder / "digits.zpt")
answers = loaded(images.numpy()).argmax(1)
print(f"program: {(answers == classes.numpy()).mean():.1%}")
print(loaded.profile(images[:64].numpy()))

# %% [markdown]
# And a page about it.

# %%
zeropoint.write_report(folder / "report.html", model, quantized, images.split(100), title="Digits")
print(f"wrote {folder / 'report.html'}")
