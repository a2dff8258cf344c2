"""FX graph mode: a model is traced symbolically, prepared with observers, and converted, its modules at their paths."""

from zeropoint.fx import backends
from zeropoint.fx.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from zeropoint.fx.backends import *  # noqa: F403 (one list of backends, there)
from zeropoint.fx.custom_config import (
    ConvertCustomConfig,
    FuseCustomConfig,
    PrepareCustomConfig,
    StandaloneModuleConfigEntry,
)
from zeropoint.fx.quantize_fx import convert_fx, convert_to_reference_fx, fuse_fx, prepare_fx, prepare_qat_fx

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
