"""Quantized models as programs that run without PyTorch."""

from zeropoint.compiler.compiler import Unsupported, compile
from zeropoint.compiler.program import Program

__all__ = ["Program", "Unsupported", "compile"]
