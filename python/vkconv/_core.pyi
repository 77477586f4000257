# The compiled module behind the public functions. All its functions take positional arguments; they check every one
# of them and raise TypeError or ValueError, so the types here are what callers are meant to pass.
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from vkconv._types import (
    Activation,
    AnyArray,
    ArrayT,
    Axes,
    Index,
    NumericPadding,
    Padding,
    PaddingMode,
    Pads,
    Precision,
)
from vkconv._types import Array as NumPyArray

ExplainTuple: TypeAlias = tuple[str, str, str | None, int, str, list[tuple[str, float | None, str, bool]]]

class Error(RuntimeError): ...
class DeviceError(Error): ...

class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def device(self) -> str: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def numpy(self) -> NumPyArray: ...
    def __getitem__(self, key: Index | tuple[Index, ...], /) -> Array: ...
    def __len__(self) -> int: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NumPyArray: ...
    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class DeviceDescription:
    def __init__(self, json: str, /) -> None: ...
    @property
    def json(self) -> str: ...

class PreparedConv:
    def __call__(self, input: ArrayT, out: ArrayT | None = None, addend: AnyArray | None = None) -> ArrayT: ...

class PreparedChain:
    def __call__(self, *arrays: NumPyArray) -> list[NumPyArray]: ...

def prepare(
    weight: AnyArray,
    bias: AnyArray | None,
    stride: Axes,
    padding: Padding,
    kernel_dilation: Axes,
    input_dilation: Axes,
    groups: int,
    flip: bool,
    pads: Pads | None,
    padding_mode: PaddingMode,
    transposed: bool,
    output_padding: Axes,
    activation: Activation | None,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    /,
) -> PreparedConv: ...
def prepare_chain(
    inputs: int, steps: list[tuple[PreparedConv, int, int | None]], results: list[int], /
) -> PreparedChain: ...
def conv(
    rank: int,
    input: ArrayT,
    weight: AnyArray,
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    input_dilation: Axes,
    groups: int,
    flip: bool,
    pads: Pads | None,
    padding_mode: PaddingMode,
    bias: AnyArray | None,
    activation: Activation | None,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: ArrayT | None,
    /,
) -> ArrayT: ...
def depthwise_conv(
    rank: int,
    input: ArrayT,
    weight: AnyArray,
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    pads: Pads | None,
    padding_mode: PaddingMode,
    bias: AnyArray | None,
    activation: Activation | None,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: ArrayT | None,
    /,
) -> ArrayT: ...
def conv_transpose(
    rank: int,
    input: ArrayT,
    weight: AnyArray,
    stride: Axes,
    padding: NumericPadding,
    dilation: Axes,
    output_padding: Axes,
    groups: int,
    pads: Pads | None,
    bias: AnyArray | None,
    activation: Activation | None,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: ArrayT | None,
    /,
) -> ArrayT: ...
def conv_input_grad(
    grad: ArrayT,
    weight: AnyArray,
    input_shape: Sequence[int],
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    input_dilation: Axes,
    groups: int,
    flip: bool,
    pads: Pads | None,
    padding_mode: PaddingMode,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: ArrayT | None,
    /,
) -> ArrayT: ...
def conv_weight_grad(
    grad: ArrayT,
    input: AnyArray,
    weight_shape: Sequence[int],
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    input_dilation: Axes,
    groups: int,
    flip: bool,
    pads: Pads | None,
    padding_mode: PaddingMode,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: ArrayT | None,
    /,
) -> ArrayT: ...
def conv_bias_grad(
    grad: ArrayT,
    precision: Precision | None,
    device: str | None,
    algorithm: str | None,
    workspace_limit: int | None,
    out: ArrayT | None,
    /,
) -> ArrayT: ...
def require_array(value: object, name: str, /) -> np.ndarray: ...
def dense(array: NumPyArray, /) -> NumPyArray: ...
def parsed_axes(value: Axes, name: str, rank: int, minimum: int, /) -> list[int]: ...
def parsed_border(mode: PaddingMode, /) -> tuple[str, float]: ...
def parsed_shape(value: Sequence[int], name: str, length: int, /) -> list[int]: ...
def resolved_pads(
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    pads: Pads | None,
    /,
) -> list[tuple[int, int]]: ...
def array(x: AnyArray, device: str | None, /) -> Array: ...
def synchronize(device: str | None, /) -> None: ...
def described_devices() -> list[str]: ...
def describe_device(name: str, /) -> DeviceDescription: ...
def explain_call(op: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ExplainTuple: ...
def explain_problem(
    problem: str,
    precision: str | None,
    device: str | DeviceDescription | None,
    algorithm: str | None,
    workspace_limit: int | None,
    /,
) -> ExplainTuple: ...
def devices() -> list[tuple[str, str, str, str, dict[str, str]]]: ...
def no_vulkan_reason() -> str: ...
def default_device() -> str: ...
def current_device() -> str: ...
def set_default_device(name: str, /) -> None: ...
def default_precision() -> Precision: ...
def set_default_precision(precision: Precision, /) -> None: ...
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
def memory_info(device: str | None, /) -> tuple[int, int, int, int, int]: ...
def reset_memory_peak(device: str | None, /) -> None: ...
def trim_memory(device: str | None, /) -> None: ...
def device_identity(name: str, /) -> str: ...
def prefer(device: str, choices: dict[str, str], /) -> None: ...
def clear_preferences() -> None: ...
def noted_problems(go_on: bool, /) -> list[tuple[str, str, bool]]: ...
def xla_function() -> Any: ...
def problem_of(call: Callable[[], Any], /) -> str: ...
def build_info() -> dict[str, str | bool]: ...
