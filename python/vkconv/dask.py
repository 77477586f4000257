"""Convolutions of arrays larger than memory, on any of Dask's schedulers.

    import vkconv.dask

    y = vkconv.dask.conv3d(volume, weight, padding=1)  # a dask.array; nothing is computed yet

Each chunk of the output reads exactly the part of the input that its windows see, whatever stride, dilation and padding
are, so that the result is that of one large convolution. Channels are never split. A chunk of the input stays until the
outputs that see it are computed: memory is about three layers of chunks along the first spatial axis, so thin chunks
along that axis keep it small.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise, product
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from vkconv import _core
from vkconv._axes import check_ranks, dilated
from vkconv._bilinear import Geometry, each, named
from vkconv._ops import conv_general as _conv
from vkconv._types import Activation, Array, Axes, NumericPadding, Padding

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_general",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]

_DOC = "`vkconv.{}` of a dask.array, with `chunks` as in `conv_general`."


def conv_general(
    input: Any,
    weight: Array,
    stride: Axes = 1,
    padding: Padding = 0,
    kernel_dilation: Axes = 1,
    input_dilation: Axes = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    bias: Array | None = None,
    activation: Activation | None = None,
    chunks: Axes | None = None,
) -> Any:
    """`vkconv.conv_general` of a dask.array.

    Parameters
    ----------
    input : dask.array.Array of shape (N, spatial..., C)
    weight, bias : ndarray
        Sent to every task.
    chunks : int or sequence of int, optional
        Extents of the output's chunks along the spatial axes. The default follows the input's chunks.

    Returns
    -------
    dask.array.Array of shape (N, spatial..., O)
    """
    check_ranks(_lazy(input).ndim - 2, weight=_core.require_array(weight, "weight"))
    extents = input.shape[1:-1], weight.shape[1:-1]
    geometry = Geometry.of(*extents, stride, padding, kernel_dilation, input_dilation, groups, flip)
    return _planned(input, weight, geometry, bias, activation, chunks)


def _lazy(input: Any) -> Any:
    if not isinstance(input, da.Array):
        raise TypeError(f"input must be a dask.array, got {type(input).__name__}: dask.array.from_array makes one")
    if np.isnan(input.shape).any():
        raise ValueError(f"input has the shape {input.shape}: compute_chunk_sizes() tells it")
    return input


def _planned(input: Any, weight: Array, g: Geometry, bias: Array | None, activation: Any, chunks: Axes | None) -> Any:
    """One layer with one task for each chunk of the output, whatever its window sees: layers cost more than tasks."""
    rank = input.ndim - 2
    input = input.rechunk({input.ndim - 1: -1})
    extents = (None,) * rank if chunks is None else each(chunks, rank, "chunks", 1)
    # Both may change before anything is computed.
    weight, bias = weight.copy(), None if bias is None else _core.require_array(bias, "bias").copy()
    run = partial(_run, weight=weight, geometry=g, bias=bias, activation=activation)
    _check(input, weight, g, run)
    outputs, dtype = g.outputs(input.shape[1:-1], weight.shape[1:-1]), input.dtype.newbyteorder("=")
    if 0 in outputs:
        shape = (input.shape[0], *outputs, len(weight))
        return da.zeros(shape, dtype=dtype, chunks=(input.chunks[0], *outputs, -1))
    axes = [_Axis(input, weight, g, a, outputs[a]).tiles(extents[a]) for a in range(rank)]
    name = f"vkconv-{tokenize(input.name, weight, g, bias, activation, extents)}"
    tasks = {}
    for place in np.ndindex(*map(len, axes)):
        tiles = [axis[i] for axis, i in zip(axes, place, strict=True)]
        call = partial(_block, parts=[t.parts for t in tiles], pads=[t.pads for t in tiles], run=run)
        seen = list(product(*(t.chunks for t in tiles)))
        for n in range(len(input.chunks[0])):
            key = (name, n, *place, 0)
            tasks[key] = (call, [(input.name, n, *where, 0) for where in seen])
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[input])
    made = (input.chunks[0], *(tuple(t.outputs for t in axis) for axis in axes), (len(weight),))
    return da.Array(graph, name, chunks=made, dtype=dtype)


class _Tile(NamedTuple):
    """A chunk of outputs along one axis, and what it sees: chunks of the input, a part of each, and pads around."""

    outputs: int
    chunks: range
    parts: list[slice]
    pads: tuple[int, int]


class _Axis:
    """One spatial axis: which input an interval of outputs sees."""

    def __init__(self, input: Any, weight: Array, g: Geometry, a: int, outputs: int) -> None:
        self.extent, self.input_chunks = input.shape[1 + a], input.chunks[1 + a]
        self.stride, self.step, self.dilation = g.stride[a], g.input_dilation[a], g.kernel_dilation[a]
        self.reach = self.dilation * (weight.shape[1 + a] - 1)
        self.lo = g.pads[a][0]
        self.outputs = outputs
        self.starts = [0, *accumulate(self.input_chunks[:-1])]

    def tiles(self, chunk: int | None) -> list[_Tile]:
        size = max(1, max(self.input_chunks) * self.step // self.stride) if chunk is None else chunk
        starts = range(0, self.outputs, size)
        return [self._tile(start, min(start + size, self.outputs)) for start in starts]

    def _tile(self, start: int, stop: int) -> _Tile:
        first = start * self.stride - self.lo  # in steps of the dilated input
        last = (stop - 1) * self.stride - self.lo + self.reach
        begin = min(max(-(-first // self.step), 0), max(self.extent - 1, 0))
        end = min(max(last // self.step, begin) + 1, self.extent)
        behind = begin * self.step + dilated(end - begin, self.step)
        chunks = self._chunks_of(begin, end)
        parts = [slice(max(begin - self.starts[i], 0), min(end - self.starts[i], self.input_chunks[i])) for i in chunks]
        return _Tile(stop - start, chunks, parts, (begin * self.step - first, last + 1 - behind))

    def _chunks_of(self, begin: int, end: int) -> range:
        """Those that hold the elements begin .. end - 1; one of them where there are none."""
        first = bisect_right(self.starts, begin) - 1
        return range(first, max(bisect_left(self.starts, end), first + 1))


def _check(input: Any, weight: Array, g: Geometry, run: Callable[..., Array]) -> None:
    """Raise what a block would raise, for dtypes and channels that do not fit each other."""
    pads = [(dilated(k, d) - 1, 0) for k, d in zip(weight.shape[1:-1], g.kernel_dilation, strict=True)]
    pixel = np.empty((1,) * (input.ndim - 1) + input.shape[-1:], input.dtype)
    _core.problem_of(lambda: run(pixel, pads=pads))


def _block(chunks: list[Array], *, parts: list[list[slice]], pads: Any, run: Callable[..., Array]) -> Array:
    """The outputs that see these `parts` along each axis of the chunks, which are in the order of their places."""
    chunks = [_core.require_array(chunk, "input") for chunk in chunks]
    windows = [(slice(None), *part) for part in product(*parts)]
    if len(chunks) == 1:
        return run(chunks[0][windows[0]], pads=pads)
    ends = [list(accumulate(part.stop - part.start for part in along)) for along in parts]
    x = np.empty((len(chunks[0]), *(e[-1] for e in ends), chunks[0].shape[-1]), chunks[0].dtype)
    places = product(*([slice(lo, hi) for lo, hi in pairwise([0, *e])] for e in ends))
    for chunk, window, place in zip(chunks, windows, places, strict=True):
        target = (slice(None), *place)
        x[target] = chunk[window]
    return run(x, pads=pads)


def _run(x: Array, *, pads: Any, weight: Array, geometry: Geometry, bias: Array | None, activation: Any) -> Array:
    options = vars(geometry) | {"pads": pads}
    return _conv(x, weight, **options, bias=bias, activation=activation, device="cpu")


def _make_conv(rank: int) -> Callable[..., Any]:
    def conv(
        input: Any,
        weight: Array,
        stride: Axes = 1,
        padding: Padding = 0,
        dilation: Axes = 1,
        groups: int = 1,
        *,
        bias: Array | None = None,
        activation: Activation | None = None,
        chunks: Axes | None = None,
    ) -> Any:
        check_ranks(rank, input=_lazy(input), weight=_core.require_array(weight, "weight"))
        geometry = Geometry.of(input.shape[1:-1], weight.shape[1:-1], stride, padding, dilation, 1, groups)
        return _planned(input, weight, geometry, bias, activation, chunks)

    return named(conv, f"conv{rank}d", _DOC)


def _make_transpose(rank: int) -> Callable[..., Any]:
    def conv_transpose(
        input: Any,
        weight: Array,
        stride: Axes = 1,
        padding: NumericPadding = 0,
        dilation: Axes = 1,
        output_padding: Axes = 0,
        groups: int = 1,
        *,
        bias: Array | None = None,
        activation: Activation | None = None,
        chunks: Axes | None = None,
    ) -> Any:
        check_ranks(rank, input=_lazy(input), weight=_core.require_array(weight, "weight"))
        kernel = weight.shape[1:-1]
        geometry = Geometry.transposed(input.shape[1:-1], kernel, stride, padding, dilation, output_padding, groups)
        return _planned(input, weight, geometry, bias, activation, chunks)

    return named(conv_transpose, f"conv_transpose{rank}d", _DOC)


conv1d, conv2d, conv3d = (_make_conv(rank) for rank in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (_make_transpose(rank) for rank in (1, 2, 3))
