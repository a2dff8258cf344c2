"""Models as programs: the bytes of the quantized graph, whatever the sizes, the instruction set and the threads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_models import Bert, MobileNet, Recurrent, ResNet, UNet, with_statistics
from torch import Tensor, nn

import zeropoint


@dataclass(frozen=True)
class Example:
    """A model, a function that makes inputs for it of a batch size and another size, and some of those."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], tuple[Tensor, ...]]
    sizes: tuple[tuple[int, int], ...]
    mode: str = "static"


def _images(batch: int, size: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, 3, size, size),)


def _words(batch: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, 100, (batch, length)),)


def _masked_words(batch: int, length: int) -> tuple[Tensor, ...]:
    return *_words(batch, length), (torch.rand(batch, length) > 0.2).long()


def _sequences(batch: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, length, 20),)


_WORDS = ((2, 12), (3, 20))
_IMAGES = ((2, 32), (1, 32), (3, 48))
EXAMPLES = {
    "resnet": Example(lambda: with_statistics(ResNet((16, 24), 1, 10), *_images(4, 32)), _images, _IMAGES),
    "mobilenet": Example(lambda: with_statistics(MobileNet(), *_images(4, 32)), _images, _IMAGES),
    "unet": Example(lambda: with_statistics(UNet(), *_images(4, 32)), _images, _IMAGES),
    "bert": Example(Bert, _words, _WORDS),
    "bert with mask": Example(Bert, _masked_words, _WORDS),
    "bert, dynamic": Example(Bert, _words, _WORDS, "dynamic"),
    "lstm": Example(lambda: Recurrent(nn.LSTM), _sequences, _WORDS),
    "gru": Example(lambda: Recurrent(nn.GRU), _sequences, _WORDS),
}  # fmt: skip


@functools.cache
def made(name: str) -> tuple[Any, Any]:
    """The model on integers, and its program."""
    torch.manual_seed(0)
    example = EXAMPLES[name]
    batch = example.inputs(*example.sizes[0])
    calibration = [example.inputs(4, example.sizes[0][1])] if example.mode == "static" else None
    quantized = zeropoint.to_int8(
        example.make().eval(), batch, calibration, mode=example.mode, progress=False, dynamic_shapes="all"
    )
    return quantized, zeropoint.compile(quantized, batch)


@pytest.mark.parametrize("name", EXAMPLES)
def test_program_gives_the_bytes_of_the_graph(name: str, isa: str) -> None:
    quantized, program = made(name)
    torch.manual_seed(1)
    for sizes in EXAMPLES[name].sizes:
        inputs = EXAMPLES[name].inputs(*sizes)
        with torch.no_grad():
            expected = quantized(*inputs)
        found = program(*inputs)
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()


@pytest.mark.parametrize("name", EXAMPLES)
def test_saved_program_gives_the_bytes_of_the_graph(name: str, tmp_path: Path) -> None:
    quantized, program = made(name)
    program.save(tmp_path / "model.zpt")
    torch.manual_seed(2)
    inputs = EXAMPLES[name].inputs(*EXAMPLES[name].sizes[-1])
    found = zeropoint.runtime.load(tmp_path / "model.zpt")(*(x.numpy() for x in inputs))
    with torch.no_grad():
        assert torch.equal(torch.from_numpy(found), quantized(*inputs))


@pytest.mark.parametrize("name", EXAMPLES)
def test_threads_do_not_matter(name: str) -> None:
    _, program = made(name)
    torch.manual_seed(2)
    inputs = EXAMPLES[name].inputs(*EXAMPLES[name].sizes[0])
    threads = zeropoint.get_num_threads()
    try:
        results = []
        for n in (1, 2, 3):
            zeropoint.set_num_threads(n)
            results.append(program(*inputs))
    finally:
        zeropoint.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("name", ["resnet", "mobilenet", "unet"])
def test_images_may_be_channels_last(name: str) -> None:
    quantized, program = made(name)
    torch.manual_seed(3)
    (x,) = _images(2, 32)
    x = x.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        assert torch.equal(program(x), quantized(x))


def test_memory_is_shared_by_values_that_are_not_there_at_the_same_time() -> None:
    _, program = made("mobilenet")
    small, large = program.memory(), program.memory((4, 3, 64, 64))
    assert small.arena < small.values / 2
    assert large.arena > small.arena
