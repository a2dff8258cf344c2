"""Eager mode: a model is quantized module by module, with stubs where floats become integers."""

from zeropoint.context import CONTEXT
from zeropoint.eager.convert import convert, swap_module
from zeropoint.eager.fuse import auto_fuse, fuse_known_modules, fuse_modules, fuse_modules_qat
from zeropoint.eager.mappings import get_default_custom_config_dict
from zeropoint.eager.prepare import add_quant_dequant, prepare, prepare_qat
from zeropoint.eager.workflows import quantize, quantize_dynamic, quantize_qat

CONTEXT.prepare, CONTEXT.prepare_qat, CONTEXT.convert = prepare, prepare_qat, convert

__all__ = [
    "add_quant_dequant",
    "auto_fuse",
    "convert",
    "fuse_known_modules",
    "fuse_modules",
    "fuse_modules_qat",
    "get_default_custom_config_dict",
    "prepare",
    "prepare_qat",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
]
