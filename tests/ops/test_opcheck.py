"""Every operator as PyTorch's compiler sees it: schema, fake kernel, autograd, meta tensors."""

from __future__ import annotations

import pytest
import torch
from affine_samples import AFFINE_SAMPLES
from float_samples import FLOAT_SAMPLES
from layer_samples import LAYER_SAMPLES
from torch.utils._pytree import tree_map_only

from zeropoint.numerics import scalars
from zeropoint.ops.library import NAMESPACE

ours = torch.ops.zeropoint
SAMPLES = AFFINE_SAMPLES | LAYER_SAMPLES | FLOAT_SAMPLES


def registered() -> list[str]:
    names = torch._C._dispatch_get_all_op_names()
    return sorted(name.removeprefix(f"{NAMESPACE}::") for name in names if name.startswith(f"{NAMESPACE}::"))


def overload(name: str):
    base, _, variant = name.partition(".")
    return getattr(getattr(ours, base), variant or "default")


def test_every_operator_has_samples():
    # What QTensors are made of is sampled in tests/tensor/test_stored_ops.py; two others have no tensors at all.
    numbers_only = ("add_scalar_parameters", "mul_scalar_parameters")
    # These take QTensors, which opcheck cannot make copies of: tests/tensor/test_reading.py.
    of_qtensors = ("dequantize.self", "int_repr", "interpolate", "is_quantized", "q_", "qdtype", "qscheme")
    elsewhere = ("stored_", "qtensor", *numbers_only, *of_qtensors)
    own = [name for name in registered() if not name.startswith(elsewhere)]
    assert [name for name in own if name not in SAMPLES] == []


@pytest.mark.parametrize("other", [-300.0, -0.5, 0.0, 2.0, 1000.0])
def test_parameters_of_sums_and_products_in_scripted_code(other):
    @torch.jit.script
    def scripted(scale: float, zero_point: int, other: float, x: torch.Tensor):
        return (
            torch.ops.zeropoint.add_scalar_parameters(scale, zero_point, other, x.dtype),
            torch.ops.zeropoint.mul_scalar_parameters(scale, zero_point, other, x.dtype),
        )

    for dtype in (torch.uint8, torch.int8, torch.int32):
        arguments = 0.5, 10, other
        expected = scalars.sum_parameters(*arguments, dtype), scalars.product_parameters(*arguments, dtype)
        assert scripted(*arguments, torch.ones(1, dtype=dtype)) == expected


def listed(answer) -> list[torch.Tensor]:
    """What an operator answered: nothing, if it changes its arguments instead."""
    return [] if answer is None else [answer] if isinstance(answer, torch.Tensor) else list(answer)


def has_gradient(arguments):
    return any(getattr(a, "requires_grad", False) for a in arguments)


def with_and_without_gradient(samples):
    """The first of each: opcheck takes a second, and layouts and dtypes are compared below."""
    chosen = {has_gradient(arguments): i for i, (arguments, _) in reversed(list(enumerate(samples)))}
    return [samples[i] for i in sorted(chosen.values())]


WITHOUT_TRACE = "test_schema", "test_autograd_registration", "test_faketensor"
EVERY = *WITHOUT_TRACE, "test_aot_dispatch_dynamic"


@pytest.mark.parametrize("chosen", [with_and_without_gradient, pytest.param(list, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_operator_passes_opcheck(name, chosen):
    for arguments, options in chosen(SAMPLES[name]):
        if getattr(arguments[0], "dtype", None) == torch.float8_e5m2:
            continue  # opcheck itself multiplies its inputs, which PyTorch cannot do in float8
        # The trace is most of the time, and of an operator without a gradient the fake kernel is all it needs.
        checks = EVERY if chosen is list or has_gradient(arguments) else WITHOUT_TRACE
        torch.library.opcheck(overload(name), arguments, options, test_utils=checks)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_fake_kernel_answers_shape_dtype_and_layout_of_the_real_one(name):
    for arguments, options in SAMPLES[name]:
        real = overload(name)(*arguments, **options)
        with torch._subclasses.FakeTensorMode() as mode:
            fake = overload(name)(*tree_map_only(torch.Tensor, mode.from_tensor, arguments), **options)
        for r, f in zip(listed(real), listed(fake)):
            assert (r.shape, r.dtype, r.stride()) == (f.shape, f.dtype, f.stride())


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_meta_tensors_give_meta_tensors(name):
    for arguments, options in SAMPLES[name]:
        real = overload(name)(*arguments, **options)
        meta = overload(name)(*tree_map_only(torch.Tensor, lambda a: a.to("meta"), arguments), **options)
        for r, m in zip(listed(real), listed(meta)):
            assert m.device.type == "meta"
            assert (r.shape, r.dtype) == (m.shape, m.dtype)


@pytest.mark.parametrize("input_dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_fake_parameters_per_token_have_the_right_shape_and_type(input_dtype):
    """The decomposed library of PyTorch answers float64 and int64 for both; one of them is neither."""
    x = torch.empty(2, 3, 5, dtype=input_dtype, device="meta")
    scale, zero_point = ours.choose_qparams_per_token(x, torch.int8)
    kind = torch.float32 if input_dtype == torch.float16 else input_dtype
    assert (scale.shape, scale.dtype) == ((2, 3, 1), kind)
    assert (zero_point.shape, zero_point.dtype) == ((2, 3, 1), kind)
    scale, zero_point = ours.choose_qparams_per_token_asymmetric(x, torch.int8)
    assert (scale.shape, scale.dtype) == ((2, 3, 1), torch.float64)
    assert (zero_point.shape, zero_point.dtype) == ((2, 3, 1), torch.int64)
