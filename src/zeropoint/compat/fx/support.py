"""Whether a backend can quantize a pattern as a qconfig asks."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import fx

from zeropoint.compat.fx.backend_config import DTypeConfig, DTypeWithConstraints
from zeropoint.compat.fx.node_observers import Plan, dtype_of
from zeropoint.compat.fx.patterns import Match
from zeropoint.compat.fx.qconfig_dtypes import get_qconfig_dtypes
from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.fake_quant.modules import FixedQParamsFakeQuantize
from zeropoint.observers.passive import FixedQParamsObserver
from zeropoint.qconfig import float16_dynamic_qconfig, float16_static_qconfig, qconfig_equals


def is_supported(match: Match | None, qconfig: Any, plans: dict[fx.Node, Plan]) -> bool:
    """Whether one of the backend's ways to quantize a match has the dtypes that are planned for it."""
    if match is None or match.config is None:
        return True
    root, last = match.root, match.last
    return any(
        all(_takes(argument, root, plans[root], qconfig, dtypes) for argument in (*root.args, *root.kwargs.values()))
        and _gives(plans[last], qconfig, dtypes)
        for dtypes in match.config.dtype_configs
    )


def _takes(argument: Any, node: fx.Node, plan: Plan, qconfig: Any, dtypes: DTypeConfig) -> bool:
    if isinstance(argument, (list, tuple)):
        return all(_takes(part, node, plan, qconfig, dtypes) for part in argument)
    if not isinstance(argument, fx.Node):
        return True
    if plan.is_weight(node, argument):
        asked = dtypes.weight_dtype
        return asked is None or (
            dtype_of(plan.weight)[0] == asked
            and satisfies_constraints(qconfig, dtypes.weight_dtype_with_constraints, is_activation=False)
        )
    if plan.is_bias(node, argument):
        return dtypes.bias_dtype is None or dtype_of(plan.bias)[0] == dtypes.bias_dtype
    dtype, is_dynamic = dtype_of(plan.input)
    return dtypes.input_dtype is None or (
        dtype == dtypes.input_dtype
        and is_dynamic == bool(dtypes.is_dynamic)
        and satisfies_constraints(qconfig, dtypes.input_dtype_with_constraints)
    )


def _gives(plan: Plan, qconfig: Any, dtypes: DTypeConfig) -> bool:
    dtype, is_dynamic = dtype_of(plan.output)
    if is_dynamic:  # of the input: the result is float
        dtype = torch.float32
    return dtypes.output_dtype is None or (
        dtype == dtypes.output_dtype and satisfies_constraints(qconfig, dtypes.output_dtype_with_constraints)
    )


def weight_is_supported(qconfig: Any, dtype_configs: list[DTypeConfig]) -> bool:
    """Whether one of the ways to quantize a layer has exactly the dtypes of a qconfig."""
    activation, weight, is_dynamic = get_qconfig_dtypes(qconfig)
    halves = activation == weight == torch.float16
    for dtypes in dtype_configs:
        wanted = [d or torch.float32 for d in (dtypes.input_dtype, dtypes.output_dtype, dtypes.weight_dtype)]
        if dtypes.is_dynamic:
            if is_dynamic and wanted == [activation, torch.float32, weight]:
                return True
        else:
            bias = torch.float16 if halves else torch.float32
            if wanted == [activation, activation, weight] and (dtypes.bias_dtype or torch.float32) == bias:
                return True
    return False


# ------------------------------------------------------------------------------------------------------- constraints


def satisfies_constraints(qconfig: Any, asked: DTypeWithConstraints, is_activation: bool = True) -> bool:
    """Whether the observer that a qconfig names keeps to what a backend asks of a dtype; warns if not."""
    constructor = None if qconfig is None else qconfig.activation if is_activation else qconfig.weight
    if constructor is None or asked.dtype is None:
        return True
    made = constructor()
    if made.dtype != asked.dtype:
        return True
    what = "activation" if is_activation else "weight"
    reason = _violation(made, asked, qconfig)
    if reason:
        warnings.warn(f"the {what} of a qconfig {reason}; layers with it stay in float: {qconfig}", stacklevel=2)
    return not reason


def _violation(made: Any, asked: DTypeWithConstraints, qconfig: Any) -> str:
    """What an observer does that the backend does not take, or ''."""
    observer = made.activation_post_process if isinstance(made, FakeQuantizeBase) else made
    low, high = getattr(observer, "quant_min", None), getattr(observer, "quant_max", None)
    lowest, highest, smallest = asked.quant_min_lower_bound, asked.quant_max_upper_bound, asked.scale_min_lower_bound
    if lowest is not None and highest is not None:
        if low is None or high is None:
            return "names no quant_min and quant_max"
        if low < lowest or high > highest:
            return f"uses the integers {low}..{high}, the backend {lowest}..{highest}"
    if smallest is not None:
        eps = getattr(observer, "eps", None)
        if eps is None:
            return "names no eps, the smallest scale"
        if float(eps) < smallest:
            return f"allows scales down to eps={float(eps)}, the backend down to {smallest}"
    if asked.scale_exact_match is None or asked.zero_point_exact_match is None:
        return ""
    if any(qconfig_equals(qconfig, halves) for halves in (float16_static_qconfig, float16_dynamic_qconfig)):
        return ""
    if not isinstance(made, (FixedQParamsObserver, FixedQParamsFakeQuantize)):
        return (
            "finds a range where the operator has a fixed one: use get_default_qconfig_mapping, or a"
            " FixedQParamsObserver"
        )
    scale, zero_point = float(observer.scale), int(observer.zero_point)
    if (scale, zero_point) != (asked.scale_exact_match, asked.zero_point_exact_match):
        wanted = f"{asked.scale_exact_match} and {asked.zero_point_exact_match}"
        return f"fixes scale {scale} and zero point {zero_point}, the operator has {wanted}"
    return ""
