"""Causal convolutions that continue from call to call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vkconv import _core
from vkconv._axes import check_ranks
from vkconv._ops import conv_general
from vkconv._types import Activation, Array, Axes, Padding, Pads, Precision


def causal_conv1d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    state: Array | None = None,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    *,
    activation: Activation | None = None,
    first: str = "zeros",
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
) -> tuple[Array, Array]:
    """Convolve a stream chunk by chunk: no output depends on later input, and ``state`` carries what came before.

    Parameters
    ----------
    input : ndarray of shape (N, W, C)
        The next chunk, W a multiple of ``stride``.
    weight : ndarray of shape (O, KW, C / groups)
    bias : ndarray of shape (O,), optional
    state : ndarray of shape (N, dilation * (KW - 1), C), optional
        What the call for the chunk before returned; None at the beginning of the stream.
    stride, dilation, groups : int
    activation, precision, device, algorithm, workspace_limit
        As in every operation, see `help(vkconv)`.
    first : {'zeros', 'edge'}
        What lies before the stream: zeros, or its first element repeated.

    Returns
    -------
    output : ndarray of shape (N, W / stride, O)
    state : ndarray
        For the next call.

    Examples
    --------
    >>> x, w = np.ones((1, 8, 3), np.float32), np.ones((4, 3, 3), np.float32)
    >>> a, state = vkconv.causal_conv1d(x[:, :5], w)
    >>> b, state = vkconv.causal_conv1d(x[:, 5:], w, state=state)
    >>> a.shape, b.shape, state.shape
    ((1, 5, 4), (1, 3, 4), (1, 2, 3))
    """
    options = {"precision": precision, "device": device, "algorithm": algorithm, "workspace_limit": workspace_limit}
    return _stream(
        1, input, weight, state, stride, 0, dilation, first, bias=bias, activation=activation, groups=groups, **options
    )


def causal_conv3d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    state: Array | None = None,
    stride: Axes = 1,
    padding: Padding = "same",
    dilation: Axes = 1,
    groups: int = 1,
    *,
    activation: Activation | None = None,
    first: str = "zeros",
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
) -> tuple[Array, Array]:
    """Convolve a video chunk by chunk, causal in time: the layer of video autoencoders, with its cache of frames.

    Parameters
    ----------
    input : ndarray of shape (N, D, H, W, C)
        The next D frames, D a multiple of the stride in time.
    weight : ndarray of shape (O, KD, KH, KW, C / groups)
    bias : ndarray of shape (O,), optional
    state : ndarray of shape (N, dilation * (KD - 1), H, W, C), optional
        What the call for the frames before returned; None at the beginning of the video.
    stride, dilation : int or sequence of 3 ints
    padding : int, sequence of 2 ints, pair of sequences or str
        Of H and W, in the forms of `conv2d`.
    groups : int
    activation, precision, device, algorithm, workspace_limit
        As in every operation, see `help(vkconv)`.
    first : {'zeros', 'edge'}
        What lies before the video: zeros, or its first frame repeated.

    Returns
    -------
    output : ndarray of shape (N, D / stride, OH, OW, O)
    state : ndarray
        For the next call.

    Examples
    --------
    >>> x, w = np.ones((1, 4, 8, 8, 3), np.float32), np.ones((4, 3, 3, 3, 3), np.float32)
    >>> y, state = vkconv.causal_conv3d(x, w, first='edge')
    >>> y.shape, state.shape
    ((1, 4, 8, 8, 4), (1, 2, 8, 8, 3))
    """
    options = {"precision": precision, "device": device, "algorithm": algorithm, "workspace_limit": workspace_limit}
    return _stream(
        3, input, weight, state, stride, padding, dilation, first,
        bias=bias, activation=activation, groups=groups, **options,
    )  # fmt: skip


def _stream(
    rank: int, input: Array, weight: Array, state: Array | None, stride: Axes, padding: Padding, dilation: Axes,
    first: str, **options: Any,
) -> tuple[Array, Array]:  # fmt: skip
    if not isinstance(first, str):
        raise TypeError(f"first must be 'zeros' or 'edge', got {type(first).__name__}")
    if first not in ("zeros", "edge"):
        raise ValueError(f"first is {first!r}, wanted 'zeros' or 'edge'")
    for name, array in (("input", input), ("weight", weight)):
        _core.require_array(array, name)
    check_ranks(rank, input=input, weight=weight)
    steps, dilations = _core.parsed_axes(stride, "stride", rank, 1), _core.parsed_axes(dilation, "dilation", rank, 1)
    step, length = steps[0], input.shape[1]
    if length == 0 or length % step != 0:
        raise ValueError(f"input has {length} elements along axis 1, wanted a positive multiple of the stride {step}")
    ((before, _),) = _core.resolved_pads([length], weight.shape[1:2], steps[:1], "causal", dilations[:1], None)
    shape, dtype = (input.shape[0], before, *input.shape[2:]), input.dtype.newbyteorder("=")
    if state is None:
        state = np.zeros(shape, dtype) if first == "zeros" else np.repeat(input[:, :1], before, axis=1)
    _core.require_array(state, "state")
    if state.dtype.newbyteorder("=") != dtype:
        raise TypeError(f"state has dtype {state.dtype}, input has {dtype}: they must agree")
    if state.shape != shape:
        raise ValueError(f"state has shape {state.shape}, wanted {shape}")
    pads = [(0, 0)]
    if rank > 1:
        pads += _core.resolved_pads(input.shape[2:-1], weight.shape[2:-1], steps[1:], padding, dilations[1:], None)
    return _run(input, weight, state, steps, dilations, pads, options), _tail(state, input)


def _tail(state: Array, input: Array) -> Array:
    """The last elements of the state followed by the input, as many as the state has."""
    before, length = state.shape[1], input.shape[1]
    tail: Array = input[:, max(length - before, 0) :]
    return np.concatenate([state[:, length:], tail], axis=1)


def _run(
    input: Array, weight: Array, state: Array, steps: Sequence[int], dilations: Sequence[int], pads: Pads,
    options: dict[str, Any],
) -> Array:  # fmt: skip
    """Only outputs that reach into the state are computed from a copy, of the state and the input they see."""
    before, length, step = state.shape[1], input.shape[1], steps[0]
    outputs = length // step
    head = min(-(-before // step), outputs)
    options = {"stride": steps, "kernel_dilation": dilations, "pads": pads, **options}
    if head == 0:
        return conv_general(input, weight, **options)
    seen = (head - 1) * step + 1
    begin: Array = conv_general(np.concatenate([state, input[:, :seen]], axis=1), weight, **options)
    if head == outputs:
        return begin
    rest = input[:, head * step - before :]
    if begin is None:  # `explain` asks
        return conv_general(rest, weight, **options)
    output = np.empty((len(begin), outputs, *begin.shape[2:]), begin.dtype)
    output[:, :head] = begin
    conv_general(rest, weight, **options, out=output[:, head:])
    return output
