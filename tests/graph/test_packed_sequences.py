"""pack_padded_sequence, a recurrent layer and pad_packed_sequence: in graphs and programs as in PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import zeropoint
import zeropoint.runtime
from zeropoint.graph.frontends.export import CaptureError, capture

# Outputs of cells lie between -1 and 1; each of 5 steps, forth and back, adds the rounding of weights and state once.
_NEAR = 5 * 2 / 127


class Packed(nn.Module):
    def __init__(self, kind: str = "LSTM", sort: bool = True, total: bool = False, value: float = 0.0, **options: Any):
        super().__init__()
        self.rnn = getattr(nn, kind)(8, 6, **options)
        self.sort, self.total, self.value = sort, total, value

    def forward(self, x: Tensor, lengths: Tensor, hx: Any = None) -> tuple[Tensor, Tensor, Any]:
        first = self.rnn.batch_first
        packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=not self.sort)
        y, last = self.rnn(packed, hx)
        total = x.size(1 if first else 0) if self.total else None
        return *pad_packed_sequence(y, first, self.value, total), last


def _flat(value: Any) -> list[Any]:
    return [t for part in value for t in (_flat(part) if isinstance(part, (tuple, list)) else [part])]


KINDS = [("LSTM", {}), ("GRU", {}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"})]
OPTIONS: list[dict[str, Any]] = [
    {"batch_first": True},
    {"bidirectional": True, "num_layers": 2},
    {"value": -1.5, "sort": False, "batch_first": True},
    {"total": True, "batch_first": True, "bias": False},
]


def _inputs(options: dict[str, Any], seed: int, batch: int = 3, steps: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, steps + 1, (batch,), generator=generator)
    lengths[batch // 2] = steps - 1 if options.get("total") else steps
    lengths = lengths if options.get("sort", True) else lengths.sort(descending=True).values
    x = torch.randn(batch, steps, 8, generator=generator)
    return (x if options.get("batch_first") else x.transpose(0, 1).contiguous()), lengths


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
def test_a_graph_computes_what_the_model_does(kind: str, more: dict[str, Any], options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    model = Packed(kind, **options, **more).eval()
    graph = capture(model, _inputs(options, 0))
    for inputs in (_inputs(options, 1), _inputs(options, 2, batch=4, steps=7)):
        expected = _flat(model(*inputs))
        assert all(torch.equal(a, b) for a, b in zip(_flat(graph(*inputs)), expected, strict=True))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_eight_bits_are_near_and_a_program_gives_the_same_bytes(
    mode: str, kind: str, more: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model, example = Packed(kind, **options, **more).eval(), _inputs(options, 0)
    data = {"calibration": [example]} if mode == "static" else {}
    quantized = zeropoint.to_int8(model, example, mode=mode, progress=False, **data)
    assert quantized.summary().counts()["int8, dynamic"] == 1
    program = zeropoint.compile(quantized, example)
    program.save(tmp_path / "model.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "model.zpt")
    for inputs in (_inputs(options, 1), _inputs(options, 2, batch=4, steps=7)):
        expected, given = _flat(model(*inputs)), _flat(quantized(*inputs))
        assert all(a.shape == b.shape for a, b in zip(given, expected, strict=True))
        assert max(float((a - b).detach().abs().max()) for a, b in zip(given, expected)) < _NEAR
        assert all(torch.equal(a, b) for a, b in zip(_flat(program(*inputs)), given, strict=True))
        assert all(torch.equal(torch.as_tensor(a), b) for a, b in zip(_flat(loaded(*inputs)), given, strict=True))


class _Behind(nn.Module):
    def __init__(self, packed: Packed) -> None:
        super().__init__()
        self.packed, self.last = packed, nn.Linear(12, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        y, *rest = self.packed(x, lengths)
        return self.last(y), *rest


def _only(name: str) -> zeropoint.QConfigMapping:
    return zeropoint.QConfigMapping().set_module_name(name, zeropoint.per_channel_dynamic_qconfig)


def test_a_layer_left_in_float_is_a_step_too() -> None:
    torch.manual_seed(1)
    model, inputs = Packed(bidirectional=True, batch_first=True).eval(), _inputs({"batch_first": True}, 0)
    graph = zeropoint.to_int8(_Behind(model), inputs, mode="dynamic", progress=False, qconfig=_only("last"))
    given = _flat(graph(*inputs))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(given[1:], _flat(model(*inputs))[1:], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(_flat(zeropoint.compile(graph, inputs)(*inputs)), given, strict=True))


def test_first_states_that_are_given_follow_the_sequences() -> None:
    torch.manual_seed(1)
    model, (x, lengths) = Packed("GRU", batch_first=True).eval(), _inputs({"batch_first": True}, 0)
    inputs = (x, lengths, torch.randn(1, 3, 6))
    graph = capture(model, inputs)
    assert all(torch.equal(a, b) for a, b in zip(_flat(graph(*inputs)), _flat(model(*inputs)), strict=True))


def test_a_batch_shorter_than_its_padding_is_refused_without_total_length() -> None:
    model, (x, lengths) = Packed(batch_first=True).eval(), _inputs({"batch_first": True}, 0)
    quantized = zeropoint.to_int8(model, (x, lengths), mode="dynamic", progress=False)
    program = zeropoint.compile(quantized, (x, lengths))
    short = torch.tensor([2, 4, 1])
    for run in (quantized, program):
        with pytest.raises(ValueError, match=r"longest sequence .*total_length"):
            run(x, short)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [([3, 5, 2], "must not grow"), ([6, 2, 2], "from 1 to 5"), ([5, 2, 0], "from 1 to 5")],
    ids=str,
)
def test_lengths_that_do_not_fit_are_refused(lengths: list[int], message: str) -> None:
    options = {"batch_first": True, "sort": False}
    model, (x, given) = Packed(**options).eval(), _inputs(options, 0)
    quantized = zeropoint.to_int8(model, (x, given), mode="dynamic", progress=False)
    program = zeropoint.compile(quantized, (x, given))
    for run in (quantized, program):
        with pytest.raises(ValueError, match=message):
            run(x, torch.tensor(lengths))


def test_a_function_of_packed_data_is_kept_and_what_would_count_padding_is_refused() -> None:
    class Squashed(Packed):
        def forward(self, x: Tensor, lengths: Tensor, hx: Any = None) -> Any:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            data = torch.tanh(packed.data) if self.total else packed.data - packed.data.mean(0)
            y, _ = self.rnn(PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices))
            return pad_packed_sequence(y, batch_first=True)[0]

    inputs = _inputs({"batch_first": True}, 0)
    kept = Squashed(total=True, batch_first=True).eval()
    assert torch.equal(capture(kept, inputs)(*inputs), kept(*inputs))
    with pytest.raises(CaptureError, match=r"aten\.(mean|sub).* reads the data of a packed sequence"):
        capture(Squashed(batch_first=True).eval(), inputs)
