"""CTranslate2: models of transformers in its own format, with 8-bit weights and dynamic activations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zeropoint.interop.tasks import Arrays, Ready, Task, Unavailable, first_line, quietly


def write(task: Task, folder: Path) -> Path:
    """Convert a model of transformers, or one inside a wrapper's `model`, by CTranslate2's own converter.

    It reads a folder with a tokenizer, of which only the number of words matters here.
    """
    try:
        from ctranslate2.converters import TransformersConverter
    except ImportError as error:
        raise Unavailable(f"CTranslate2 is not installed ({first_line(error)})") from error
    model = getattr(task.model, "model", task.model)
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "save_pretrained"):
        raise Unavailable("CTranslate2: it takes models of transformers alone")
    source = folder / "source"
    try:
        with quietly():
            model.save_pretrained(source)
            _tokenizer(config.vocab_size).save_pretrained(source)
            stored = json.loads((source / "config.json").read_text())
            # A setting that older releases of transformers wrote, and that its converter asks for.
            (source / "config.json").write_text(json.dumps({"position_embedding_type": "absolute", **stored}))
            TransformersConverter(str(source)).convert(str(folder / "model"), quantization="int8")
    except Exception as error:
        raise Unavailable(f"CTranslate2: {first_line(error)}") from error
    (folder / "model" / "kind.json").write_text(json.dumps(config.model_type))
    return folder / "model" / "model.bin"


def load(path: Path, inputs: Arrays, threads: int) -> Ready:
    """What its folder holds, by the class that it has for this kind of model."""
    import ctranslate2
    import numpy as np

    kind = json.loads((path.parent / "kind.json").read_text())
    classes = {
        "whisper": ctranslate2.models.Whisper,
        "wav2vec2": ctranslate2.models.Wav2Vec2,
        "gpt2": ctranslate2.Generator,
    }
    made = classes.get(kind, ctranslate2.Encoder)(
        str(path.parent), device="cpu", compute_type="int8", intra_threads=threads
    )
    (given,) = inputs
    if np.issubdtype(given.dtype, np.floating):
        view = ctranslate2.StorageView.from_array(np.ascontiguousarray(given))
        return Ready(lambda: np.asarray(made.encode(view)), "its Transformers converter, int8")
    lengths = ctranslate2.StorageView.from_array(np.full(given.shape[0], given.shape[1], np.int32))
    words = ctranslate2.StorageView.from_array(given.astype(np.int32))

    def call() -> Any:
        found = made.forward_batch(words, lengths)
        return np.asarray(getattr(found, "last_hidden_state", found))

    return Ready(call, "its Transformers converter, int8")


def _tokenizer(words: int) -> Any:
    """One with so many words."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    marks = {"unk_token": "0", "bos_token": "1", "eos_token": "2", "pad_token": "3", "cls_token": "1", "sep_token": "2"}
    known = models.WordLevel({str(i): i for i in range(words)}, unk_token=marks["unk_token"])
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(known), **marks)
