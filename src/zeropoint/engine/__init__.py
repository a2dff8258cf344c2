"""Quantized models as programs that run without PyTorch."""

from zeropoint.engine.compiler import Unsupported, compile
from zeropoint.engine.program import Program

__all__ = ["Program", "Unsupported", "compile"]
