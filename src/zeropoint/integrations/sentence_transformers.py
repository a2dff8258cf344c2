"""sentence-transformers: a folder of its becomes one program file that embeds text without PyTorch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from zeropoint.atomic_file import replacing
from zeropoint.compiler import compile
from zeropoint.described import described
from zeropoint.graph.to_int8 import to_int8
from zeropoint.installation import install_command
from zeropoint.regular_file import open_regular
from zeropoint.runtime import Program
from zeropoint.safetensors_header import with_metadata
from zeropoint.sentence_encoder import ENTRY, About, SentenceEncoder

# From the smallest and fastest to the most exact: arguments of `to_int8`.
_WAYS: Mapping[str, Mapping[str, Any]] = {
    "int8": {"mode": "dynamic", "policy": {"embedding_bits": 8}},
    "int8, float embeddings": {"mode": "dynamic"},
    "int8 weights": {"mode": "weight_only"},
}
_LEAST_TEXTS = 8
_MOST_TOKENS = 512  # where neither the folder nor its config says


class EncoderQuality(NamedTuple):
    """How close the vectors of a quantized encoder are to those in float.

    Args:
        way: what is quantized.
        cosine: the mean over the texts.
        least: the smallest of a text.
        bytes: of the program file.
    """

    way: str
    cosine: float
    least: float
    bytes: int


def compile_encoder(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    texts: Sequence[str],
    *,
    target: float = 0.995,
) -> EncoderQuality:
    """Write the program of a sentence encoder, with its tokenizer, pooling and normalization.

    The first of these whose vectors have the cosine `target` to those in float is written: all linear layers and
    embeddings in int8; the same with embeddings in float; weights of linear layers in int8 alone.

    Args:
        folder: as sentence-transformers saves it: config.json, safetensors, tokenizer.json, modules.json.
        output: the program file, ``.zpt``, for `zeropoint.sentence_encoder.load`.
        texts: at least 8 of those that the encoder is for; they are only measured on.
        target: the mean cosine that is asked for.

    Raises:
        OSError: if a file cannot be read or written.
        NotImplementedError: for a pooling or a module that is not supported.
        ValueError: if nothing reaches the target; no file is written then.

    Example: ``compile_encoder("all-MiniLM-L6-v2", "minilm.zpt", texts)``
    """
    if isinstance(texts, str) or len(texts) < _LEAST_TEXTS:
        raise ValueError(f"texts must be a list of at least {_LEAST_TEXTS} texts to measure on, got {described(texts)}")
    if not isinstance(target, (int, float)) or not 0 < target <= 1:
        raise ValueError(f"target is a cosine, above 0 and at most 1, got {target!r}")
    network, about = _read(Path(folder))
    wanted = SentenceEncoder(_with_tensors(network), about).encode(texts)
    tried = []
    for way, program in _quantized(network):
        file = with_metadata(program._native.data(), ENTRY, about.text())
        found = SentenceEncoder(program, about).encode(texts)
        cosines = (_directions(found) * _directions(wanted)).sum(1)
        tried.append(EncoderQuality(way, float(cosines.mean()), float(cosines.min()), len(file)))
        if tried[-1].cosine >= target:
            with replacing(output) as new:
                new.write_bytes(file)
            return tried[-1]
    listed = "; ".join(f"{quality.way}: {quality.cosine:.6f}" for quality in tried)
    raise ValueError(f"the mean cosine to float is below the target {target}: {listed}. No file was written")


def _directions(vectors: np.ndarray) -> np.ndarray:
    """Of length 1, in float64: in float32 a cosine can be rounded to 1."""
    exact = vectors.astype(np.float64)
    return exact / np.linalg.norm(exact, axis=1, keepdims=True)


class _Network(nn.Module):
    """Tokens and mask to vectors."""

    def __init__(self, transformer: nn.Module, pooling: str, normalizes: bool) -> None:
        super().__init__()
        self.transformer, self.pooling, self.normalizes = transformer, pooling, normalizes

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = _POOLINGS[self.pooling](hidden, mask[:, :, None].to(hidden.dtype))
        return nn.functional.normalize(vectors, dim=-1) if self.normalizes else vectors


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    return (hidden * mask).sum(1) / mask.sum(1)


_POOLINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _mean,
    "mean_sqrt_len_tokens": lambda hidden, mask: (hidden * mask).sum(1) / mask.sum(1).sqrt(),
    "cls": lambda hidden, mask: hidden[:, 0],
    "max": lambda hidden, mask: (hidden + (mask - 1) * 1e9).amax(1),
}
_OLD_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}


def _with_tensors(network: nn.Module) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            found: np.ndarray = network(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
        return found

    return run


def _quantized(network: nn.Module) -> Iterator[tuple[str, Program]]:
    example = torch.ones(2, 16, dtype=torch.int64), torch.ones(2, 16, dtype=torch.int64)
    for way, options in _WAYS.items():
        yield way, compile(to_int8(network, example, progress=False, **options), example)


def _read(folder: Path) -> tuple[_Network, About]:
    """The network of a folder, and what else the program file says."""
    try:
        from transformers import AutoModel
    except ModuleNotFoundError as error:
        raise ImportError(f"compile_encoder needs transformers: {install_command('transformers')}") from error
    place, pooling, normalizes = _modules(folder)
    options = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}
    transformer = AutoModel.from_pretrained(place, **options).eval()
    config = transformer.config
    settings, prompts = _json(place / "sentence_bert_config.json"), _json(folder / "config_sentence_transformers.json")
    limits = (
        settings.get("max_seq_length"),
        _json(place / "tokenizer_config.json").get("model_max_length"),
        getattr(config, "max_position_embeddings", None),
    )
    with open_regular(place / "tokenizer.json") as file:
        tokenizer = file.read().decode("utf-8")
    about = About(
        config.hidden_size,
        min([limit for limit in limits if isinstance(limit, int) and limit > 0] or [_MOST_TOKENS]),
        config.pad_token_id or 0,
        bool(settings.get("do_lower_case", False)),
        prompts.get("prompts") or {},
        prompts.get("default_prompt_name"),
        tokenizer,
    )
    return _Network(transformer, pooling, normalizes).eval(), about


def _modules(folder: Path) -> tuple[Path, str, bool]:
    """Where the transformer is, the pooling, and whether vectors are normalized."""
    listed = _json(folder / "modules.json", [])
    if not listed:  # a folder of transformers: sentence-transformers takes the mean, too
        return folder, "mean", False
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in listed]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise NotImplementedError(
            f"{folder}: an encoder of the modules {', '.join(kinds)} is not supported, only Transformer, Pooling and,"
            " after them, Normalize"
        )
    places = [folder / str(module["path"]) for module in listed]
    return places[0], _pooling(_json(places[1] / "config.json")), len(kinds) == 3


def _pooling(config: Mapping[str, Any]) -> str:
    """The pooling, as sentence-transformers 6 writes it or as its older releases do."""
    names = [_OLD_NAMES.get(name, name) for name, is_on in config.items() if name.startswith("pooling_mode_") and is_on]
    names = [config["pooling_mode"]] if "pooling_mode" in config else names
    if len(names) != 1 or names[0] not in _POOLINGS:
        listed = " and ".join(map(str, names)) or "without a name"
        raise NotImplementedError(f"the pooling {listed} is not supported, only {', '.join(_POOLINGS)}")
    if not config.get("include_prompt", True):
        raise NotImplementedError("a pooling that leaves out the prompt (include_prompt: false) is not supported")
    return str(names[0])


def _json(path: Path, default: Any = None) -> Any:
    """What a JSON file has; an empty dictionary, or another default, if there is none."""
    if not path.exists():
        return {} if default is None else default
    with open_regular(path) as file:
        return json.load(file)
