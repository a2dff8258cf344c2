"""Batch norms measured anew after training: running statistics of the rounded network, not of all its past.

In quantization-aware training the running mean and variance trail behind: they are averages over batches that weights
of earlier steps, rounded otherwise, gave. Averages over some batches with the final weights are what the deployed
network has (Yang et al., 2020).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from zeropoint.graph.passes.fold_batch_norm_training import Statistics
from zeropoint.graph.to_int8 import call_of
from zeropoint.graph.workflow import InTraining


def reestimate_batch_norms(model: nn.Module, batches: Iterable[Any]) -> int:
    """Set the running mean and variance of every batch norm to the averages over `batches`, in place.

    Weights, ranges and modes stay unchanged.

    Args:
        model: a float model, or a model from `prepare_qat` or `prepare_qat_graph`.
        batches: input batches. A batch is a tensor, a tuple of positional arguments, or a dictionary of keyword
            arguments.

    Returns:
        the number of batch norms.

    Raises:
        ValueError: without a batch.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
        >>> x = torch.randn(4, 1, 3, 3)
        >>> reestimate_batch_norms(model, [x])
        1
        >>> torch.allclose(model[1].running_mean, model[0](x).mean((0, 2, 3)), atol=1e-6)
        True
    """
    run = model.graph_module if isinstance(model, InTraining) else model
    followed = [(m, *_parts(run, name)) for name, m in run.named_modules() if _follows(m)]
    if not followed:
        return 0
    was = [(m, m.training, m.momentum, getattr(m, "freeze_bn", False)) for m, _ in followed]
    count = 0
    try:
        for m, counter in followed:
            m.training, m.momentum = True, None  # the average of all batches since the counter was 0
            if isinstance(m, Statistics):
                m.update_bn_stats()
            counter.zero_()
        with torch.no_grad():
            for batch in batches:
                args, kwargs = call_of(batch)
                run(*args, **kwargs)
                count += 1
    finally:
        for m, training, momentum, frozen in was:
            m.training, m.momentum = training, momentum
            if isinstance(m, Statistics):
                m.freeze_bn = frozen
    if not count:
        raise ValueError("reestimate_batch_norms: batches is empty: pass at least one batch")
    return len(followed)


def _follows(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.running_mean is not None
    return isinstance(module, Statistics)


def _parts(model: Any, name: str) -> tuple[Any]:
    """The counter of batches of a batch norm."""
    owner = model.get_submodule(name)
    if isinstance(owner, Statistics):
        owner = model.get_submodule(name.rpartition(".")[0])
    return (owner.num_batches_tracked,)
