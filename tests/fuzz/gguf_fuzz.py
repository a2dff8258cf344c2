"""Mutated GGUF files and packed checkpoints become programs, and programs GGUF files, or they are refused in words:
``python tests/fuzz/gguf_fuzz.py [COUNT] [SEED]``.

Mutations change bytes of the header, numbers to extreme ones, cut and repeat parts. What becomes a program is loaded
and run. Anything but a refusal, more than ten seconds, or much memory is a fault.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from folder_files import compressed_tensors, integer_folder
from gguf_files import decoder_file
from safetensors.numpy import load_file, save

from zeropoint import generation
from zeropoint.generation.gguf import Gguf

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
FAMILIES = ("llama", "qwen3", "gemma2", "phi2", "gpt2")
PACKINGS = (
    (compressed_tensors(4, 32, symmetric=False), 4),
    (compressed_tensors(8, 32, "int-quantized", symmetric=False), 8),
    ({"quant_method": "torchao"}, 4),
)
INTX = '{"_type": "IntxUnpackedToInt8Tensor", "_data": {"target_dtype": {"_data": "int4"}}}'
BREAK = b"\n--\n"  # between the files of a folder
SECONDS, MEGABYTES = 10, 300
REFUSALS = (ValueError, NotImplementedError, FloatingPointError)


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """A file with one to four changes."""
    data = bytearray(content)
    for _ in range(random.integers(1, 5)):
        # Three of four changes are in the entries and the rows of tensors.
        most = len(data) if random.integers(4) == 0 else min(len(data), 4500)
        at, kind = int(random.integers(most)), random.integers(5)
        if kind == 0:
            data[at] = random.integers(256)
        elif kind == 1:
            size = int(random.choice([1, 2, 4, 8]))
            value = EXTREMES[random.integers(len(EXTREMES))] & ((1 << 8 * size) - 1)
            data[at : at + size] = value.to_bytes(size, "little")
        elif kind == 2:
            del data[at : at + int(random.integers(1, 64))]
        elif kind == 3:
            data[at:at] = data[at : at + int(random.integers(1, 64))]
        else:
            del data[max(at, 1) :]
        if not data:
            return b""
    return bytes(data)


def from_gguf(path: Path) -> None:
    """Compile it, and run the program."""
    output = path.with_name("a.zpt")
    generation.compile_decoder(path, output)
    generation.load(output).generate([5, 6], 2)


def from_program(path: Path) -> None:
    """Write it as GGUF, and read that."""
    output = path.with_name("again.gguf")
    generation.export_gguf(path, output)
    Gguf(output)


def from_folder(path: Path) -> None:
    """Compile a config.json, and behind it a safetensors file, and run the program."""
    content = path.read_bytes()
    config, _, tensors = content.partition(BREAK)
    folder = path.with_name("folder")
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes(config)
    (folder / "model.safetensors").write_bytes(tensors)
    generation.compile_decoder(folder, path.with_name("a.zpt"))
    generation.load(path.with_name("a.zpt")).generate([5, 6], 2)


def seeds_in(folder: Path) -> list[tuple[bytes, Callable[[Path], None]]]:
    """Right files, and what is done with each."""
    found: list[tuple[bytes, Callable[[Path], None]]] = []
    for family in FAMILIES:
        path = decoder_file(folder / "seed.gguf", family, layers=1)
        generation.compile_decoder(path, folder / "seed.zpt")
        found += [(path.read_bytes(), from_gguf), ((folder / "seed.zpt").read_bytes(), from_program)]
    path = decoder_file(folder / "seed.gguf", "qwen3", "F32", layers=1)
    for config, bits in PACKINGS:
        made, _ = integer_folder(folder / f"of {len(found)}", path, config, bits, 32, True, "float16")
        tensors = {name: x for part in made.glob("*.safetensors") for name, x in load_file(part).items()}
        said = {name[: -len("_weight_qdata")] + "weight": INTX for name in tensors if name.endswith("_weight_qdata")}
        found.append(((made / "config.json").read_bytes() + BREAK + save(tensors, said), from_folder))
    return found


def run(count: int, seed: int) -> tuple[int, int]:
    """How many files were taken, and how many were refused.

    Raises:
        AssertionError: for a file that takes long or much memory. Other errors are those of the file.
    """
    random = np.random.default_rng(seed)
    made = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutated"
        seeds = seeds_in(Path(folder))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(count):
            content, job = seeds[number % len(seeds)]
            path.write_bytes(mutated(content, random))
            start = time.monotonic()
            try:
                job(path)
                made += 1
            except REFUSALS:
                refused += 1
            except BaseException:
                Path("gguf_fault").write_bytes(path.read_bytes())
                raise
            assert time.monotonic() - start < SECONDS, f"file {number} of seed {seed} takes long"
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert taken < MEGABYTES, f"{taken:.0f} MB"
    return made, refused


if __name__ == "__main__":
    COUNT, SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print("{} were taken, {} were refused".format(*run(COUNT, SEED)))
