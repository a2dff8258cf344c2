"""python -m bench.sentence_encoders FOLDER: a sentence encoder beside the backends of sentence-transformers.

Calls alternate between those that can be imported, so other load affects all. Each has one
thread. Needs sentence-transformers; its OpenVINO backend needs optimum-intel, and a release of transformers that this
takes.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import zeropoint
from zeropoint.comparison.timing import alternating
from zeropoint.demo_minilm import CALIBRATION, SENTENCES
from zeropoint.integrations.sentence_transformers import compile_encoder

SECONDS = 15.0
_LONG = " ".join(SENTENCES)[:500]
BATCHES = {
    "1 text": SENTENCES[:1],
    "12 texts": SENTENCES,
    "32 texts of 60 to 463 characters": [_LONG[: 60 + 13 * i] for i in range(32)],
    "32 texts of 500 characters": [_LONG] * 32,
}


def _openvino(folder: str) -> Any:
    options = {"ov_config": {"INFERENCE_NUM_THREADS": 1}}
    return SentenceTransformer(folder, backend="openvino", device="cpu", model_kwargs=options)


def _openvino_int8(folder: str) -> Any:
    """Their backend after NNCF's quantization for transformers, calibrated on our texts."""
    import nncf

    encoder = _openvino(folder)
    backend = encoder[0].auto_model
    tokens = [dict(encoder.tokenizer([text], return_tensors="np")) for text in CALIBRATION]
    backend.model = nncf.quantize(backend.model, nncf.Dataset(tokens), model_type=nncf.ModelType.TRANSFORMER)
    backend.request = None
    backend.compile()
    return encoder


def main(folder: str) -> None:
    torch.set_num_threads(1)  # two that wait for each other beside other work take many times longer
    zeropoint.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "encoder.zpt"
        print(compile_encoder(folder, file, CALIBRATION))
        encoders: dict[str, Any] = {"zeropoint": zeropoint.sentence_encoder.load(file)}
        encoders["torch"] = SentenceTransformer(folder, device="cpu")
        made = {
            "openvino": lambda: _openvino(folder),
            "openvino int8": lambda: _openvino_int8(folder),
            "onnx": lambda: SentenceTransformer(folder, backend="onnx", device="cpu"),
        }
        for name, make in made.items():
            try:
                encoders[name] = make()
            except Exception as error:  # a package that is not there, or does not fit another
                print(f"{name}: not measured: {str(error).splitlines()[0][:150]}")
        print("| texts | " + " | ".join(encoders) + " |\n|" + "---|" * (len(encoders) + 1))
        for name, texts in BATCHES.items():
            runs = [functools.partial(encoder.encode, texts) for encoder in encoders.values()]
            times = alternating(runs, SECONDS)
            cells = [f"{t:.2f} ms, {t / times[0]:.2f}x" for t in times]
            print(f"| {name} | " + " | ".join(cells) + " |")
        wanted = encoders["torch"].encode(SENTENCES)
        for name, encoder in encoders.items():
            print(f"{name}: cosine to torch {float(np.mean((encoder.encode(SENTENCES) * wanted).sum(1))):.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
