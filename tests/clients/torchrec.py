"""torchrec: embedding tables quantized with the package's own modules, saved whole with the counters in them."""

from __future__ import annotations

import io
from typing import Any

import torch
import torchrec
from torchrec.quant.embedding_modules import EmbeddingBagCollection

PACKAGES = ("torchrec==1.8.0", "fbgemm-gpu-cpu==1.8.0", "pyre-extensions", "typing-inspect", "iopath", "tensordict",
            "torchmetrics", "orjson", "pyvers", "portalocker", "lightning-utilities", "tqdm", "importlib-metadata",
            "zipp")  # fmt: skip


def _bags() -> Any:
    table = torchrec.EmbeddingBagConfig(name="t", embedding_dim=16, num_embeddings=100, feature_names=["f"])
    bags = torchrec.EmbeddingBagCollection(tables=[table], device=torch.device("cpu"))
    bags.qconfig = torch.quantization.QConfig(
        activation=torch.quantization.PlaceholderObserver.with_args(dtype=torch.float32),
        weight=torch.quantization.PlaceholderObserver.with_args(dtype=torch.qint8),
    )
    quantized = EmbeddingBagCollection.from_float(bags)
    file = io.BytesIO()
    torch.save(quantized, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    values, lengths = torch.tensor([3, 5, 7, 1]), torch.tensor([2, 1, 1])
    given = torchrec.KeyedJaggedTensor(keys=["f"], values=values, lengths=lengths)
    return loaded, lambda: loaded(given).values()


CASES = {"embedding bags": _bags}


def INT8(model: Any) -> int:
    """The package's own quantized modules."""
    return sum(type(module).__module__.startswith("torchrec.quant") for module in model.modules())
