"""OpenNMT-py: `load_test_model`, which translation calls, with a precision of int8."""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch

for absent in ("spacy", "ahocorasick", "fasttext"):  # for transforms of text, which no model needs
    sys.modules.setdefault(absent, types.ModuleType(absent))

from onmt import model_builder
from onmt.opts import train_opts
from onmt.utils.parse import ArgumentParser

PACKAGES = ("OpenNMT-py", "pyonmttok", "configargparse", "rapidfuzz", "sacrebleu", "six", "waitress", "flask")

KINDS = {
    "transformer": {"encoder_type": "transformer", "decoder_type": "transformer", "position_encoding": True},
    "rnn": {"encoder_type": "rnn", "decoder_type": "rnn"},
}
SMALL = {"layers": 2, "hidden_size": 32, "word_vec_size": 32, "heads": 2, "transformer_ff": 64}


def _loaded(name: str) -> Any:
    source, lengths = torch.randint(4, 40, (2, 9, 1)), torch.tensor([9, 7])  # before layers draw random numbers
    target = torch.randint(4, 40, (2, 6, 1))
    parser = ArgumentParser()
    train_opts(parser)
    given = argparse.Namespace(**{**vars(parser.parse_args(["-data", "-", "-src_vocab", "-"])), **SMALL, **KINDS[name]})
    ArgumentParser.update_model_opts(given)
    words = ["<blank>", "<unk>", "<s>", "</s>", *map(str, range(40))]
    vocabs = {"src": words, "tgt": words, "data_task": "seq2seq"}
    model = model_builder.build_base_model(given, model_builder.dict_to_vocabs(vocabs))
    for weight in model.parameters():  # the builder leaves memory as it was
        torch.nn.init.uniform_(weight, -0.2, 0.2)
    with tempfile.TemporaryDirectory() as folder, torch.serialization.safe_globals([argparse.Namespace]):
        path = Path(folder) / "model.pt"
        saved = {
            "model": model.state_dict(),
            "generator": {},
            "opt": argparse.Namespace(**vars(given)),
            "vocab": vocabs,
        }
        torch.save(saved, path)
        asked = argparse.Namespace(precision=torch.int8, gpu=-1, gpu_ranks=[], world_size=1)
        _, quantized, _ = model_builder.load_test_model(asked, model_path=str(path))
    return quantized, lambda: quantized(source, target, lengths)[0]


CASES = {name: functools.partial(_loaded, name) for name in KINDS}
