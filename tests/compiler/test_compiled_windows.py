"""Folds, pools that name places, running extremes and boxes in programs: as PyTorch has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
import zeropoint.runtime
from zeropoint.compiler.compiler import compile as compile_graph
from zeropoint.graph.workflow import float_graph


class _Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def _same(function: Any, *inputs: Tensor) -> None:
    """A program of a function gives what PyTorch gives."""
    model = _Function(function).eval()
    given, expected = compile_graph(float_graph(model, inputs), inputs)(*inputs), function(*inputs)
    pairs = [(given, expected)] if isinstance(expected, Tensor) else list(zip(given, expected, strict=True))
    for a, b in pairs:
        assert torch.equal(torch.nan_to_num(a, nan=1e9), torch.nan_to_num(b, nan=1e9))


@pytest.mark.parametrize(
    ("kernel", "options"),
    [((2, 3), {}), ((3, 3), {"stride": 2, "padding": 1}), ((2, 2), {"dilation": 2, "padding": (0, 1)})],
    ids=str,
)
def test_columns_are_added_up_to_images(kernel: tuple[int, int], options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    columns = F.unfold(torch.randn(2, 3, 7, 8), kernel, **options)
    _same(lambda x: F.fold(x, (7, 8), kernel, **options), columns)
    _same(lambda x: F.fold(x, (7, 8), kernel, **options), columns[0])


@pytest.mark.parametrize("options", [{}, {"stride": 1, "padding": 1}, {"ceil_mode": True}, {"dilation": 2}], ids=str)
def test_a_pool_names_the_places_of_its_values(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 8).round(decimals=0)  # with equal values
    x[0, 0, 3, 3] = float("nan")
    _same(lambda x: F.max_pool2d(x, 3, return_indices=True, **options), x)


def test_values_go_back_to_the_places_that_a_pool_named() -> None:
    torch.manual_seed(0)
    pooled, places = F.max_pool2d(torch.randn(2, 3, 6, 8), 2, return_indices=True)
    _same(lambda x, where: F.max_unpool2d(x, where, 2), pooled, places)
    _same(lambda x, where: F.max_unpool2d(x, where, 2), pooled[0], places[0])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_extremes_take_the_last_of_equal_values_and_keep_nan(dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5).round()
    x[1, 1, 1] = float("nan")
    for value in (x, torch.randint(-3, 3, (3, 4, 5))):
        _same(lambda x: torch.cummax(x, dim), value)
        _same(lambda x: torch.cummin(x, dim), value)


def test_distances_between_all_rows() -> None:
    torch.manual_seed(0)

    class Far(Layers):
        def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            return self.first(a), torch.cdist(a, b)

    a, b = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    quantized = zeropoint.to_int8(Far(first=nn.Linear(3, 3)).eval(), (a, b), mode="dynamic", progress=False)
    assert torch.allclose(quantized(a, b)[1], torch.cdist(a, b), atol=1e-5)
    assert torch.equal(zeropoint.compile(quantized, (a, b))(a, b)[1], quantized(a, b)[1])


# ------------------------------------------------------------------------------------------------------------- boxes


def _boxes(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    corner, size = (torch.rand(count, 2, generator=generator) * n for n in (10, 4))
    scores = (torch.rand(count, generator=generator) * 8).round() / 8  # some are equal
    return torch.cat([corner, corner + size], 1), scores, torch.randint(0, 2, (count,), generator=generator)


def _by_hand(boxes: Tensor, scores: Tensor, threshold: float, labels: Tensor | None = None) -> list[int]:
    """One by one, in Python's floats: boxes that nothing better overlaps."""

    def overlap(a: list[float], b: list[float]) -> float:
        width, height = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
        area = sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
        return width * height / (area - width * height)

    kept: list[int] = []
    rows = boxes.double().tolist()
    for i in sorted(range(len(rows)), key=lambda i: (-float(scores[i]), i)):
        rivals = [k for k in kept if labels is None or labels[k] == labels[i]]
        if all(overlap(rows[k], rows[i]) <= threshold for k in rivals):
            kept.append(i)
    return kept


@pytest.mark.parametrize("labelled", [False, True], ids=["all", "labelled"])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7])
def test_boxes_that_overlap_a_better_one_are_dropped(threshold: float, labelled: bool) -> None:
    for seed in range(5):
        boxes, scores, labels = _boxes(40, seed)
        given = labels if labelled else None
        expected = _by_hand(boxes, scores, threshold, given)
        kept, count = zeropoint.nms(boxes, scores, threshold, 64, given)
        assert kept.tolist() == [*expected, *[-1] * (64 - len(expected))]
        assert int(count) == len(expected)
        first, three = zeropoint.nms(boxes, scores, threshold, 3, given)
        assert (first.tolist(), int(three)) == (expected[:3], min(3, len(expected)))


def test_a_program_drops_the_same_boxes() -> None:
    for labelled in (False, True):
        inputs = _boxes(40, 1)[: 3 if labelled else 2]
        model = _Function(lambda b, s, labels=None: zeropoint.nms(b, s, 0.4, 10, labels)).eval()
        program = compile_graph(float_graph(model, inputs), inputs)
        for seed in range(8):
            given = _boxes(40 + seed, seed)[: len(inputs)]
            for a, b in zip(program(*given), zeropoint.nms(*given[:2], 0.4, 10, *given[2:]), strict=True):
                assert torch.equal(a, b)
        empty = tuple(t[:0] for t in inputs)
        assert [t.tolist() for t in program(*empty)] == [[-1] * 10, 0]


def test_boxes_of_no_area_and_of_no_number_are_kept_apart() -> None:
    boxes = torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2], [float("nan"), 0, 1, 1]])
    scores = torch.tensor([0.5, 0.9, 0.3, 0.2])
    kept, count = zeropoint.nms(boxes, scores, 0.5, 4)
    assert (kept.tolist(), int(count)) == ([1, 2, 3, -1], 3)
    model = _Function(lambda b, s: zeropoint.nms(b, s, 0.5, 4)).eval()
    program = compile_graph(float_graph(model, (boxes, scores)), (boxes, scores))
    assert torch.equal(program(boxes, scores)[0], kept)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boxes": torch.zeros(3, 5)}, r"boxes must be float32 \(boxes, 4\), got torch.float32, shape \(3, 5\)"),
        ({"scores": torch.zeros(2)}, "scores must be float32 with one for each of 3 boxes"),
        ({"labels": torch.zeros(3)}, "labels must be int64"),
        ({"max_output": -1}, "max_output must not be negative, got -1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_boxes_are_refused(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"boxes": torch.zeros(3, 4), "scores": torch.zeros(3), "iou_threshold": 0.5}
    with pytest.raises(ValueError, match=message):
        zeropoint.nms(**{**given, "max_output": 3, **change})


class Detector(nn.Module):
    """A small detector with everything inside: features, scores and boxes on a grid, suppression."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.scores, self.boxes = nn.Conv2d(16, 3, 1), nn.Conv2d(16, 4, 1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        x = self.body(image)
        scores, labels = self.scores(x).flatten(2)[0].sigmoid().max(0)
        rows, columns = torch.meshgrid(torch.arange(x.size(2)), torch.arange(x.size(3)), indexing="ij")
        centre = torch.stack([columns, rows], -1).view(-1, 2).float() * 4
        size = self.boxes(x).flatten(2)[0].t().exp() * 3
        boxes = torch.cat([centre - size[:, :2], centre + size[:, 2:]], 1)
        kept, count = zeropoint.nms(boxes, scores, 0.5, 6, labels)
        chosen = kept.clamp(min=0)
        return {
            "boxes": boxes[chosen],
            "scores": scores[chosen] * (kept >= 0),
            "labels": labels[chosen],
            "count": count,
        }


def test_a_detector_with_its_boxes_is_one_program(tmp_path: Any) -> None:
    torch.manual_seed(0)
    model, images = Detector().eval(), [torch.randn(1, 3, 24, 24) for _ in range(3)]
    quantized = zeropoint.to_int8(model, (images[0],), images, progress=False)
    assert quantized.summary().counts()["int8"] >= 4
    program = zeropoint.compile(quantized, (images[0],))
    program.save(tmp_path / "detector.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "detector.zpt")
    for image in images:
        expected, given, again = quantized(image), program(image), loaded(image.numpy())
        assert all(torch.equal(given[name], expected[name]) for name in expected)
        assert all(torch.equal(torch.as_tensor(again[name]), expected[name]) for name in expected)
