"""Convolutions, forward.

Every function takes NumPy arrays or `vkconv.Array`s, with the channels last, and returns a new one, or ``out``:

    input   (N, spatial..., C)
    weight  (O, kernel..., C / groups)
    output  (N, spatial..., O)

Sums run in float32 (float64 for float64) and are rounded once. What follows means the same everywhere.

Parameters
----------
padding : int, sequence, pair of sequences or str
    An integer, one for each spatial axis, a pair ``(lo..., hi...)`` of sequences as in MLX (``((0, 1), (2, 3))`` pads
    the first axis by 0 and 2, the second by 1 and 3), or a word:

    - 'valid': no padding.
    - 'same': output extent ceil(input / stride); when the total is odd, the extra element is at the high end.
    - 'same_lower': the same with the extra element at the low end.
    - 'full': kernel_dilation * (kernel - 1) on both sides, every position with any overlap.
    - 'causal': along the first spatial axis all of kernel_dilation * (kernel - 1) at the low end, so that no output
      depends on later input; 'same' along the others.

    Negative numbers crop the (dilated) signal. The words count from the dilated signal where ``input_dilation`` is not
    1.
pads : sequence of (lo, hi)
    Padding as one pair for each spatial axis, instead of ``padding``.
padding_mode : str or tuple
    What lies outside of the input: 'zeros', 'reflect' (d c b | a b c d | c b a), 'symmetric' (c b a | a b c d | d c b),
    'edge' (a a a | a b c d | d d d), 'circular' (b c d | a b c d | a b c) or ('constant', value). Outputs inside are
    computed from the input itself, those at the border from copies of what they read. Not for dilated inputs and
    transposed convolutions.
bias : ndarray of shape (O,), optional
    Added to the sums; of the input's dtype or float32.
activation : str or tuple, optional
    'relu', 'relu6', 'leaky_relu', 'silu', 'gelu', 'sigmoid', 'tanh', 'hardswish', or with parameters
    ('leaky_relu', slope) and ('clip', lo, hi); 'identity' is none, as None is. Applied after the bias, before the
    rounding.
precision : {'high', 'highest', 'fast'}, optional
    'highest': direct sums only; in float32 an error is at most 8 u S, with u = 2^-24 and S the sum of |input||weight|
    behind the output. 'high' (by default): also algorithms within 64 u S, S being the largest of the outputs that are
    computed together (a tile of up to 6 along an axis): Winograd's F2 to F5, F6 along one axis, float32 split into
    halves on tensor cores; in 16 bits, F2 whose products are of 16-bit numbers (tensor cores), within 16 u S, u that
    of the dtype; and Fourier transforms in double precision. 'fast': also F6 along two axes, F4 in 16 bits and
    multipliers of reduced precision. Infinities and NaN go where the sums take them in all three.
device : str, optional
    'cpu', 'vulkan' (the best one), 'vulkan:0', ...; the default is `default_device()`.
algorithm : str, optional
    One of `algorithms()`, instead of the planner's choice; of the inner part where ``padding_mode`` is not 'zeros'.
workspace_limit : int, optional
    Bytes of scratch memory an algorithm may use. The default is VKCONV_WORKSPACE_LIMIT or 256 MiB.
out : ndarray, optional
    Written and returned. It must have the output's shape and dtype and share no memory with the operands.

Raises
------
TypeError
    For an argument of the wrong kind or dtype.
ValueError
    For one whose value or shape has no meaning: a kernel that reaches past the padded input, channel counts that
    disagree. Each message names the argument.
vkconv.DeviceError
    For a device that is missing or lost.
MemoryError
    When memory runs out.
"""

from __future__ import annotations

from vkconv import _core
from vkconv._types import Activation, AnyArray, ArrayT, Axes, Padding, PaddingMode, Pads, Precision


def conv_general(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: Padding = 0,
    kernel_dilation: Axes = 1,
    input_dilation: Axes = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Convolve along one, two or three spatial axes, with every parameter there is.

    Parameters
    ----------
    input : ndarray of shape (N, spatial..., C)
    weight : ndarray of shape (O, kernel..., C / groups)
        Of the input's dtype.
    stride, kernel_dilation, input_dilation : int or sequence with one int for each spatial axis
        ``input_dilation`` puts that many steps between neighbouring input elements (zeros in between).
    groups : int
        Channels are convolved in this many independent groups.
    flip : bool
        Mirror the kernel along every spatial axis: convolution in the mathematical sense, not correlation.
    padding, pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, spatial..., O)
        Spatial extent ``((input - 1) * input_dilation + lo + hi - kernel_dilation * (kernel - 1)) // stride + 1``.

    Examples
    --------
    >>> x = np.ones((1, 8, 8, 3), np.float32)
    >>> w = np.ones((4, 3, 3, 3), np.float32)
    >>> vkconv.conv_general(x, w, stride=2, padding='same').shape
    (1, 4, 4, 4)
    """
    return _core.conv(
        0, input, weight, stride, padding, kernel_dilation, input_dilation, groups, flip,
        pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def conv1d(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Convolve along one spatial axis.

    Parameters
    ----------
    input : ndarray of shape (N, W, C)
    weight : ndarray of shape (O, KW, C / groups)
    stride, dilation : int or sequence of 1 int
    groups : int
    padding, pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, W, O)

    Examples
    --------
    >>> x, w = np.ones((1, 8, 3), np.float32), np.ones((4, 3, 3), np.float32)
    >>> vkconv.conv1d(x, w, padding=1).shape
    (1, 8, 4)
    """
    return _core.conv(
        1, input, weight, stride, padding, dilation, 1, groups, False,
        pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def conv2d(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Convolve along two spatial axes.

    Parameters
    ----------
    input : ndarray of shape (N, H, W, C)
    weight : ndarray of shape (O, KH, KW, C / groups)
    stride, dilation : int or sequence of 2 ints
    groups : int
    padding, pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, H, W, O)

    Examples
    --------
    >>> x, w = np.ones((1, 8, 8, 3), np.float32), np.ones((4, 3, 3, 3), np.float32)
    >>> vkconv.conv2d(x, w, padding=1).shape
    (1, 8, 8, 4)
    """
    return _core.conv(
        2, input, weight, stride, padding, dilation, 1, groups, False,
        pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def conv3d(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Convolve along three spatial axes.

    Parameters
    ----------
    input : ndarray of shape (N, D, H, W, C)
    weight : ndarray of shape (O, KD, KH, KW, C / groups)
    stride, dilation : int or sequence of 3 ints
    groups : int
    padding, pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, D, H, W, O)

    Examples
    --------
    >>> x, w = np.ones((1, 4, 8, 8, 3), np.float32), np.ones((4, 3, 3, 3, 3), np.float32)
    >>> vkconv.conv3d(x, w, padding=1).shape
    (1, 4, 8, 8, 4)
    """
    return _core.conv(
        3, input, weight, stride, padding, dilation, 1, groups, False,
        pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip
