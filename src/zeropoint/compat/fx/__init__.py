"""FX graph mode: a model is traced symbolically, prepared with observers, and converted, its modules at their paths."""

from zeropoint.compat.fx import backends
from zeropoint.compat.fx.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from zeropoint.compat.fx.backends import *  # noqa: F403 (one list of backends, there)
from zeropoint.compat.fx.custom_config import (
    ConvertCustomConfig,
    FuseCustomConfig,
    PrepareCustomConfig,
    StandaloneModuleConfigEntry,
)
from zeropoint.compat.fx.numbers import with_numbers
from zeropoint.compat.fx.quantize_fx import convert_fx, convert_to_reference_fx, fuse_fx, prepare_fx, prepare_qat_fx
from zeropoint.context import CONTEXT

CONTEXT.converted_graph = with_numbers

__all__ = [
    "BackendConfig",
    "BackendPatternConfig",
    "ConvertCustomConfig",
    "DTypeConfig",
    "DTypeWithConstraints",
    "FuseCustomConfig",
    "ObservationType",
    "PrepareCustomConfig",
    "StandaloneModuleConfigEntry",
    "convert_fx",
    "convert_to_reference_fx",
    "fuse_fx",
    "prepare_fx",
    "prepare_qat_fx",
    *backends.__all__,
]
