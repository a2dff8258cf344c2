"""Attention of ONNX and ONNX Runtime, rotary positions, and the norms around them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from zeropoint.operators.onnx.quantize import MICROSOFT, Scaled
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, ReadNode, reads

_LOWEST = float("-inf")


def _heads(x: Any, count: int) -> Any:
    """``(batch, heads, sequence, size)`` from ``(batch, sequence, heads * size)``."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def _together(x: Any) -> Any:
    return x.transpose(1, 2).flatten(2)


def _shared(x: Any, times: int) -> Any:
    """Heads that several queries share, once for each."""
    return x if times == 1 else torch.repeat_interleave(x, times, 1)


def _mask(r: OnnxReader, value: Any, width: Any) -> Any:
    """What is added to scores; a mask that is too short leaves the rest out."""
    if value is None:
        return None
    mask = r.tensor(value)
    if mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, _LOWEST)
    short = mask.shape[-1] < width if isinstance(width, int) else False
    return F.pad(mask, [0, width - mask.shape[-1]], value=_LOWEST) if short else mask


def _within(rows: Any, columns: Any, first: Any, left: int, right: int, lengths: Any = None) -> Any:
    """A mask of the places that a row may look at: at most so many to the left and to the right of its own.

    Args:
        first: the place of the first row; a number, or one for each of the batch.
        lengths: how many places there are, for each of the batch.
    """
    at = torch.arange(rows).reshape(-1, 1)
    at = at + (first.reshape(-1, 1, 1, 1) if isinstance(first, torch.Tensor) else first)
    place = torch.arange(columns)
    seen = place >= at - left if left >= 0 else None
    if right >= 0:
        seen = place <= at + right if seen is None else seen & (place <= at + right)
    if lengths is not None:
        there = place < lengths.reshape(-1, 1, 1, 1)
        seen = there if seen is None else seen & there
    return None if seen is None else torch.where(seen, 0.0, _LOWEST)


def attend(q: Any, k: Any, v: Any, biases: list[Any], scale: float, cap: float = 0.0) -> tuple[Any, list[Any]]:
    """The values, and the scores at four points: as they are, capped, with their masks, and as weights."""
    scores = [torch.matmul(q, k.transpose(-1, -2)) * scale]
    scores.append(torch.tanh(scores[-1] / cap) * cap if cap else scores[-1])
    masked = scores[-1]
    for bias in biases:
        masked = masked if bias is None else masked + bias.to(masked.dtype)
    masks = any(bias is not None for bias in biases)
    weights = torch.ops.aten._safe_softmax(masked, -1) if masks else torch.softmax(masked, -1)
    return torch.matmul(weights, v), [*scores, masked, weights]


def _read_attention(r: OnnxReader, n: ReadNode) -> Any:
    q, k, v = (r.tensor(value) for value in n.first(3))
    wide = q.dim() == 3
    if wide:
        q = _heads(q, n.attribute("q_num_heads"))
        k, v = (_heads(x, n.attribute("kv_num_heads")) for x in (k, v))
    else:
        n.without_effect("q_num_heads", "kv_num_heads")
    before: Any = 0
    if n.has(4):
        before = r.tensor(n.input(4)).shape[2]
        k, v = torch.cat([r.tensor(n.input(4)), k], 2), torch.cat([r.tensor(n.input(5)), v], 2)
    elif n.has(5):
        raise r.unsupported("past_value without past_key")
    n.without_effect("softmax_precision")  # sums of halves are float32 here
    rows, columns, lengths = q.shape[2], k.shape[2], r.tensor(n.input(6))
    first = before if lengths is None else lengths - rows
    left, right = n.attribute("left_window_size", -1), n.attribute("right_window_size", -1)
    right = 0 if n.attribute("is_causal", 0) else right
    seen = _within(rows, columns, first, left, right, lengths)
    times = q.shape[1] // k.shape[1]
    scale = n.attribute("scale", None) or 1.0 / math.sqrt(q.shape[-1])
    biases = [_mask(r, n.input(3), columns), seen]
    y, scores = attend(q, _shared(k, times), _shared(v, times), biases, scale, n.attribute("softcap", 0.0))
    mode = n.attribute("qk_matmul_output_mode", 0)
    return [_together(y) if wide else y, k, v, scores[mode]]


def _turned(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Pairs of values, turned by their angles: neighbours, or those of the two halves."""
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def _read_rotary(r: OnnxReader, n: ReadNode) -> Any:
    x, cos, sin = (r.tensor(n.input(place)) for place in (0, 1, 2))
    wide = x.dim() == 3
    x = _heads(x, n.attribute("num_heads")) if wide else x
    n.without_effect("num_heads")
    if n.has(3):
        places = r.tensor(n.input(3))
        cos, sin = F.embedding(places, cos), F.embedding(places, sin)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    size = n.attribute("rotary_embedding_dim", 0) or x.shape[-1]
    made = _turned(x[..., :size], cos, sin, bool(n.attribute("interleaved", 0)))
    made = made if size == x.shape[-1] else torch.cat([made, x[..., size:]], -1)
    return _together(made) if wide else made


def _read_rms_norm(r: OnnxReader, n: ReadNode) -> Any:
    x, weight = r.tensor(n.input(0)), r.tensor(n.input(1))
    axis = n.attribute("axis", -1) % x.dim()
    n.without_effect("stash_type")
    shape = list(x.shape[axis:])
    return F.rms_norm(x, shape, weight.expand(shape), n.attribute("epsilon", 1e-5))


def _read_simplified_norm(r: OnnxReader, n: ReadNode) -> Any:
    """The same in the domain of ONNX before it was there, where its second output is not asked for."""
    return _read_rms_norm(r, n)


# ------------------------------------------------------------------------------------------------ ONNX Runtime's own


def _read_skip_norm(is_simplified: bool) -> Any:
    """A norm of a sum, which is its last output."""

    def read(r: OnnxReader, n: ReadNode) -> Any:
        x, skip, weight = (r.tensor(value) for value in n.first(3))
        bias = None if is_simplified else r.tensor(n.input(3))
        more = r.tensor(n.input(3 if is_simplified else 4))
        total = x + skip if more is None else x + skip + more
        epsilon, shape = n.attribute("epsilon", 1e-12), [total.shape[-1]]
        y = (
            F.rms_norm(total, shape, weight, epsilon)
            if is_simplified
            else F.layer_norm(total, shape, weight, bias, epsilon)
        )
        return [y, None, None, total] if n.wants(3) else y

    return read


def _read_embed_norm(r: OnnxReader, n: ReadNode) -> Any:
    tables = [None if table is None else r.weight(table) for table in n.first(5)[2:]]
    return _embedded(r, n, tables, r.tensor(n.input(5)), r.tensor(n.input(6)), r.tensor(n.input(8)))


def _embedded(r: OnnxReader, n: ReadNode, tables: list[Any], weight: Any, bias: Any, places: Any) -> Any:
    """A norm of the sum of words, their places and their segments."""
    ids, segments = r.tensor(n.input(0)), r.tensor(n.input(1))
    places = torch.arange(ids.shape[1]).unsqueeze(0) if places is None else places
    total = F.embedding(ids, tables[0]) + F.embedding(places, tables[1])
    if segments is not None and tables[2] is not None:
        total = total + F.embedding(segments, tables[2])
    y = F.layer_norm(total, [total.shape[-1]], weight, bias, n.attribute("epsilon", 1e-12))
    n.without_effect("mask_index_type")
    mask, count = r.tensor(n.input(7)), None
    if n.wants(1):
        count = torch.zeros(ids.shape[0], dtype=torch.int32) if mask is None else torch.sum(mask, 1).to(torch.int32)
    return [y, count, total] if n.wants(2) else [y, count]


def _read_quantized_embed_norm(r: OnnxReader, n: ReadNode) -> Any:
    parts = []
    for place in range(2, 7):
        value, scale, shift = n.input(place), n.input(place + 6), n.input(place + 11)
        parts.append(None if value is None else r.tensor(Scaled(r, scale, shift, r.storage(value)).floats(value)))
    return _embedded(r, n, parts[:3], parts[3], parts[4], None)


def _own_attention(r: OnnxReader, n: ReadNode, qkv: Any, mask_place: int, past_place: int) -> Any:
    """Queries, keys and values that are one tensor, with masks as ONNX Runtime's operators take them."""
    heads = n.attribute("num_heads")
    sizes = n.attribute("qkv_hidden_sizes", None) or [qkv.shape[-1] // 3] * 3
    q, k, v = (_heads(part, heads) for part in torch.split(qkv, list(sizes), -1))
    if n.has(past_place):
        raise r.unsupported("past states are not supported")
    n.without_effect("past_present_share_buffer")
    low = n.attribute("mask_filter_value", -10000.0)
    mask = r.tensor(n.input(mask_place))
    biases: list[Any] = []
    if mask is not None and mask.dim() == 2:
        biases.append(torch.where(mask != 0, 0.0, low)[:, None, None, :])
    elif mask is not None and mask.dim() == 3:
        biases.append(torch.where(mask != 0, 0.0, low)[:, None])
    elif mask is not None:
        raise r.unsupported(f"a mask of shape {list(mask.shape)} is not supported; (batch, sequence) is")
    if n.attribute("unidirectional", 0):
        biases.append(_within(q.shape[2], k.shape[2], 0, -1, 0))
    scale = n.attribute("scale", 0.0) or 1.0 / math.sqrt(q.shape[-1])
    return _together(attend(q, k, v, biases, scale)[0])


def _read_own_attention(r: OnnxReader, n: ReadNode) -> Any:
    weight = r.weight(n.input(1), (1, 0))
    return _own_attention(r, n, F.linear(r.tensor(n.input(0)), weight, r.tensor(n.input(2))), 3, 4)


def _read_quantized_attention(r: OnnxReader, n: ReadNode) -> Any:
    x, weight, bias, x_scale, w_scale = n.first(5)
    shift, w_shift = n.input(6), n.input(7)
    if r.is_known(x_scale):
        floats = r.tensor(Scaled(r, x_scale, shift, r.storage(x)).floats(x))
    else:
        floats = (r.tensor(x).to(torch.float32) - r.tensor(shift).to(torch.float32)) * r.tensor(x_scale)
    stored = Scaled(r, w_scale, w_shift, r.storage(weight), -1).floats(weight)
    return _own_attention(r, n, F.linear(floats, r.weight(stored, (1, 0)), r.tensor(bias)), 5, 8)


def _read_many_heads(r: OnnxReader, n: ReadNode) -> Any:
    """MultiHeadAttention, of queries, keys and values of three axes."""
    q, k, v = (r.tensor(value) for value in n.first(3))
    heads = n.attribute("num_heads")
    if k is None or v is None or k.dim() != 3:
        raise r.unsupported("packed keys and values are not supported")
    if n.has(3):
        parts = torch.split(r.tensor(n.input(3)), [x.shape[-1] for x in (q, k, v)])
        q, k, v = (x + part for x, part in zip((q, k, v), parts))
    q, k, v = (_heads(x, heads) for x in (q, k, v))
    if n.has(6):
        k, v = (torch.cat([r.tensor(n.input(place)), x], 2) for place, x in ((6, k), (7, v)))
    biases: list[Any] = []
    if n.has(4):
        mask = r.tensor(n.input(4))
        if mask.dim() != 2:
            raise r.unsupported(f"a mask of shape {list(mask.shape)} is not supported; (batch, sequence) is")
        biases.append(torch.where(mask != 0, 0.0, n.attribute("mask_filter_value", -10000.0))[:, None, None, :])
    n.without_effect("mask_filter_value")
    biases.append(r.tensor(n.input(5)))
    if n.attribute("unidirectional", 0):
        biases.append(_within(q.shape[2], k.shape[2], 0, -1, 0))
    scale = n.attribute("scale", 0.0) or 1.0 / math.sqrt(q.shape[-1])
    return [_together(attend(q, k, v, biases, scale)[0]), k, v]


def _rotated(r: OnnxReader, n: ReadNode, x: Any, places: Any, tables: tuple[Any, Any], interleaved: str) -> Any:
    """``(batch, heads, sequence, size)``, each row turned by the angles of its place."""
    cos, sin = (F.embedding(places, r.tensor(table)).unsqueeze(1) for table in tables)
    size = 2 * cos.shape[-1]
    made = _turned(x[..., :size], cos, sin, bool(n.attribute(interleaved, 0)))
    return made if size == x.shape[-1] else torch.cat([made, x[..., size:]], -1)


def _read_own_rotary(r: OnnxReader, n: ReadNode) -> Any:
    x, given = r.tensor(n.input(0)), r.tensor(n.input(1))
    wide = x.dim() == 3
    n.without_effect("rotary_embedding_dim", "scale")  # the tables have the size; the scale is one by default
    if n.attribute("scale", 1.0) != 1.0 or n.attribute("is_packed_batching", 0):
        raise r.unsupported("scale and is_packed_batching are not supported")
    heads = n.attribute("num_heads", 0)
    size = n.attribute("rotary_embedding_dim", 0)
    if wide and not heads:
        if size:
            raise r.unsupported("rotary_embedding_dim needs num_heads")
        heads = x.shape[-1] // (2 * r.tensor(n.input(2)).shape[-1])
    x = _heads(x, heads) if wide else x
    places = given if given.dim() == 2 else given.reshape(1, 1) + torch.arange(x.shape[2]).reshape(1, -1)
    made = _rotated(r, n, x, places, (n.input(2), n.input(3)), "interleaved")
    return _together(made) if wide else made


def _read_grouped(r: OnnxReader, n: ReadNode) -> Any:
    """GroupQueryAttention of one sequence: causal, with what was before it, and rotary positions."""
    q, k, v, past_k, past_v, last, _ = (r.tensor(n.input(place)) for place in range(7))
    heads, shared = n.attribute("num_heads"), n.attribute("kv_num_heads")
    if not isinstance(q.shape[0], int) or q.shape[0] != 1:
        raise r.unsupported("sequences of several lengths are not supported: a batch of 1, of a fixed size, is")
    if k is None:
        size = q.shape[-1] // (heads + 2 * shared)
        q, k, v = torch.split(q, [heads * size, shared * size, shared * size], -1)
    q, k, v = _heads(q, heads), _heads(k, shared), _heads(v, shared)
    rows = q.shape[2]
    before = 0 if past_k is None else past_k.shape[2]
    if n.attribute("do_rotary", 0):
        places = (before + torch.arange(rows)).reshape(1, -1)
        q, k = (_rotated(r, n, x, places, (n.input(7), n.input(8)), "rotary_interleaved") for x in (q, k))
    n.without_effect("rotary_interleaved")
    n.input(7), n.input(8)
    if past_k is not None:
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    left = n.attribute("local_window_size", -1)
    lengths = None if last is None else last.reshape(-1) + 1
    seen = _within(rows, k.shape[2], before, left - 1 if left > 0 else -1, 0, lengths)
    scale = n.attribute("scale", 0.0) or 1.0 / math.sqrt(q.shape[-1])
    times = heads // shared
    y, _ = attend(q, _shared(k, times), _shared(v, times), [seen], scale, n.attribute("softcap", 0.0))
    return [_together(y), k, v]


FORMS = {
    "attention": OnnxForms(
        reads=(
            *reads(_read_attention, "Attention"),
            *reads(_read_own_attention, f"{MICROSOFT}.Attention"),
            *reads(_read_quantized_attention, f"{MICROSOFT}.QAttention"),
            *reads(_read_many_heads, f"{MICROSOFT}.MultiHeadAttention"),
            *reads(_read_grouped, f"{MICROSOFT}.GroupQueryAttention"),
            *reads(_read_rotary, "RotaryEmbedding"),
            *reads(_read_own_rotary, f"{MICROSOFT}.RotaryEmbedding"),
        )
    ),
    "rms_norm": OnnxForms(
        reads=(
            *reads(_read_rms_norm, "RMSNormalization"),
            *reads(_read_simplified_norm, "SimplifiedLayerNormalization"),
            *reads(_read_skip_norm(True), f"{MICROSOFT}.SkipSimplifiedLayerNormalization"),
        )
    ),
    "layer_norm": OnnxForms(
        reads=(
            *reads(_read_skip_norm(False), f"{MICROSOFT}.SkipLayerNormalization"),
            *reads(_read_embed_norm, f"{MICROSOFT}.EmbedLayerNormalization"),
            *reads(_read_quantized_embed_norm, f"{MICROSOFT}.QEmbedLayerNormalization"),
        )
    ),
}
