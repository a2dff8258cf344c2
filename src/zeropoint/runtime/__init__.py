"""Run a program file with numpy alone: no PyTorch, nothing else."""

from zeropoint._native import FormatError
from zeropoint.runtime.profile import Profile
from zeropoint.runtime.program import Memory, Program, load

__all__ = ["FormatError", "Memory", "Profile", "Program", "load"]
