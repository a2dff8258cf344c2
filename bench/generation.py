"""Language models: a Llama shape of 1.1 billion random weights in Q4_0 against llama.cpp, with its file, and memory.

llama.cpp takes part if the package xllamacpp can be imported; its own timings count. "reading" is the time to read the
weights once (bench/read_bandwidth.c): the ratio is the share of that bandwidth.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import gguf
import numpy as np

from bench.timing import OURS, How, Result, Row
from zeropoint import generation
from zeropoint.interop.peer_process import Times

LAYERS, WIDTH, HIDDEN, HEADS, SHARED, WORDS, CONTEXT = 22, 2048, 5632, 32, 4, 32000, 4352
NEW = 24  # tokens of a turn
LLAMA, READING = "llama.cpp", "reading"
ALIKE = "a language model"


def rows() -> Iterator[Row]:
    for before in (128, 4096):
        targets = {LLAMA: 1.0, READING: 0.9} if before == 128 else {}
        yield Row(f"Llama 1.1B Q4_0, a token behind {before}", race=_race(_decode, before, targets), alike=ALIKE)
    yield Row("Llama 1.1B Q4_0, a prompt of 512", race=_race(_prompt, 512, {LLAMA: 2.0}), alike=ALIKE)


class Contenders:
    """The same random weights for all. A brief run takes two small layers."""

    def __init__(self, brief: bool, alone: bool, threads: int) -> None:
        self.brief = brief
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "model.gguf"
        _write(path, 2 if self.brief else LAYERS, 512 if self.brief else WIDTH)
        generation.compile_decoder(path, path.with_suffix(".zpt"), context=CONTEXT, sequences=1)
        self.ours = generation.load(path.with_suffix(".zpt"))
        # The embedding is read for one row.
        self.weights = path.stat().st_size - WORDS * (512 if self.brief else WIDTH) * 18 // 32
        self.llama = None
        if not alone and importlib.util.find_spec("xllamacpp") is not None:
            self.llama = _llama(path, threads)

    def forward(self, count: int, at: int) -> None:
        last = np.array([count - 1])
        self.ours.logits(np.full(count, 7), np.arange(at, at + count), np.zeros(count, np.int64), last)


@functools.cache
def contenders(brief: bool, alone: bool, threads: int) -> Contenders:
    return Contenders(brief, alone, threads)


def _race(
    measure: Callable[[Contenders, int, How], dict[str, float]], size: int, targets: dict[str, float]
) -> Callable[[Row, How, int], Result]:
    def race(row: Row, how: How, least: int) -> Result:
        who = contenders(how.seconds == 0, bool(how.without), how.threads)
        turns = [measure(who, size, how) for _ in range(1 if who.brief else min(least, 7))]
        times = {name: Times(tuple(turn[name] for turn in turns)) for name in turns[0]}
        speed = f"{1 / times[OURS].median:.1f} tokens/s" if measure is _decode else ""
        return Result(row, times, targets, (speed,) if speed else ())

    return race


def _decode(who: Contenders, before: int, how: How) -> dict[str, float]:
    for at in range(0, before, 512):
        who.forward(min(512, before - at), at)
    start = perf_counter()
    for at in range(NEW):
        who.forward(1, before + at)
    found = {OURS: (perf_counter() - start) / NEW}
    if who.llama is not None:
        timings = who.llama(before, NEW)
        found[LLAMA] = timings["predicted_ms"] / timings["predicted_n"] / 1000
    if before <= 128:
        done = subprocess.run(
            [_compiled(), str(who.weights), str(how.threads), "3"], capture_output=True, text=True, check=True
        )
        found[READING] = sorted(map(float, done.stdout.split()))[1]
    return found


def _prompt(who: Contenders, size: int, how: How) -> dict[str, float]:
    start = perf_counter()
    who.forward(size, 0)
    found = {OURS: perf_counter() - start}
    if who.llama is not None:
        timings = who.llama(size, 1)
        found[LLAMA] = timings["prompt_ms"] / timings["prompt_n"] * size / 1000
    return found


@functools.cache
def _compiled() -> str:
    folder = tempfile.mkdtemp()
    source = Path(__file__).with_name("read_bandwidth.c")
    subprocess.run(["cc", "-O3", "-march=native", "-pthread", source, "-o", f"{folder}/read"], check=True)
    return f"{folder}/read"


_LLAMA = """
import json, sys, xllamacpp
path, threads, context, size, new = sys.argv[1], *map(int, sys.argv[2:])
settings = xllamacpp.CommonParams()
settings.model.path, settings.n_ctx, settings.n_parallel = path, context, 1
settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(settings)
text = " ".join(f"w{i}" for i in range(size * 10 // 66))  # it makes six or seven tokens of each
options = {"prompt": text, "max_tokens": new, "ignore_eos": True, "cache_prompt": False, "temperature": 0}
server.handle_completions({**options, "prompt": "w1 w2", "max_tokens": 2})  # reads the file
found = server.handle_completions(options)
found = found if isinstance(found, dict) else json.loads(found)
print("timings", json.dumps(found["timings"]), flush=True)
"""


def _llama(path: Path, threads: int) -> Callable[[int, int], Any]:
    """What runs a prompt of about so many tokens and makes new ones, in a process of its own; gives its timings."""

    def run(size: int, new: int) -> Any:
        command = [sys.executable, "-c", _LLAMA, *map(str, (path, threads, CONTEXT, size, new))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("timings"))[8:])

    return run


def _write(path: Path, layers: int, width: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    hidden, heads = HIDDEN * width // WIDTH, HEADS * width // WIDTH
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(SHARED)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(WORDS)
    bytes_ = [f"<0x{i:02X}>".encode() for i in range(256)]
    tokens = [b"<unk>", b"<s>", b"</s>", *bytes_, *(f"\u2581w{i}".encode() for i in range(WORDS - 259))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(WORDS)])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (WORDS - 259))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    random = np.random.default_rng(0)

    def matrix(name: str, outputs: int, inputs: int) -> None:
        blocks = random.integers(0, 256, (outputs, inputs // 32, 18), np.uint8)
        blocks[..., :2] = np.array([0.004], np.float16).view(np.uint8)
        writer.add_tensor(f"{name}.weight", blocks.reshape(outputs, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def vector(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))

    shared = width // heads * SHARED
    matrix("token_embd", WORDS, width)
    matrix("output", WORDS, width)
    vector("output_norm")
    for i in range(layers):
        vector(f"blk.{i}.attn_norm")
        vector(f"blk.{i}.ffn_norm")
        for name, outputs in (("q", width), ("k", shared), ("v", shared), ("output", width)):
            matrix(f"blk.{i}.attn_{name}", outputs, width)
        matrix(f"blk.{i}.ffn_gate", hidden, width)
        matrix(f"blk.{i}.ffn_up", hidden, width)
        matrix(f"blk.{i}.ffn_down", width, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
