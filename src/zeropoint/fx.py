"""torch.ao's FX graph mode, `zeropoint.compat.fx`, under its short name."""

from zeropoint.compat.fx import *  # noqa: F403
from zeropoint.compat.fx import __all__, backends, equalization, model_report  # noqa: F401
