"""A model that lost its accuracy in 8 bits: which layer, why, and what to do."""

# %% [markdown]
# A network whose third layer reads a dead channel with huge weights, quantized with one scale for each weight.

# %%
import torch
from torch import nn

import zeropoint

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).eval()
with torch.no_grad():
    model[0].weight[0], model[0].bias[0] = 0.0, -1.0
    model[2].weight[:, 0] = 20.0
batches = [torch.randn(64, 32) for _ in range(4)]
one_scale = zeropoint.QConfig(
    activation=zeropoint.HistogramObserver.with_args(dtype=zeropoint.quint8),
    weight=zeropoint.default_weight_observer,
)
quantized = zeropoint.to_int8(model, (batches[0],), batches, one_scale)

# %% [markdown]
# `compare` ranks the layers by the error that each adds, and says why the first one stands out.

# %%
found = zeropoint.compare(model, quantized, batches)
print(found)
worst = found.rows[0]
print(f"\nworst: {worst.path}, because of {worst.why}")
assert worst.path == "2"

# %% [markdown]
# `sensitivity` says what each layer costs at the output, alone and together with the harmless ones.

# %%
print(zeropoint.sensitivity(model, batches, qconfig=one_scale))

# %% [markdown]
# The way out that was suggested: a scale for each channel. Here every channel has the huge weight, so it does not help;
# leaving the layer in float does.

# %%
per_channel = zeropoint.to_int8(model, (batches[0],), batches)
mapping = zeropoint.QConfigMapping().set_global(one_scale).set_module_name("2", None)
without = zeropoint.to_int8(model, (batches[0],), batches, mapping)
for name, candidate in (("one scale", quantized), ("per channel", per_channel), ("layer 2 in float", without)):
    print(f"{name:<18}{zeropoint.compare(model, candidate, batches).sqnr:.1f} dB")
