# The compiled module behind the public functions. All its functions take positional arguments; they check every one
# of them and raise TypeError or ValueError, so the types here are what callers are meant to pass.
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from vkconv._types import Activation, Array, Axes, NumericPadding, Padding, Pads, Precision

ExplainTuple: TypeAlias = tuple[str, str, str | None, int, str, list[tuple[str, float | None, str]]]

class Error(RuntimeError): ...
class DeviceError(Error): ...

class PreparedConv:
    def __init__(
        self,
        weight: Array,
        bias: Array | None,
        stride: Axes,
        padding: Padding,
        kernel_dilation: Axes,
        input_dilation: Axes,
        groups: int,
        flip: bool,
        pads: Pads | None,
        transposed: bool,
        output_padding: Axes,
        activation: Activation | None,
        precision: Precision | None,
        device: str | None,
        algorithm: str | None,
        workspace_limit: int | None,
        /,
    ) -> None: ...
    def __call__(self, input: Array, out: Array | None = None, addend: Array | None = None) -> Array: ...

def conv(
    rank: int,
    input: Array,
    weight: Array,
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    input_dilation: Axes,
    groups: int,
    flip: bool,
    pads: Pads | None,
    bias: Array | None,
    activation: Activation | None,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: Array | None,
    /,
) -> Array: ...
def depthwise_conv(
    rank: int,
    input: Array,
    weight: Array,
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    pads: Pads | None,
    bias: Array | None,
    activation: Activation | None,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: Array | None,
    /,
) -> Array: ...
def conv_transpose(
    rank: int,
    input: Array,
    weight: Array,
    stride: Axes,
    padding: NumericPadding,
    dilation: Axes,
    output_padding: Axes,
    groups: int,
    pads: Pads | None,
    bias: Array | None,
    activation: Activation | None,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: Array | None,
    /,
) -> Array: ...
def conv_input_grad(
    grad: Array,
    weight: Array,
    input_shape: Sequence[int],
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    input_dilation: Axes,
    groups: int,
    flip: bool,
    pads: Pads | None,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: Array | None,
    /,
) -> Array: ...
def conv_weight_grad(
    grad: Array,
    input: Array,
    weight_shape: Sequence[int],
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    input_dilation: Axes,
    groups: int,
    flip: bool,
    pads: Pads | None,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: Array | None,
    /,
) -> Array: ...
def conv_bias_grad(
    grad: Array,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: Array | None,
    /,
) -> Array: ...
def resolved_pads(
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    pads: Pads | None,
    /,
) -> list[tuple[int, int]]: ...
def explain_call(op: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ExplainTuple: ...
def explain_problem(
    problem: str,
    precision: str | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    /,
) -> ExplainTuple: ...
def devices() -> list[tuple[str, str, str, str, dict[str, str]]]: ...
def no_vulkan_reason() -> str: ...
def default_device() -> str: ...
def current_device() -> str: ...
def set_default_device(name: str, /) -> None: ...
def push_device(name: str, /) -> None: ...
def pop_device() -> None: ...
def take_validation_messages() -> list[str]: ...
def algorithms(device: str | None, /) -> list[str]: ...
def plan_cache_info(device: str | None, /) -> tuple[int, int, int, int]: ...
def plan_cache_clear() -> None: ...
def set_plan_cache_capacity(capacity: int, /) -> None: ...
def set_num_threads(n: int, /) -> None: ...
def num_threads() -> int: ...
def share_threads_of(library: str, /) -> bool: ...
def memory_info(device: str, /) -> tuple[int, int, int]: ...
def reset_memory_peak(device: str, /) -> None: ...
def trim_memory(device: str, /) -> None: ...
def build_info() -> dict[str, str | bool]: ...
