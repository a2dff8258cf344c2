"""Packed weights as objects: unpacked, copied, saved, packed again when something changes, and let go."""

from __future__ import annotations

import gc
import io
import threading
import weakref

import pytest
import torch
from forked import run_forked
from layer_strategies import quantized
from reference import Codes, linear_sums, requantize
from saving import ways
from strategies import assert_same, generator, integers

import zeropoint
from zeropoint.nn.quantized import functional
from zeropoint.qfunctions import packed

ours = torch.ops.zeropoint
AVAILABLE = zeropoint.cpu_info().available


def linear_weight(seed: int = 0, per_channel: bool = True) -> Codes:
    data = integers(seed, (9, 21), torch.int8)
    n = 9 if per_channel else 1
    return Codes(data, torch.rand(n, generator=generator(seed)) + 0.1, torch.arange(n))


def linear_input() -> Codes:
    return Codes(integers(5, (4, 21), torch.uint8), 0.1, 77)


def conv_weight(groups: int = 2, transposed: bool = False) -> Codes:
    n = 3 if transposed else 6
    shape = (4, 3, 3, 2) if transposed else (6, 4 // groups, 3, 2)
    return Codes(integers(1, shape, torch.int8), torch.rand(n, generator=generator(2)) + 0.1, torch.arange(n))


KINDS = {
    "linear": lambda bias: packed.LinearPackedParams(quantized(linear_weight(), 0), bias(9)),
    "linear per tensor": lambda bias: packed.LinearPackedParams(quantized(linear_weight(per_channel=False)), bias(9)),
    "conv": lambda bias: packed.ConvPackedParams(
        quantized(conv_weight(), 0), bias(6), [2, 1], [1, 0], [1, 2], 2
    ),
    "conv transposed": lambda bias: packed.ConvPackedParams(
        quantized(conv_weight(transposed=True), 1), bias(6), [2, 1], [1, 0], [1, 2], 2, [1, 0]
    ),
}  # fmt: skip
kinds = pytest.mark.parametrize("kind", KINDS)
biases = pytest.mark.parametrize(
    "bias", [lambda n: None, lambda n: torch.randn(n, generator=generator(n))], ids=["no bias", "bias"]
)


def run(p) -> torch.Tensor:
    if isinstance(p, packed.LinearPackedParams):
        return packed.linear(quantized(linear_input()), p, 5.0, 100).int_repr()
    return packed.conv(quantized(Codes(integers(3, (2, 4, 7, 6), torch.uint8), 0.1, 9)), p, 5.0, 100).int_repr()


# ---------------------------------------------------------------------------------------------- unpack, copy and save


@kinds
@biases
def test_unpack_gives_back_weight_and_bias(kind, bias):
    weight, found = KINDS[kind](bias).unpack()
    transposed = kind == "conv transposed"
    want = conv_weight(transposed=transposed) if "conv" in kind else linear_weight(per_channel=kind == "linear")
    assert_same(weight.int_repr(), want.data)
    expected = bias(6 if "conv" in kind else 9)
    assert found is None if expected is None else torch.equal(found, expected)
    if weight.qscheme() == zeropoint.per_channel_affine:
        assert torch.equal(weight.q_per_channel_scales(), want.scale.double())
        assert torch.equal(weight.q_per_channel_zero_points(), want.zero_point)
    else:
        assert (weight.q_scale(), weight.q_zero_point()) == (float(want.scale), int(want.zero_point))


@kinds
@biases
@ways
def test_copy_and_file_give_the_same_bytes(kind, bias, way):
    p = KINDS[kind](bias)
    back = way(p)
    assert type(back) is type(p)
    assert_same(run(back), run(p))
    assert_same(back.unpack()[0].int_repr(), p.unpack()[0].int_repr())
    assert back.unpack()[0]._data.data_ptr() != p.unpack()[0]._data.data_ptr()


@kinds
@ways
def test_bias_that_was_computed_with_gradients_is_no_obstacle(kind, way):
    leaf = torch.ones(9, requires_grad=True)
    p = KINDS[kind](lambda n: leaf[:n] * 2)
    back = way(p)
    assert not back.unpack()[1].requires_grad
    assert_same(run(back), run(p))


@ways
def test_geometry_of_a_convolution_survives(way):
    p = way(KINDS["conv transposed"](lambda n: None))
    assert (p.stride(), p.padding(), p.dilation(), p.output_padding()) == ([2, 1], [1, 0], [1, 2], [1, 0])
    assert (p.groups(), p.transpose()) == (2, True)
    assert not way(KINDS["conv"](lambda n: None)).transpose()


@ways
def test_float16_weight_survives(way):
    p = packed.LinearPackedParamsFp16(torch.randn(3, 5, generator=generator(0)) * 1e5, torch.ones(3))
    back, x = way(p), torch.ones(2, 5)
    assert torch.equal(packed.linear_dynamic_fp16(x, back), packed.linear_dynamic_fp16(x, p))
    assert torch.equal(back.unpack()[0], p.unpack()[0])


def test_only_the_plain_weight_is_saved():
    p, buffer = KINDS["linear"](lambda n: None), io.BytesIO()
    run(p)
    torch.save(p.unpack()[0], buffer)
    plain = buffer.tell()
    torch.save(p, buffer := io.BytesIO())
    assert buffer.tell() < plain + 1024


def test_file_loads_in_a_process_that_only_imported_zeropoint(tmp_path):
    p = KINDS["conv"](lambda n: torch.ones(n))
    torch.save({"layer": p, "linear": KINDS["linear"](lambda n: None)}, tmp_path / "p.pt")
    code = (
        "import sys, torch, zeropoint\n"
        f"loaded = torch.load({str(tmp_path / 'p.pt')!r}, weights_only=True)\n"
        "print(type(loaded['layer']).__name__, loaded['layer'].unpack()[0].int_repr().sum().item())"
    )
    found = run_forked(code).stdout.split()
    assert found == ["ConvPackedParams", str(p.unpack()[0].int_repr().sum().item())]


@kinds
def test_repr_names_shape_and_scheme(kind):
    p = KINDS[kind](lambda n: None)
    assert repr(p).startswith(f"{type(p).__name__}(weight=")
    assert str(tuple(p.unpack()[0].shape)) in repr(p)


# ------------------------------------------------------------------------------------------------------ packed again


@kinds
def test_object_is_packed_again_for_another_instruction_set(kind):
    results = []
    p = KINDS[kind](lambda n: torch.ones(n))
    for isa in (*AVAILABLE, *reversed(AVAILABLE)):
        with zeropoint.use_isa(isa):
            layer = p.layer()
            assert p.layer() is layer
            results.append(run(p))
    for y in results:
        assert_same(y, results[0])


def test_functions_and_operators_pack_again_for_another_instruction_set():
    x, w = linear_input(), linear_weight()
    qx, qw = quantized(x), quantized(w, 0)
    want = functional.linear(qx, qw, None, 5.0, 100).int_repr()
    for isa in AVAILABLE:
        with zeropoint.use_isa(isa):
            assert_same(functional.linear(qx, qw, None, 5.0, 100).int_repr(), want)
            y = ours.linear(x.data, x.scale, x.zero_point, w.data, w.scale, w.zero_point, None, 5.0, 100)
            assert_same(y, want)


def reference(x: Codes, w: Codes, bias=None) -> torch.Tensor:
    return requantize(linear_sums(x, w), x.scale, w.scale, 5.0, 100, torch.uint8, bias=bias, axis=-1)


def test_operator_sees_what_changed_in_place():
    x, w, bias = linear_input(), linear_weight(), torch.zeros(9)

    def graph():
        return ours.linear(x.data, x.scale, x.zero_point, w.data, w.scale, w.zero_point, bias, 5.0, 100)

    assert_same(graph(), reference(x, w, bias))
    for change in (
        lambda: w.data.copy_(integers(8, (9, 21), torch.int8)),
        lambda: w.data[3, 4:9].fill_(-128),
        lambda: w.scale.mul_(1.5),
        lambda: w.zero_point.add_(3),
        lambda: bias.add_(7.0),
    ):
        before = graph()
        change()
        assert_same(graph(), reference(x, w, bias))
        assert not torch.equal(graph(), before)


def test_convolution_operator_sees_what_changed_in_place():
    x, w = integers(3, (2, 4, 7, 6), torch.uint8), conv_weight()

    def graph(weight):
        shape = [2, 1], [1, 0], [1, 2], 2
        return ours.conv2d(x, 0.1, 9, weight, w.scale, w.zero_point, None, *shape, 5.0, 100)

    before = graph(w.data)
    w.data.neg_()
    assert_same(graph(w.data), graph(w.data.clone()))
    assert not torch.equal(graph(w.data), before)


def test_one_weight_serves_several_geometries():
    x, w = integers(3, (2, 4, 7, 6), torch.uint8), conv_weight(groups=1)

    def graph(weight, stride):
        return ours.conv2d(x, 0.1, 9, weight, w.scale, w.zero_point, None, stride, [0], [1], 1, 5.0, 100)

    for stride in ([1], [2], [1]):
        assert_same(graph(w.data, stride), graph(w.data.clone(), stride))


def test_functions_see_what_changed_in_place():
    x, bias = linear_input(), torch.zeros(9)
    qx, qw = quantized(x), quantized(linear_weight(), 0)

    def function():
        return functional.linear(qx, qw, bias, 5.0, 100).int_repr()

    def expected():
        return reference(
            x, Codes(qw.int_repr(), qw.q_per_channel_scales().float(), qw.q_per_channel_zero_points()), bias
        )

    assert_same(function(), expected())
    for change in (
        lambda: qw.copy_(torch.randn(9, 21, generator=generator(1))),
        lambda: qw._data.fill_(-128),
        lambda: bias.add_(7.0),
    ):
        before = function()
        change()
        assert_same(function(), expected())
        assert not torch.equal(function(), before)


def test_functions_pack_an_unchanged_weight_once(monkeypatch):
    made = []
    for name in ("LinearLayer", "ConvLayer"):
        original = getattr(zeropoint._native, name)
        monkeypatch.setattr(
            zeropoint._native, name, lambda *a, original=original: made.append(original(*a)) or made[-1]
        )
    qw, bias = quantized(linear_weight(), 0), torch.zeros(9)
    for _ in range(3):
        functional.linear(quantized(linear_input()), qw, bias, 5.0, 100)
    assert len(made) == 1
    w, x = quantized(conv_weight(), 0), quantized(Codes(integers(3, (2, 4, 7, 6), torch.uint8), 0.1, 9))
    for _ in range(3):
        functional.conv2d(x, w, None, 2, groups=2)
    assert len(made) == 2


# ----------------------------------------------------------------------------------------------------------- let go


def use_linear_function(data: torch.Tensor) -> None:
    functional.linear(quantized(linear_input()), zeropoint.QTensor(data, *_parts(0)), None, 5.0, 100)


def use_conv_function(data: torch.Tensor) -> None:
    x = quantized(Codes(integers(3, (2, 4, 7, 6), torch.uint8), 0.1, 9))
    functional.conv2d(x, zeropoint.QTensor(data, *_parts(1)), None, groups=2, scale=5.0)


def _parts(which: int):
    q = quantized((linear_weight, conv_weight)[which](), 0)
    return q._qparams.quantizer, q._qdtype


def use_linear_operator(data: torch.Tensor) -> None:
    x, w = linear_input(), linear_weight()
    ours.linear(x.data, x.scale, x.zero_point, data, w.scale, w.zero_point, None, 5.0, 100)


def use_conv_operator(data: torch.Tensor) -> None:
    w = conv_weight()
    x = integers(3, (2, 4, 7, 6), torch.uint8)
    ours.conv2d(x, 0.1, 9, data, w.scale, w.zero_point, None, [1], [0], [1], 2, 5.0, 100)


USES = [use_linear_function, use_conv_function, use_linear_operator, use_conv_operator]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_caches_do_not_keep_a_weight_alive(use):
    data = (linear_weight if "linear" in use.__name__ else conv_weight)().data.clone()
    gone = weakref.ref(data)
    storage = weakref.ref(data.untyped_storage())
    use(data)
    use(data)
    del data
    gc.collect()
    assert gone() is None
    assert storage() is None


def test_packed_object_lets_its_weight_go():
    p = KINDS["linear"](lambda n: None)
    gone = weakref.ref(p.unpack()[0]._data)
    run(p)
    del p
    gc.collect()
    assert gone() is None


# ---------------------------------------------------------------------------------------------------------- threads


def together(count: int, work) -> list:
    """What `work(i)` answered in each of `count` threads that begin at the same time."""
    answers: list = [None] * count
    start = threading.Barrier(count)

    def one(i: int) -> None:
        start.wait()
        try:
            answers[i] = work(i)
        except BaseException as error:
            answers[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


@kinds
def test_many_threads_at_once_give_the_same_bytes(isa, kind):
    p = KINDS[kind](lambda n: torch.ones(n))
    want = run(p)
    for answers in together(8, lambda i: [run(p) for _ in range(20)]):
        for y in answers:
            assert_same(y, want)


def test_many_threads_at_once_with_different_scales_give_what_each_asked_for(isa):
    x, w = linear_input(), linear_weight()
    qx, p = quantized(x), packed.LinearPackedParams(quantized(w, 0))
    wants = [
        requantize(linear_sums(x, w), x.scale, w.scale, 1.0 + i, 100, torch.uint8, axis=-1) for i in range(8)
    ]  # fmt: skip
    results = together(8, lambda i: [packed.linear(qx, p, 1.0 + i, 100).int_repr() for _ in range(50)])
    for i, answers in enumerate(results):
        for y in answers:
            assert_same(y, wants[i])


def test_many_threads_may_pack_the_same_weight_first(isa):
    x, w = linear_input(), linear_weight()
    want = reference(x, w)
    for _ in range(5):
        qw = quantized(w, 0)
        for y in together(8, lambda i, qw=qw: functional.linear(quantized(x), qw, None, 5.0, 100).int_repr()):
            assert_same(y, want)
