"""Convolutions of every kind for NumPy arrays, on the CPU and through Vulkan.

Arrays have the channels last: input ``(N, spatial..., C)``, weight ``(O, kernel..., C / groups)``, output
``(N, spatial..., O)``, with one, two or three spatial axes, in float32, float16, bfloat16 (of ml_dtypes) or float64.
`array` puts an array on a device, where operations leave their results.
"""

from vkconv import _ops
from vkconv._arrays import array, synchronize
from vkconv._config import (
    Device,
    MemoryInfo,
    PlanCacheInfo,
    algorithms,
    build_info,
    default_device,
    default_precision,
    device,
    devices,
    memory_info,
    no_vulkan_reason,
    num_threads,
    plan_cache_clear,
    plan_cache_info,
    reset_memory_peak,
    set_default_device,
    set_default_precision,
    set_num_threads,
    set_plan_cache_capacity,
    trim_memory,
    version,
)
from vkconv._core import Array, DeviceDescription, DeviceError, Error, PreparedConv
from vkconv._depthwise import depthwise_conv, depthwise_conv1d, depthwise_conv2d, depthwise_conv3d
from vkconv._descriptions import describe_device, described_devices
from vkconv._dlpack import from_dlpack
from vkconv._explain import Candidate, Explanation, explain
from vkconv._gradients import conv_bias_grad, conv_input_grad, conv_weight_grad
from vkconv._ops import conv1d, conv2d, conv3d, conv_general
from vkconv._prepare import prepare, prepare_transpose
from vkconv._streaming import causal_conv1d, causal_conv3d
from vkconv._transpose import conv_transpose, conv_transpose1d, conv_transpose2d, conv_transpose3d
from vkconv._tuning import Choice, Tuning, clear_tuning, load_environment, load_tuning, tune
from vkconv._unfold import fold, unfold

__version__ = version

__doc__ = f"{__doc__}\n{_ops.__doc__}"

load_environment()
del load_environment

__all__ = [
    "Array",
    "Candidate",
    "Choice",
    "Device",
    "DeviceDescription",
    "DeviceError",
    "Error",
    "Explanation",
    "MemoryInfo",
    "PlanCacheInfo",
    "PreparedConv",
    "Tuning",
    "__version__",
    "algorithms",
    "array",
    "build_info",
    "causal_conv1d",
    "causal_conv3d",
    "clear_tuning",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_bias_grad",
    "conv_general",
    "conv_input_grad",
    "conv_transpose",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_weight_grad",
    "default_device",
    "default_precision",
    "depthwise_conv",
    "depthwise_conv1d",
    "depthwise_conv2d",
    "depthwise_conv3d",
    "describe_device",
    "described_devices",
    "device",
    "devices",
    "explain",
    "fold",
    "from_dlpack",
    "load_tuning",
    "memory_info",
    "no_vulkan_reason",
    "num_threads",
    "plan_cache_clear",
    "plan_cache_info",
    "prepare",
    "prepare_transpose",
    "reset_memory_peak",
    "set_default_device",
    "set_default_precision",
    "set_num_threads",
    "set_plan_cache_capacity",
    "synchronize",
    "trim_memory",
    "tune",
    "unfold",
    "version",
]
