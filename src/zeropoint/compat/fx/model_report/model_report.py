"""The report on a model: observers in, calibration by the user, then texts, tables and qconfigs out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx, nn

from zeropoint.compat.fx.model_report.detector import (
    ARGUMENTS,
    IS_POST,
    OBSERVER,
    TARGET,
    DetectorBase,
    DetectorQConfigInfo,
    calling_node,
)
from zeropoint.compat.fx.model_report.outlier import OutlierDetector
from zeropoint.compat.fx.model_report.tables import ModelReportVisualizer
from zeropoint.qconfig_mapping import QConfigMapping


class ModelReport:
    """Runs detectors on a model that `prepare_fx` made.

    Args:
        model: the prepared model; observers are put into it, and taken out again if you want.
        desired_report_detectors: one at least.

    Example:
        >>> import zeropoint
        >>> from zeropoint.compat.fx import prepare_fx
        >>> from zeropoint.compat.fx.model_report import DynamicStaticDetector
        >>> model, x = nn.Sequential(nn.Linear(2, 2)).eval(), torch.tensor([[1.0, 2.0]])
        >>> prepared = prepare_fx(model, zeropoint.get_default_qconfig_mapping(), (x,))
        >>> report = ModelReport(prepared, {DynamicStaticDetector()})
        >>> _ = report.prepare_detailed_calibration()(x)
        >>> _, found = report.generate_model_report(remove_inserted_observers=True)["dynamic_vs_static_detector"]
        >>> found["0"]["dynamic_recommended"]
        False
    """

    def __init__(self, model: fx.GraphModule, desired_report_detectors: Collection[DetectorBase]) -> None:
        if not desired_report_detectors:
            raise ValueError("a report needs at least one detector: pass one")
        self._model = model
        # By name, so that a set of detectors gives the same report every time.
        self._detectors = sorted(desired_report_detectors, key=lambda detector: detector.get_detector_name())
        self._paths: dict[str, set[str]] = {detector.get_detector_name(): set() for detector in self._detectors}
        self._is_prepared = self._is_removed = False
        self._reports: dict[str, dict[str, Any]] = {}

    def get_desired_reports_names(self) -> set[str]:
        """The names of the detectors."""
        return set(self._paths)

    def get_observers_of_interest(self) -> dict[str, set[str]]:
        """Name of a detector -> paths of the observers that it needs."""
        return dict(self._paths)

    # ------------------------------------------------------------------------------------------------------- observers

    def prepare_detailed_calibration(self) -> fx.GraphModule:
        """Put the observers in; then run the model on data.

        Raises:
            ValueError: the second time, and if two detectors want different channels at one place.
        """
        if self._is_prepared:
            raise ValueError("the model already has the observers: run it, then generate the report")
        places: dict[str, dict[str, Any]] = {}
        for detector in self._detectors:
            found = detector.determine_observer_insert_points(self._model)
            self._paths[detector.get_detector_name()] = set(found)
            for path, place in found.items():
                places[path] = _one_of(path, places.get(path), place, isinstance(detector, OutlierDetector))
        for path, place in places.items():
            self._insert(path, place)
        self._model.recompile()
        self._is_prepared = True
        return self._model

    def _insert(self, path: str, place: dict[str, Any]) -> None:
        graph, node = self._model.graph, place[TARGET]
        self._model.add_submodule(path, place[OBSERVER])
        with graph.inserting_before(node.next if place[IS_POST] else node):
            graph.create_node("call_module", path, place[ARGUMENTS])

    def _remove_observers(self) -> None:
        paths = set().union(*self._paths.values())
        for node in list(self._model.graph.nodes):
            if node.op == "call_module" and node.target in paths:
                self._model.graph.erase_node(node)
        for path in paths:
            self._model.delete_submodule(path)
        self._model.recompile()
        self._is_removed = True

    def _require_observers(self) -> None:
        if not self._is_prepared:
            raise RuntimeError("there are no observers yet: call prepare_detailed_calibration, and run the model")
        if self._is_removed:
            raise RuntimeError("the observers were removed with the last report: create another ModelReport")

    # --------------------------------------------------------------------------------------------------------- results

    def generate_model_report(self, remove_inserted_observers: bool) -> dict[str, tuple[str, dict[str, Any]]]:
        """Name of each detector -> its advice in words, and path of a module -> what was found there."""
        self._require_observers()
        reports = {d.get_detector_name(): d.generate_detector_report(self._model) for d in self._detectors}
        if remove_inserted_observers:
            self._remove_observers()
        self._reports = {name: found for name, (_, found) in reports.items()}
        return reports

    def generate_visualizer(self) -> ModelReportVisualizer:
        """All that was found, by modules in the order of the model, as tables and plots."""
        if not self._reports:
            raise RuntimeError("there is nothing to show yet: call generate_model_report first")
        by_module: OrderedDict[str, dict[str, Any]] = OrderedDict()
        for path, _ in self._model.named_modules():
            for report in self._reports.values():
                for key, value in report.get(path, {}).items():
                    entry = by_module.setdefault(path, {})
                    if key in entry and not _same(entry[key], value):
                        raise ValueError(f"two detectors have different values for {key!r} of {path}: rename one")
                    entry[key] = value
        return ModelReportVisualizer(by_module)

    def _advice(self) -> dict[str, DetectorQConfigInfo]:
        self._require_observers()
        joined: dict[str, DetectorQConfigInfo] = {}
        for detector in self._detectors:
            for path, info in detector.get_qconfig_info(self._model).items():
                if path in joined:
                    joined[path].join(info)
                else:
                    joined[path] = info
        return joined

    def _mapping(self, make: Callable[[DetectorQConfigInfo, nn.Module], Any]) -> QConfigMapping:
        advice, mapping = self._advice(), QConfigMapping()
        for path, module in self._model.named_modules():
            qconfig = make(advice[path], module) if path in advice else None
            if qconfig is not None:
                # A layer inside a fused module had the path of that in the model that the mapping is for.
                call = calling_node(self._model, path)
                mapping.set_module_name(path if call is None else str(call.target), qconfig)
        return mapping

    def generate_qconfig_mapping(self) -> QConfigMapping:
        """The qconfigs that follow the advice, by paths of modules."""
        return self._mapping(lambda info, module: info.generate_quantization_qconfig(module))

    def generate_equalization_mapping(self) -> QConfigMapping:
        """Qconfigs for equalization of those layers that gain from it, for `prepare_fx(_equalization_config=...)`."""
        return self._mapping(
            lambda info, _: info.generate_equalization_qconfig() if info.is_equalization_recommended else None
        )


def _one_of(path: str, before: Any, place: dict[str, Any], reads_percentiles: bool) -> dict[str, Any]:
    """Of two observers for one place, that whose percentile a detector reads; all keep the other statistics."""
    if before is None:
        return place
    axes = [getattr(p[OBSERVER], "ch_axis", None) for p in (before, place)]
    if axes[0] != axes[1]:
        raise ValueError(f"two detectors must use the same channel axis at {path}, got {axes[0]} and {axes[1]}")
    return place if reads_percentiles else before


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    return bool(a == b)
