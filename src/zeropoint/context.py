"""What a layer asks of those above it: one object, whose fields they fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, fx


def _absent(*arguments: Any, **options: Any) -> Any:
    raise RuntimeError("a workflow of zeropoint.eager is needed here: call `import zeropoint.eager` first")


@dataclass
class Context:
    """Imports go one way (docs/architecture.md); here is all that goes the other way.

    Args:
        rounding_of_layer: ``(weight zero points, groups, output padding) -> name``: how a layer rounds that is made
            now; groups are 0 for linear layers. `zeropoint.compat` puts in what the engine says that old code has set.
        rounding_of_values: the same for other operators, which ask when they run.
        reduces_range: whether linear layers of dynamic quantization ask for 7 bits, as those of torch.ao do; `compat`
            changes it.
        refuses_unquantizable: whether a function that quantized tensors cannot go through raises in models that are
            calibrated or trained; else it warns, and what follows is float. `compat` changes it.
        says_backend: whether an operator that quantized tensors do not have is refused in PyTorch's words first, which
            programs look for; `compat` sets it.
        scripts_only_linear: whether dynamic quantization of TorchScript leaves all layers but linear ones and
            embeddings in float, as torch.ao's does; `compat` changes it.
        asks_observers_again: whether the conversion of trained layers takes scales from the observers, as torch.ao
            does, and not those that the fake quantization ran with; weights are observed once more. `compat` sets it.
        moves_values: whether the results of a function, by the name that Python calls, are values that it was given:
            then they need not be computed on integers to be known. From the records of operators.
        converted_graph: a model that torch.ao's FX graph mode has converted, as torch.export takes it, or None; from
            `zeropoint.compat.fx`.
        torch_classes: "dtype" and "qscheme" -> the class of torch's constants that `isinstance` finds ours to be; their
            names are then printed and saved as torch's. `compat` fills it.
        prepare, prepare_qat, convert: the workflows of `zeropoint.eager`, which modules made of others run on
            themselves.
    """

    rounding_of_layer: Callable[[Tensor, int, Sequence[int]], str] | None = None
    rounding_of_values: Callable[[], str] | None = None
    reduces_range: bool = False
    refuses_unquantizable: bool = True
    says_backend: bool = False
    scripts_only_linear: bool = False
    asks_observers_again: bool = False
    moves_values: Callable[[str], bool] = lambda name: False
    converted_graph: Callable[[Any], fx.GraphModule | None] = lambda model: None
    torch_classes: Mapping[str, type] = field(default_factory=dict)
    prepare: Callable[..., Any] = _absent
    prepare_qat: Callable[..., Any] = _absent
    convert: Callable[..., Any] = _absent


CONTEXT = Context()
