"""Users' mistakes that torch.ao reports as an AssertionError: programs that look for either go on."""


class MistakenValue(ValueError, AssertionError):
    """A ValueError where torch.ao raises an AssertionError."""


class MistakenType(TypeError, AssertionError):
    """A TypeError where torch.ao raises an AssertionError."""
