"""Input-weight equalization: an input's channels and a weight's columns are brought to similar ranges.

A layer computes the same when channel c of its input is multiplied by s_c, and column c of its weight divided by it.
With ``s_c = sqrt(range of column c / range of channel c)`` both have the range ``sqrt(range * range)``, so that one
scale for the whole input fits every channel. `EqualizationQConfig` says which layers get the observers for it,
`prepare_fx(_equalization_config=...)` puts them in, `convert_fx` multiplies.
"""

from zeropoint.compat.fx.equalization.observers import (
    EqualizationQConfig,
    InputEqualizationObserver,
    WeightEqualizationObserver,
    calculate_equalization_scale,
    default_equalization_qconfig,
    input_equalization_observer,
    weight_equalization_observer,
)

__all__ = [
    "EqualizationQConfig",
    "InputEqualizationObserver",
    "WeightEqualizationObserver",
    "calculate_equalization_scale",
    "default_equalization_qconfig",
    "input_equalization_observer",
    "weight_equalization_observer",
]
