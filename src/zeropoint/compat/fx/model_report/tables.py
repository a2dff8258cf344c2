"""What detectors found, as tables and plots."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch

_ABSENT = "-"


class ModelReportVisualizer:
    """Shows what detectors found: one table of values of whole tensors, one of values of channels.

    Filters are parts of names: '' takes all.

    Args:
        generated_reports: path of a module -> name of a feature -> its value.

    Example:
        >>> shown = ModelReportVisualizer({"conv": {"ratio": 0.5, "largest": torch.tensor([1.0, 2.0])}})
        >>> shown.generate_filtered_tables()["tensor_level_info"]
        (['idx', 'layer_fqn', 'ratio'], [[0, 'conv', 0.5]])
    """

    TABLE_TENSOR_KEY = "tensor_level_info"
    TABLE_CHANNEL_KEY = "channel_level_info"
    NUM_NON_FEATURE_TENSOR_HEADERS = 2
    NUM_NON_FEATURE_CHANNEL_HEADERS = 3

    def __init__(self, generated_reports: Mapping[str, Mapping[str, Any]]) -> None:
        self.generated_reports = generated_reports

    def get_all_unique_module_fqns(self) -> set[str]:
        """The paths of all modules."""
        return set(self.generated_reports)

    def get_all_unique_feature_names(self, plottable_features_only: bool = True) -> set[str]:
        """The names of all features, or of those that are tensors."""
        return {
            name
            for features in self.generated_reports.values()
            for name, value in features.items()
            if not plottable_features_only or isinstance(value, torch.Tensor)
        }

    def generate_filtered_tables(
        self, feature_filter: str = "", module_fqn_filter: str = ""
    ) -> dict[str, tuple[list[str], list[list[Any]]]]:
        """The two tables, each as its headers and its rows; one without features is empty."""
        kept = {
            path: {name: value for name, value in features.items() if feature_filter in name}
            for path, features in self.generated_reports.items()
            if module_fqn_filter in path
        }
        by_channel = sorted({n for features in kept.values() for n, v in features.items() if _has_channels(v)})
        whole = sorted({n for features in kept.values() for n in features} - set(by_channel))
        rows = [
            [path, *(_number(features.get(name, _ABSENT)) for name in whole)]
            for path, features in kept.items()
            if whole
        ]
        channel_rows = [
            [path, channel, *(_at(features, name, channel) for name in by_channel)]
            for path, features in kept.items()
            for channel in range(max((len(features[n]) for n in by_channel if n in features), default=0))
        ]
        return {
            self.TABLE_TENSOR_KEY: _table(["idx", "layer_fqn", *whole], rows),
            self.TABLE_CHANNEL_KEY: _table(["idx", "layer_fqn", "channel", *by_channel], channel_rows),
        }

    def generate_table_visualization(self, feature_filter: str = "", module_fqn_filter: str = "") -> None:
        """Print the tables."""
        titles = {self.TABLE_TENSOR_KEY: "Of whole tensors", self.TABLE_CHANNEL_KEY: "Of channels"}
        tables = self.generate_filtered_tables(feature_filter, module_fqn_filter)
        shown = [f"{titles[key]}\n\n{aligned(headers, rows)}" for key, (headers, rows) in tables.items() if rows]
        print("\n\n".join(shown) if shown else "There are no such values.")

    def _values(self, feature_filter: str, module_fqn_filter: str) -> tuple[bool, dict[int, list[float]]]:
        """Whether the one feature that is left is of channels, and place of each module -> its values."""
        tables = self.generate_filtered_tables(feature_filter, module_fqn_filter)
        fixed = {
            self.TABLE_TENSOR_KEY: self.NUM_NON_FEATURE_TENSOR_HEADERS,
            self.TABLE_CHANNEL_KEY: self.NUM_NON_FEATURE_CHANNEL_HEADERS,
        }
        features = [(key, name) for key, (headers, _) in tables.items() for name in headers[fixed[key] :]]
        if len(features) != 1:
            found = ", ".join(name for _, name in features) or "none"
            raise ValueError(
                f"feature_filter must match one feature for a plot, got {feature_filter!r}, which matches {found}"
            )
        key = features[0][0]
        rows = tables[key][1]
        places = {path: place for place, path in enumerate(dict.fromkeys(row[1] for row in rows))}
        values: dict[int, list[float]] = {}
        for row in rows:
            if not isinstance(row[-1], str):
                values.setdefault(places[row[1]], []).append(row[-1])
        return key == self.TABLE_CHANNEL_KEY, values

    def generate_plot_visualization(self, feature_filter: str, module_fqn_filter: str = "") -> None:
        """Plot one feature over the modules, of channels the mean; needs matplotlib."""
        pyplot = _pyplot()
        by_channel, values = self._values(feature_filter, module_fqn_filter)
        axes = pyplot.subplot()
        axes.plot(list(values), [sum(found) / len(found) for found in values.values()])
        axes.set_xlabel("module")
        axes.set_ylabel(f"{feature_filter}, mean of the channels" if by_channel else feature_filter)
        pyplot.xticks(list(values))
        pyplot.show()

    def generate_histogram_visualization(
        self, feature_filter: str, module_fqn_filter: str = "", num_bins: int = 10
    ) -> None:
        """Plot how often values of one feature occur, of all modules together; needs matplotlib."""
        pyplot = _pyplot()
        _, values = self._values(feature_filter, module_fqn_filter)
        axes = pyplot.subplot()
        _, edges, _ = axes.hist([v for found in values.values() for v in found], bins=num_bins, rwidth=0.8)
        axes.set_xlabel(feature_filter)
        axes.set_ylabel("number of values")
        pyplot.xticks(edges)
        pyplot.show()


def _pyplot() -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib; the tables need nothing") from error


def _has_channels(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, torch.Tensor) and value.dim() > 0)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _at(features: Mapping[str, Any], name: str, channel: int) -> Any:
    values = features.get(name, ())
    return _number(values[channel]) if channel < len(values) else _ABSENT


def _table(headers: list[str], rows: list[list[Any]]) -> tuple[list[str], list[list[Any]]]:
    return (headers if rows else [], [[index, *row] for index, row in enumerate(rows)])


def aligned(headers: list[str], rows: list[list[Any]]) -> str:
    """A table in columns of equal width, for a terminal."""
    cells = [headers, *([f"{v:.4g}" if isinstance(v, float) else str(v) for v in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)
