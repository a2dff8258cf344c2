"""The public names of zeropoint and the modules that define them: read by type checkers, and by `__init__.py`."""

from zeropoint import (
    compat as compat,
    compiler as compiler,
    cpu as cpu,
    distributed as distributed,
    eager as eager,
    fake_quant as fake_quant,
    fx as fx,
    generation as generation,
    graph as graph,
    nn as nn,
    numerics as numerics,
    observers as observers,
    ops as ops,
    qconfig as qconfig,
    qconfig_mapping as qconfig_mapping,
    qfunctions as qfunctions,
    report as report,
    runtime as runtime,
    sentence_encoder as sentence_encoder,
    tensor as tensor,
)
from zeropoint.accuracy.advice import calibration_advice as calibration_advice
from zeropoint.accuracy.tune import tune as tune
from zeropoint.comparison.layers import compare as compare
from zeropoint.comparison.sensitivity import sensitivity as sensitivity
from zeropoint.compat.fx import (
    convert_fx as convert_fx,
    convert_to_reference_fx as convert_to_reference_fx,
    fuse_fx as fuse_fx,
    prepare_fx as prepare_fx,
    prepare_qat_fx as prepare_qat_fx,
)
from zeropoint.compiler import (
    Unsupported as Unsupported,
    compile as compile,
)
from zeropoint.cpu import (
    cpu_info as cpu_info,
    get_num_threads as get_num_threads,
    set_num_threads as set_num_threads,
    use_isa as use_isa,
)
from zeropoint.eager import (
    add_quant_dequant as add_quant_dequant,
    auto_fuse as auto_fuse,
    convert as convert,
    fuse_known_modules as fuse_known_modules,
    fuse_modules as fuse_modules,
    fuse_modules_qat as fuse_modules_qat,
    get_default_custom_config_dict as get_default_custom_config_dict,
    prepare as prepare,
    prepare_qat as prepare_qat,
    quantize as quantize,
    quantize_dynamic as quantize_dynamic,
    quantize_qat as quantize_qat,
    swap_module as swap_module,
)
from zeropoint.eager.mappings import (
    get_default_compare_output_module_list as get_default_compare_output_module_list,
    get_default_dynamic_quant_module_mappings as get_default_dynamic_quant_module_mappings,
    get_default_float_to_quantized_operator_mappings as get_default_float_to_quantized_operator_mappings,
    get_default_qat_module_mappings as get_default_qat_module_mappings,
    get_default_qconfig_propagation_list as get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings as get_default_static_quant_module_mappings,
    get_default_static_quant_reference_module_mappings as get_default_static_quant_reference_module_mappings,
    get_dynamic_quant_module_class as get_dynamic_quant_module_class,
    get_embedding_qat_module_mappings as get_embedding_qat_module_mappings,
    get_embedding_static_quant_module_mappings as get_embedding_static_quant_module_mappings,
    get_quantized_operator as get_quantized_operator,
    get_static_quant_module_class as get_static_quant_module_class,
    no_observer_set as no_observer_set,
)
from zeropoint.fake_quant import (
    FakeQuantize as FakeQuantize,
    FakeQuantizeBase as FakeQuantizeBase,
    FixedQParamsFakeQuantize as FixedQParamsFakeQuantize,
    FusedMovingAvgObsFakeQuantize as FusedMovingAvgObsFakeQuantize,
    default_affine_fixed_qparams_fake_quant as default_affine_fixed_qparams_fake_quant,
    default_dynamic_fake_quant as default_dynamic_fake_quant,
    default_embedding_fake_quant as default_embedding_fake_quant,
    default_embedding_fake_quant_4bit as default_embedding_fake_quant_4bit,
    default_fake_quant as default_fake_quant,
    default_fixed_qparams_range_0to1_fake_quant as default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant as default_fixed_qparams_range_neg1to1_fake_quant,
    default_fused_act_fake_quant as default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant as default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant as default_fused_wt_fake_quant,
    default_histogram_fake_quant as default_histogram_fake_quant,
    default_per_channel_weight_fake_quant as default_per_channel_weight_fake_quant,
    default_symmetric_fixed_qparams_fake_quant as default_symmetric_fixed_qparams_fake_quant,
    default_weight_fake_quant as default_weight_fake_quant,
    disable_fake_quant as disable_fake_quant,
    disable_observer as disable_observer,
    enable_fake_quant as enable_fake_quant,
    enable_observer as enable_observer,
    fused_per_channel_wt_fake_quant_range_neg_127_to_127 as fused_per_channel_wt_fake_quant_range_neg_127_to_127,
    fused_wt_fake_quant_range_neg_127_to_127 as fused_wt_fake_quant_range_neg_127_to_127,
)
from zeropoint.graph.frontends.export import CaptureError as CaptureError
from zeropoint.graph.frontends.script.fold_batch_norm import fuse_conv_bn_jit as fuse_conv_bn_jit
from zeropoint.graph.frontends.script.observers import script_qconfig as script_qconfig
from zeropoint.graph.frontends.script.saved_plan import summary as summary
from zeropoint.graph.lowering.integer import NotCalibrated as NotCalibrated
from zeropoint.graph.policy import Policy as Policy
from zeropoint.graph.quantize_jit import (
    convert_dynamic_jit as convert_dynamic_jit,
    convert_jit as convert_jit,
    prepare_dynamic_jit as prepare_dynamic_jit,
    prepare_jit as prepare_jit,
    quantize_dynamic_jit as quantize_dynamic_jit,
    quantize_jit as quantize_jit,
)
from zeropoint.graph.split import (
    Cut as Cut,
    split_at as split_at,
)
from zeropoint.graph.to_int8 import to_int8 as to_int8
from zeropoint.graph.workflow import (
    convert_graph as convert_graph,
    convert_to_reference_graph as convert_to_reference_graph,
    prepare_graph as prepare_graph,
    prepare_qat_graph as prepare_qat_graph,
)
from zeropoint.interop.onnx.export import export_onnx as export_onnx
from zeropoint.interop.onnx.model import from_onnx as from_onnx
from zeropoint.interop.pt2e import from_pt2e as from_pt2e
from zeropoint.nn.quantized.reference.weight import get_qparam_dict as get_qparam_dict
from zeropoint.nn.stubs import (
    DeQuantStub as DeQuantStub,
    QuantStub as QuantStub,
    QuantWrapper as QuantWrapper,
)
from zeropoint.numerics.dtypes import (
    QuantizedDtype as QuantizedDtype,
    qint8 as qint8,
    qint32 as qint32,
    quint2x4 as quint2x4,
    quint4x2 as quint4x2,
    quint8 as quint8,
)
from zeropoint.numerics.qparams import (
    choose_qparams as choose_qparams,
    choose_qparams_optimized as choose_qparams_optimized,
    saturate_weight_to_fp16 as saturate_weight_to_fp16,
)
from zeropoint.numerics.schemes import (
    QScheme as QScheme,
    per_channel_affine as per_channel_affine,
    per_channel_affine_float_qparams as per_channel_affine_float_qparams,
    per_channel_symmetric as per_channel_symmetric,
    per_tensor_affine as per_tensor_affine,
    per_tensor_symmetric as per_tensor_symmetric,
)
from zeropoint.observers import (
    AffineQuantizedMinMaxObserver as AffineQuantizedMinMaxObserver,
    AffineQuantizedMovingAverageMinMaxObserver as AffineQuantizedMovingAverageMinMaxObserver,
    AffineQuantizedObserverBase as AffineQuantizedObserverBase,
    EntropyObserver as EntropyObserver,
    FixedQParamsObserver as FixedQParamsObserver,
    Granularity as Granularity,
    GroupedWeightObserver as GroupedWeightObserver,
    HistogramObserver as HistogramObserver,
    MappingType as MappingType,
    MinMaxObserver as MinMaxObserver,
    MovingAverageMinMaxObserver as MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver as MovingAveragePerChannelMinMaxObserver,
    MSEObserver as MSEObserver,
    NoopObserver as NoopObserver,
    ObserverBase as ObserverBase,
    PerAxis as PerAxis,
    PerBlock as PerBlock,
    PercentileObserver as PercentileObserver,
    PerChannelMinMaxObserver as PerChannelMinMaxObserver,
    PerGroup as PerGroup,
    PerRow as PerRow,
    PerTensor as PerTensor,
    PerToken as PerToken,
    PlaceholderObserver as PlaceholderObserver,
    RecordingObserver as RecordingObserver,
    ReuseInputObserver as ReuseInputObserver,
    StreamingHistogramObserver as StreamingHistogramObserver,
    TorchAODType as TorchAODType,
    UniformQuantizationObserverBase as UniformQuantizationObserverBase,
    WidenedHistogramObserver as WidenedHistogramObserver,
    ZeroPointDomain as ZeroPointDomain,
    default_affine_fixed_qparams_observer as default_affine_fixed_qparams_observer,
    default_debug_observer as default_debug_observer,
    default_dynamic_quant_observer as default_dynamic_quant_observer,
    default_fixed_qparams_range_0to1_observer as default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer as default_fixed_qparams_range_neg1to1_observer,
    default_float_qparams_observer as default_float_qparams_observer,
    default_float_qparams_observer_4bit as default_float_qparams_observer_4bit,
    default_histogram_observer as default_histogram_observer,
    default_observer as default_observer,
    default_per_channel_weight_observer as default_per_channel_weight_observer,
    default_placeholder_observer as default_placeholder_observer,
    default_reuse_input_observer as default_reuse_input_observer,
    default_symmetric_fixed_qparams_observer as default_symmetric_fixed_qparams_observer,
    default_weight_observer as default_weight_observer,
    get_block_size as get_block_size,
    get_observer_state_dict as get_observer_state_dict,
    load_observer_state_dict as load_observer_state_dict,
    per_channel_weight_observer_range_neg_127_to_127 as per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127 as weight_observer_range_neg_127_to_127,
)
from zeropoint.operators import register_operator as register_operator
from zeropoint.ops.fake_quant import (
    fake_quantize_per_channel_affine as fake_quantize_per_channel_affine,
    fake_quantize_per_tensor_affine as fake_quantize_per_tensor_affine,
)
from zeropoint.ops.fused import fused_moving_avg_obs_fake_quant as fused_moving_avg_obs_fake_quant
from zeropoint.ops.nms import nms as nms
from zeropoint.qconfig import (
    QConfig as QConfig,
    QConfigAny as QConfigAny,
    QConfigDynamic as QConfigDynamic,
    activation_is_memoryless as activation_is_memoryless,
    add_module_to_qconfig_obs_ctr as add_module_to_qconfig_obs_ctr,
    default_activation_only_qconfig as default_activation_only_qconfig,
    default_debug_qconfig as default_debug_qconfig,
    default_dynamic_qat_qconfig as default_dynamic_qat_qconfig,
    default_dynamic_qconfig as default_dynamic_qconfig,
    default_embedding_qat_qconfig as default_embedding_qat_qconfig,
    default_embedding_qat_qconfig_4bit as default_embedding_qat_qconfig_4bit,
    default_per_channel_qconfig as default_per_channel_qconfig,
    default_per_channel_symmetric_qnnpack_qat_qconfig as default_per_channel_symmetric_qnnpack_qat_qconfig,
    default_per_channel_symmetric_qnnpack_qconfig as default_per_channel_symmetric_qnnpack_qconfig,
    default_qat_qconfig as default_qat_qconfig,
    default_qat_qconfig_v2 as default_qat_qconfig_v2,
    default_qconfig as default_qconfig,
    default_quint8_weight_qconfig as default_quint8_weight_qconfig,
    default_reuse_input_qconfig as default_reuse_input_qconfig,
    default_symmetric_qnnpack_qat_qconfig as default_symmetric_qnnpack_qat_qconfig,
    default_symmetric_qnnpack_qconfig as default_symmetric_qnnpack_qconfig,
    default_weight_only_qconfig as default_weight_only_qconfig,
    float16_dynamic_qconfig as float16_dynamic_qconfig,
    float16_static_qconfig as float16_static_qconfig,
    float_qparams_weight_only_qconfig as float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit as float_qparams_weight_only_qconfig_4bit,
    get_default_qat_qconfig as get_default_qat_qconfig,
    get_default_qconfig as get_default_qconfig,
    get_weight_only_qconfig_4bit as get_weight_only_qconfig_4bit,
    is_reuse_input_qconfig as is_reuse_input_qconfig,
    per_channel_dynamic_qconfig as per_channel_dynamic_qconfig,
    per_token_dynamic_qconfig as per_token_dynamic_qconfig,
    qconfig_equals as qconfig_equals,
)
from zeropoint.qconfig_mapping import (
    QConfigMapping as QConfigMapping,
    get_default_qat_qconfig_dict as get_default_qat_qconfig_dict,
    get_default_qat_qconfig_mapping as get_default_qat_qconfig_mapping,
    get_default_qconfig_dict as get_default_qconfig_dict,
    get_default_qconfig_mapping as get_default_qconfig_mapping,
    get_symmetric_qnnpack_qat_qconfig_mapping as get_symmetric_qnnpack_qat_qconfig_mapping,
    get_symmetric_qnnpack_qconfig_mapping as get_symmetric_qnnpack_qconfig_mapping,
)
from zeropoint.qconfig_propagation import propagate_qconfig_ as propagate_qconfig_
from zeropoint.report.html import write_report as write_report
from zeropoint.report.program_page import write_program_page as write_program_page
from zeropoint.runtime import FormatError as FormatError
from zeropoint.tensor import QTensor as QTensor
from zeropoint.tensor.create import (
    dequantize as dequantize,
    empty_affine_quantized as empty_affine_quantized,
    empty_like as empty_like,
    empty_per_channel_affine_quantized as empty_per_channel_affine_quantized,
    make_per_channel_quantized_tensor as make_per_channel_quantized_tensor,
    make_per_tensor_quantized_tensor as make_per_tensor_quantized_tensor,
    quantize_per_channel as quantize_per_channel,
    quantize_per_tensor as quantize_per_tensor,
    quantize_per_tensor_dynamic as quantize_per_tensor_dynamic,
)
from zeropoint.tensor.files import (
    load_qtensors as load_qtensors,
    save_qtensors as save_qtensors,
)
from zeropoint.tensor.script_files import save_script as save_script

__version__: str
