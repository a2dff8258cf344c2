"""What could be quantized better in a model: detectors look at it while it is calibrated, and advise qconfigs.

`ModelReport` puts the observers of its detectors into a model that `prepare_fx` made. After calibration, it gives a
text and a table for each detector, all tables together, and mappings of qconfigs that follow the advice.
"""

from zeropoint.compat.fx.model_report.detector import DetectorBase, DetectorQConfigInfo
from zeropoint.compat.fx.model_report.dynamic_static import DynamicStaticDetector
from zeropoint.compat.fx.model_report.input_weight import InputWeightEqualizationDetector
from zeropoint.compat.fx.model_report.model_report import ModelReport
from zeropoint.compat.fx.model_report.observer import ModelReportObserver
from zeropoint.compat.fx.model_report.outlier import OutlierDetector
from zeropoint.compat.fx.model_report.per_channel import PerChannelDetector
from zeropoint.compat.fx.model_report.tables import ModelReportVisualizer

__all__ = [
    "DetectorBase",
    "DetectorQConfigInfo",
    "DynamicStaticDetector",
    "InputWeightEqualizationDetector",
    "ModelReport",
    "ModelReportObserver",
    "ModelReportVisualizer",
    "OutlierDetector",
    "PerChannelDetector",
]
