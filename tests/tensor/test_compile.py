"""QTensors under torch.compile, torch.export and TorchScript: functions take them, make them and give them back."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from pairs import assert_equal_qtensors, every_kind, make
from strategies import assert_same
from torch._subclasses.fake_tensor import FakeTensorMode

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, quint4x2, quint8
from zeropoint.tensor import QTensor

Function = Callable[..., Any]

KINDS = [(qint8, "per_channel"), (quint8, "per_channel_float"), (quint8, "per_tensor"), (quint4x2, "per_tensor")]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def assert_same_result(ours: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(ours) == len(expected)
        for a, b in zip(ours, expected):
            assert_same_result(a, b)
    elif isinstance(expected, QTensor):
        assert_equal_qtensors(ours, expected)
    elif isinstance(expected, torch.Tensor):
        assert not isinstance(ours, QTensor)
        assert_same(ours, expected)
    else:
        assert ours == expected


def compiled(function: Function, backend: str = "aot_eager", **options: Any) -> Function:
    return torch.compile(function, fullgraph=True, backend=backend, **options)


# ------------------------------------------------------------------------------------------------------------- compile

EVERYWHERE: dict[str, Function] = {
    "dequantize": lambda q: q.dequantize() + 1,
    "zeropoint.dequantize": lambda q: zeropoint.dequantize(q) * 2,
    "slice": lambda q: q[:, 1:3],
    "unsqueeze": lambda q: q.unsqueeze(0).clone(),
    "permuted": lambda q: q.contiguous().dequantize().t(),
    "integers": lambda q: q.int_repr() + 1,
    "several": lambda q: (q, q[:, :2], q.dequantize()),
    "filled": lambda q: q.clone().fill_(0.5),
    "copied": lambda q: torch.empty_like(q).copy_(q.dequantize() * 0.5),
    "masked": lambda q: q.masked_fill(q.dequantize() > 0, 0.25),
    "dtype": lambda q: q.dequantize() + q.qdtype.bits + (q.qdtype == quint8) if q.dtype == torch.float32 else None,
    "bounds": lambda q: q.dequantize().clamp(q.qdtype.qmin, q.qdtype.qmax),
    "layout": lambda q: q.dequantize() if q.is_contiguous() and q.shape[0] == 3 else None,
}
PER_TENSOR: dict[str, Function] = {
    "view": lambda q: q.view(-1).dequantize() + 1,
    "transposed": lambda q: q.t(),
    "row": lambda q: q[1],
    "joined": lambda q: torch.cat([q, q.t().contiguous().view(3, 4)]),
    "qparams": lambda q: q.dequantize() * q.q_scale(),
    "indices": lambda q: q[torch.tensor([2, 0])],
    "quantized": lambda q: zeropoint.quantize_per_tensor(q.dequantize() * 2, 0.2, 4, quint8),
    "made": lambda q: zeropoint.make_per_tensor_quantized_tensor(q.int_repr() + 1, 0.2, 4),
}


@pytest.mark.parametrize("function", EVERYWHERE.values(), ids=EVERYWHERE)
@pytest.mark.parametrize(("dtype", "scheme"), KINDS)
def test_compile(dtype: QuantizedDtype, scheme: str, function: Function) -> None:
    q = make(dtype, scheme)
    assert_same_result(compiled(function)(q), function(q))


@pytest.mark.parametrize("function", PER_TENSOR.values(), ids=PER_TENSOR)
@pytest.mark.parametrize("dtype", [quint8, quint4x2], ids=repr)
def test_compile_per_tensor(dtype: QuantizedDtype, function: Function) -> None:
    q = make(dtype)
    assert_same_result(compiled(function)(q), function(q))


def test_compile_making_per_channel() -> None:
    def function(x: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor) -> Any:
        q = zeropoint.quantize_per_channel(x, scales, zero_points, 0, qint8)
        again = zeropoint.make_per_channel_quantized_tensor(q.int_repr(), q.q_per_channel_scales(), zero_points, 0)
        return q, again.dequantize()

    arguments = torch.randn(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 2, 3])
    assert_same_result(compiled(function)(*arguments), function(*arguments))


@pytest.mark.slow
def test_compile_with_inductor() -> None:
    def function(q: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> Any:
        y = (q.view(-1).dequantize() + 1).view(3, 4) @ w.dequantize().t() + x
        return zeropoint.quantize_per_tensor(y, 0.1, 128, quint8)[1:], w[:, 1:]

    arguments = make(quint8), make(qint8, "per_channel"), torch.randn(3, 3)
    assert_same_result(compiled(function, "inductor")(*arguments), function(*arguments))


@pytest.mark.parametrize(("dtype", "scheme"), KINDS)
def test_compiled_functions_write_to_their_arguments(dtype: QuantizedDtype, scheme: str) -> None:
    q, expected = make(dtype, scheme), make(dtype, scheme)
    compiled(lambda t: t.fill_(0.5))(q)
    assert_same_result(q, expected.fill_(0.5))
    other = make(dtype, scheme)
    compiled(lambda t, s: t.copy_(s))(q, other)
    assert_same_result(q, other)


def test_compiled_functions_do_not_change_what_integers_mean() -> None:
    q, other = make(qint8, "per_channel"), make(qint8, "per_channel")
    other.q_per_channel_scales().mul_(2)
    with pytest.raises(RuntimeError, match="copy_ cannot change per-channel qparams"):
        compiled(lambda t, s: t.copy_(s))(q, other)
    with pytest.raises(RuntimeError, match="copy_ cannot change the qparams"):
        compiled(lambda t, s: t.copy_(s))(make(quint8), zeropoint.quantize_per_tensor(torch.ones(3, 4), 9.0, 1, quint8))


def test_a_zero_point_breaks_the_graph() -> None:
    """The compiler has no way for methods that give an integer: it stops there, and goes on after it."""
    q = make(quint8)
    assert_same(torch.compile(lambda q: q.dequantize() + q.q_zero_point(), backend="aot_eager")(q), q.dequantize() + 2)


def test_constants_of_dtypes() -> None:
    x = torch.randn(3) * 300
    assert_same(compiled(lambda x: x.clamp(quint8.qmin, quint8.qmax))(x), x.clamp(0, 255))


def test_new_qparams_compile_anew() -> None:
    function = compiled(lambda q: q.dequantize() * q.q_scale())
    for scale in (0.1, 0.2):
        q = zeropoint.quantize_per_tensor(torch.rand(3), scale, 1, quint8)
        assert_same(function(q), q.dequantize() * scale)


@pytest.mark.parametrize("dtype", [quint8, quint4x2], ids=repr)
def test_dynamic_shapes(dtype: QuantizedDtype) -> None:
    for function in (lambda q: q.dequantize() * 2, lambda q: q[1:].clone().view(-1), lambda q: torch.cat([q, q])):
        torch._dynamo.reset()
        dynamic = compiled(function, dynamic=True)
        for rows in (4, 5, 7):
            q = make(dtype, shape=(rows, 6))
            assert_same_result(dynamic(q), function(q))


def test_refusals_reach_the_user_of_a_compiled_function() -> None:
    for function, words in (
        (lambda q: q.view(-1), "channel axis 0 would be split or merged"),
        (lambda q: q[0], "not known while compiling: use a slice"),
    ):
        with pytest.raises(RuntimeError, match=words):
            compiled(function)(make(qint8, "per_channel"))
    with pytest.raises(RuntimeError, match=r"aten\.mm.* call \.dequantize\(\) first"):
        compiled(lambda q: q @ q.t())(make(quint8))


class Holder(torch.nn.Module):
    """Holds a quantized weight as a buffer or a parameter."""

    def __init__(self, w: QTensor, parameter: bool) -> None:
        super().__init__()
        if parameter:
            self.w = torch.nn.Parameter(w, requires_grad=False)
        else:
            self.register_buffer("w", w)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w.dequantize().t()


class Function2(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: torch.Tensor) -> Any:
        return self.function(q)


@pytest.mark.parametrize("parameter", [False, True])
@pytest.mark.parametrize(("dtype", "scheme"), KINDS)
def test_modules(dtype: QuantizedDtype, scheme: str, parameter: bool) -> None:
    module, x = Holder(make(dtype, scheme), parameter), torch.randn(2, 4)
    assert_same_result(compiled(module)(x), module(x))
    exported = torch.export.export(module, (x,))
    assert_same_result(exported.module()(x), module(x))
    assert_same_result(exported.run_decompositions().module()(x), module(x))


# -------------------------------------------------------------------------------------------------------------- export


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("dtype", "scheme"), KINDS)
def test_export(dtype: QuantizedDtype, scheme: str, strict: bool) -> None:
    q = make(dtype, scheme)
    for function in (lambda q: q[:, 1:].dequantize() + 1, lambda q: q[:, 1:3].clone()):
        module = Function2(function)
        exported = torch.export.export(module, (q,), strict=strict)
        assert_same_result(exported.module()(q), module(q))


def test_exported_programs_are_saved() -> None:
    module, x = Holder(make(quint8), parameter=False), torch.randn(2, 4)
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(module, (x,)), buffer)
    buffer.seek(0)
    assert_same_result(torch.export.load(buffer).module()(x), module(x))


# -------------------------------------------------------------------------------------------------------- fake tensors


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_fake_tensors(dtype: QuantizedDtype, scheme: str) -> None:
    q = make(dtype, scheme, (3, 4))
    mode = FakeTensorMode()
    fake = mode.from_tensor(q)
    assert isinstance(fake, QTensor)
    assert (fake.qdtype, fake.dtype, fake.shape, fake.stride()) == (dtype, torch.float32, q.shape, q.stride())
    with mode:
        assert fake.dequantize().shape == (3, 4)
        assert fake[:, 1:].shape == (3, 3)
    assert repr(fake).startswith("tensor(..., size=(3, 4)")


# --------------------------------------------------------------------------------------------------------- TorchScript


def test_scripted_functions() -> None:
    @torch.jit.script
    def function(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float, torch.Tensor]:
        floats, scale = torch.ops.zeropoint.dequantize(a), torch.ops.zeropoint.q_scale(a)
        return a.view(-1), floats + 1, scale, torch.cat([a, b])

    q = make(quint8)
    assert_same_result(function(q, q), (q.view(-1), q.dequantize() + 1, 0.25, torch.cat([q, q])))

    @torch.jit.script
    def per_channel(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        ours = torch.ops.zeropoint
        return a[:, 1:], ours.q_per_channel_scales(a), ours.q_per_channel_axis(a)

    c = make(qint8, "per_channel")
    assert_same_result(per_channel(c), (c[:, 1:], c.q_per_channel_scales(), 0))


@pytest.mark.parametrize(
    "function", [lambda q: q.view(-1), lambda q: q.dequantize() + 1, lambda q: q.int_repr(), lambda q: q[1:, 0]]
)
def test_traced_functions_do_not_bake_values_in(function: Function) -> None:
    # The check that torch.jit.trace makes compares as float64, which a quantized result refuses to become.
    traced = torch.jit.trace(function, (make(quint8),), check_trace=False)
    other = zeropoint.quantize_per_tensor(torch.rand(3, 4), 0.01, 9, quint8)
    assert_same_result(traced(other), function(other))


def test_a_mode_sees_every_operator() -> None:
    """Shortcuts past the dispatcher are for when nobody looks."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watcher(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    q = make(quint8)
    with Watcher():
        q[0].dequantize()
        q.view(-1).int_repr()
    for operator in ("aten.select.int", "zeropoint.dequantize.self", "aten.view.default", "zeropoint.int_repr.default"):
        assert any(str(func) == operator for func in seen), (operator, seen)


def test_dynamic_quantization_breaks_the_graph() -> None:
    """Its scale is a number that the compiler does not have."""
    x = torch.rand(3)
    function = torch.compile(lambda x: zeropoint.quantize_per_tensor_dynamic(x, quint8), backend="aot_eager")
    assert_same_result(function(x), zeropoint.quantize_per_tensor_dynamic(x, quint8))
