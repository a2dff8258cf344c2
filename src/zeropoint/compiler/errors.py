"""What the compiler raises."""

__all__ = ["Unsupported"]


class Unsupported(NotImplementedError):
    """An operator that no step computes."""
