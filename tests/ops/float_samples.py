"""Calls of the operators on float32, which have the same bytes on every CPU."""

from __future__ import annotations

from sample_tensors import Samples, codes, values

FLOAT_SAMPLES: Samples = {}
FLOATS = [values(3, 4, 5, layout=layout) for layout in ("contiguous", "permuted", "sliced")]
FLOAT_SAMPLES |= {
    name: [((x,), {}) for x in FLOATS] for name in ("float_tanh", "float_sigmoid", "float_silu", "float_softsign")
}
FLOAT_SAMPLES |= {
    name: [((x, dim), {}) for x in FLOATS for dim in (0, -1)]
    for name in ("float_softmax", "float_safe_softmax", "float_log_softmax")
}
FLOAT_SAMPLES |= {
    "float_gelu": [((x, how), {}) for x in FLOATS for how in ("none", "tanh")],
    "float_layer_norm": [((x, x.shape[-2:], None, x[0].contiguous(), 1e-5), {}) for x in FLOATS],
    "float_matmul": [((x, x.transpose(-1, -2)), {}) for x in FLOATS] + [((values(2, 1, 3, 4), values(5, 4, 6)), {})],
}
LAYER_ARGUMENTS = (values(4, 3, 3, 3), values(4), [2], [1])
FLOAT_SAMPLES |= {
    "float_linear": [((x, values(6, 5), bias), {}) for x in FLOATS for bias in (None, values(6))],
    "float_conv": [
        ((values(2, 3, 6, 7, layout="channels_last"), *LAYER_ARGUMENTS), {}),
        ((values(3, 6, 7), *LAYER_ARGUMENTS), {}),
        ((values(2, 4, 9), values(6, 2, 3), None, [1], [0], [2], 2), {}),
        ((values(2, 4, 3, 4, 5), values(4, 1, 2, 2, 2), None, [1], [0], [1], 4), {}),
    ],
    "float_conv_transpose": [
        ((values(2, 4, 6, 7), values(4, 3, 3, 3), values(3), [2], [1], [1]), {}),
        ((values(4, 9), values(4, 3, 2), None, [1], [0], [0], 2), {}),
    ],
    "float_batch_norm": [
        ((x, values(4), None, values(4), values(4).abs()), {})
        for x in (values(3, 4), values(2, 4, 3, layout="permuted"))
    ],
    "float_group_norm": [((x, 2, values(x.shape[1]), None), {}) for x in (values(3, 4), values(2, 6, 3, 2))],
    "float_instance_norm": [((values(2, 4, 3), values(4), values(4)), {})],
    "float_mean": [
        ((x, dim, keep), {}) for x in FLOATS for dim, keep in (([1], True), (None, False), ([0, -1], False))
    ],
    "float_sum": [((x, dim, keep), {}) for x in FLOATS for dim, keep in (([1], True), (None, False))],
    "float_bilinear": [
        ((values(2, 3, 4, 5, layout=how), size, False, factors), {})
        for how in ("contiguous", "channels_last")
        for size, factors in (([7, 3], None), (None, [2.0, 1.5]))
    ],
    "matrices": [((values(2, 3, 3), None, "inverse"), {}), ((values(2, 3, 3), values(2, 3, 4), "solve"), {})],
    "float_norm": [((x, dim, True), {}) for x in FLOATS for dim in ([1], [-1])],
    "float_product": [((x, dim, True), {}) for x in FLOATS for dim in ([1], None)],
    "float_variance": [((x, dim, 1.0, True), {}) for x in FLOATS for dim in ([1], None)],
    "float_unary": [((x, function), {}) for x in FLOATS for function in ("exp", "erf")],
    "float_binary": [((x.abs(), x[0].abs(), function), {}) for x in FLOATS for function in ("pow", "atan2")],
    "top": [((x, 2, dim, dim > 0), {}) for x in (*FLOATS, codes(3, 4, 5)) for dim in (-1, 0, 1)],
}
for _d, _shape in ((1, (2, 3, 7)), (2, (2, 3, 6, 5)), (3, (2, 3, 4, 4, 4))):
    _layouts = ["contiguous", "channels_last"] if _d == 2 else ["contiguous"]
    FLOAT_SAMPLES[f"float_avg_pool{_d}d"] = [
        ((values(*_shape, layout=how), [3], [2], [1], True), {}) for how in _layouts
    ]
    FLOAT_SAMPLES[f"float_adaptive_avg_pool{_d}d"] = [((values(*_shape, layout=how), [2] * _d), {}) for how in _layouts]
