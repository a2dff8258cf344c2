"""torch.ao's numeric suite, `zeropoint.compat.numeric_suite`, under its short name."""

from zeropoint.compat.numeric_suite import *  # noqa: F403
from zeropoint.compat.numeric_suite import __all__, graph  # noqa: F401
