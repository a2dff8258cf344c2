"""State of graphs: tensors that a model keeps from one call to the next, read at its beginning, replaced at its end."""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint.ops.library import Written, operator


def _fake_read(state: Tensor) -> Tensor:
    return torch.empty_like(state)


# The tag keeps everybody from taking the state for a constant: what it gives is another value in each call.
@operator(fake=_fake_read, tags=(torch.Tag.nondeterministic_seeded,))
def read_state(state: Tensor) -> Tensor:
    """A copy of what the state is now.

    Example:
        >>> read_state(torch.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    return state.detach().clone()


def _fake_update() -> None:
    return None


@operator(fake=_fake_update)
def update_state(state: Written, next: Tensor, initial: Tensor) -> None:
    """Replace the state by `next`. `initial` is what it begins with; it is only kept here.

    Raises:
        ValueError: if `next` has another shape or dtype.

    Example:
        >>> state = torch.zeros(2)
        >>> update_state(state, torch.tensor([1.0, 2.0]), torch.zeros(2))
        >>> state
        tensor([1., 2.])
    """
    if (next.shape, next.dtype) != (state.shape, state.dtype):
        raise ValueError(
            f"update_state: the state has shape {tuple(state.shape)} and {state.dtype}, its replacement "
            f"{tuple(next.shape)} and {next.dtype}"
        )
    state.copy_(next)
