"""Modules that stand in graphs and keep what passes through."""

# TorchScript reads the annotations: they are types here, not strings.

import torch
from torch import Tensor, nn

from zeropoint.compat.numeric_suite.graph.measures import compute_sqnr

Recurrent = tuple[Tensor, tuple[Tensor, Tensor]]


class OutputLogger(nn.Module):
    """Keeps the values that it is called with, in `stats`, or `stats_rnn` for those of a recurrent layer.

    Args:
        ref_node_name: the node that is looked at.
        prev_node_name: the node whose value this is.
        model_name: which of the models the node is of.
        ref_name: the name of the pair of layers.
        prev_node_target_type, ref_node_target_type: what these nodes call.
        results_type: "node_input" or "node_output".
        index_within_arg, index_of_arg: which input it is.
        fqn: the path of the module that the node stands in.
        qconfig_str: how the layer was quantized.
    """

    stats: list[Tensor]
    stats_rnn: list[Recurrent]

    _is_impure = True  # torch.fx keeps calls whose results nothing uses

    def __init__(
        self,
        ref_node_name: str,
        prev_node_name: str,
        model_name: str,
        ref_name: str,
        prev_node_target_type: str,
        ref_node_target_type: str,
        results_type: str,
        index_within_arg: int,
        index_of_arg: int,
        fqn: str | None,
        qconfig_str: str | None = "",
    ) -> None:
        super().__init__()
        self.stats = []
        self.stats_rnn = []
        self.ref_node_name, self.prev_node_name = ref_node_name, prev_node_name
        self.model_name, self.ref_name = model_name, ref_name
        self.prev_node_target_type, self.ref_node_target_type = prev_node_target_type, ref_node_target_type
        self.results_type = results_type
        self.index_within_arg, self.index_of_arg = index_within_arg, index_of_arg
        self.fqn, self.qconfig_str = fqn, qconfig_str
        self.enabled = True
        self.save_activations = True

    def forward(self, x):  # type: ignore[no-untyped-def]
        if self.enabled and self.save_activations:
            if isinstance(x, torch.Tensor):
                self.stats.append(x.detach())
            elif isinstance(x, tuple) and len(x) == 2 and len(x[1]) == 2:
                self.stats_rnn.append((x[0].detach(), (x[1][0].detach(), x[1][1].detach())))
        return x

    def __repr__(self) -> str:
        shown = {name: v for name, v in vars(self).items() if not name.startswith("_") and name != "training"}
        return f"{type(self).__name__}({shown})"


class OutputComparisonLogger(OutputLogger):
    """As `OutputLogger`, and compares each value with another one when it comes."""

    def __init__(self, *args, **kwargs) -> None:  # type: ignore[no-untyped-def]
        super().__init__(*args, **kwargs)
        self.comparison_fn = compute_sqnr
        self.comparison_fn_name = "sqnr"
        self.comparisons: list[Tensor] = []

    def forward(self, x, x_ref):  # type: ignore[no-untyped-def, override]
        if self.enabled:
            if self.save_activations:
                self.stats.append(x.detach())
            self.comparisons.append(self.comparison_fn(x, x_ref))
        return x
