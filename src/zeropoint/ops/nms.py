"""Non-maximum suppression with a result of a fixed size, for graphs and programs."""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint.ops.library import Size, operator


def _fake_nms(scores: Tensor, max_output: Size) -> tuple[Tensor, Tensor]:
    return scores.new_empty((max_output,), dtype=torch.int64), scores.new_empty((), dtype=torch.int64)


@operator(fake=_fake_nms, name="nms")
def _nms(
    boxes: Tensor, scores: Tensor, iou_threshold: float, max_output: Size, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if boxes.dim() != 2 or boxes.shape[1] != 4 or boxes.dtype != torch.float32:
        raise ValueError(f"nms: boxes must be float32 (boxes, 4), got {boxes.dtype}, shape {tuple(boxes.shape)}")
    if scores.shape != boxes.shape[:1] or scores.dtype != torch.float32:
        raise ValueError(
            f"nms: scores must be float32 with one for each of {boxes.shape[0]} boxes, got {scores.dtype}, shape"
            f" {tuple(scores.shape)}"
        )
    if labels is not None and (labels.shape != scores.shape or labels.dtype != torch.int64):
        raise ValueError(
            f"nms: labels must be int64 with one for each of {boxes.shape[0]} boxes, got {labels.dtype}, shape"
            f" {tuple(labels.shape)}"
        )
    if max_output < 0:
        raise ValueError(f"nms: max_output must not be negative, got {max_output}")
    left, top, right, bottom = boxes.unbind(1)
    area = (right - left) * (bottom - top)
    dropped = torch.zeros(boxes.shape[0], dtype=torch.bool)
    found: list[int] = []
    for best in torch.sort(scores, stable=True, descending=True).indices.tolist():
        if len(found) == max_output:
            break
        if dropped[best]:
            continue
        found.append(best)
        width = (torch.minimum(right, right[best]) - torch.maximum(left, left[best])).clamp(min=0)
        height = (torch.minimum(bottom, bottom[best]) - torch.maximum(top, top[best])).clamp(min=0)
        shared = width * height
        overlaps = (shared / (area[best] + area - shared)).double() > iou_threshold
        dropped |= overlaps if labels is None else overlaps & (labels == labels[best])
    kept = torch.full((max_output,), -1, dtype=torch.int64)
    kept[: len(found)] = torch.tensor(found, dtype=torch.int64)
    return kept, torch.tensor(len(found))


def nms(
    boxes: Tensor, scores: Tensor, iou_threshold: float, max_output: int, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Non-maximum suppression: drop boxes that overlap a box with a higher score.

    Uses the rule of `torchvision.ops.nms`, and with `labels` that of `torchvision.ops.batched_nms`. The sizes of the
    result do not depend on data, so models that call it can be captured and compiled.

    Args:
        boxes: float32 ``(boxes, 4)``: left, top, right, bottom.
        scores: float32 ``(boxes,)``.
        iou_threshold: drop a box if its intersection over union with a better box is larger than this.
        max_output: the largest number of boxes to keep.
        labels: int64 ``(boxes,)``; boxes suppress only boxes with the same label.

    Returns:
        int64 ``(max_output,)``: the indices of the kept boxes, best first, padded with -1; and their number.

    Raises:
        ValueError: for tensors of another shape or dtype.

    Example:
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]])
        >>> nms(boxes, torch.tensor([0.5, 0.9, 0.7]), 0.5, 4)
        (tensor([ 1,  2, -1, -1]), tensor(2))
    """
    kept, count = torch.ops.zeropoint.nms(boxes, scores, iou_threshold, max_output, labels)
    return kept, count
