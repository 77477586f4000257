"""How a case of the fuzzer reaches vkconv: the public functions that can express its problem."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

import checks
import oracle
import vkconv
from fuzz_problems import border_fits, fits
from problem_text import Problem, dtype_of
from views import Surrounded, destination, surroundings_intact

if TYPE_CHECKING:
    from fuzz_cases import Case

Array = np.ndarray
ALONE = ("sizes", "stream", "windows")  # several calls, on NumPy arrays
PLANNED = ("stream", "windows")  # by algorithms that cannot be forced
WITHOUT_BORDER = ("transpose", "prepared_transpose", "stream")


def entries_of(p: Problem) -> list[str]:
    """The public functions that can express the problem."""
    found = ["general", "lo_hi"]
    symmetric = all(lo == hi for lo, hi in p.pads)
    ones = (1,) * p.rank
    if p.input_dilation == ones and p.groups == 1 and p.op != "wgrad" and border_fits(p):
        found.append("windows")
    if p.op != "fwd":
        return found
    found += ["prepared", "addend", "shared", "sizes"]
    if p.input_dilation == ones and not p.flip:
        if p.rank != 2 and p.space[0] > 0:
            found.append("stream")
        if symmetric:
            found.append("rank")
        if symmetric and p.groups == p.channels > 0:
            found.append("depthwise")
    if (
        p.flip
        and p.stride == ones
        and all((k - 1) * d >= lo and hi >= lo for k, d, (lo, hi) in zip(p.kernel, p.dilation, p.pads, strict=True))
    ):
        found += ["transpose", "transpose", "prepared_transpose"]
    return found


def streamed(p: Problem) -> Problem:
    """Causal along the first axis, in steps of its stride; by direct sums, as chunks may be planned otherwise."""
    before, step = (p.kernel[0] - 1) * p.dilation[0], p.stride[0]
    whole = -(-p.space[0] // step) * step
    return p.replace(pads=((before, 0), *p.pads[1:]), space=(whole, *p.space[1:]), precision="highest")


def explain(case: Case, a: checks.Operands, options: dict[str, Any]) -> vkconv.Explanation:
    """How the call will be computed: with an addend, which only a prepared convolution has, it is another problem."""
    if a.addend is None:
        return checks.explain(case.problem, a, **options)
    return vkconv.explain(prepare(case, a, options), a.input, addend=a.addend)


def call(case: Case, a: checks.Operands, options: dict[str, Any]) -> Array:
    """The result as a NumPy array. `options` are those that every operation has."""
    return read(begin(case, a, options))


def begin(case: Case, a: checks.Operands, options: dict[str, Any]) -> Any:
    """The result where the call leaves it."""
    if case.place != "host":
        a = moved(case, a, options["device"])
    made = ENTRIES.get(case.entry, general)
    result = filled(made, case, a, options) if case.into else made(case, a, options)
    return passed_on(result) if case.place == "chain" else result


def read(result: Any) -> Array:
    return result if isinstance(result, np.ndarray) else result.numpy()


def passed_on(result: Any, times: int = 3) -> Any:
    """The same numbers, each time multiplied by one into memory that an earlier result may have left."""
    if 0 in result.shape:
        return result
    one = np.ones((result.shape[-1], *(1 for _ in result.shape[1:])), result.dtype)
    for _ in range(times):
        result = vkconv.depthwise_conv(result, one)
    return result


def filled(made: Callable[..., Any], case: Case, a: checks.Operands, options: dict[str, Any]) -> Any:
    """The result in an array that the call is given, outside of which nothing is written."""
    shape, dtype, rng = case.problem.result_shape, dtype_of(case.problem.dtype), np.random.default_rng(case.seed)
    if case.place == "host":
        out = destination(shape, dtype, rng)
        intact = functools.partial(surroundings_intact, out)
    else:
        there = Surrounded(np.full(shape, 77, dtype), options["device"], rng)
        out, intact = there.view, there.intact
    assert made(case, a, options | {"out": out}) is out, "out= is not what came back"
    result = np.array(out)
    assert intact(), "memory outside of out= was written"
    return result if case.place == "host" else vkconv.array(result, options["device"])


def moved(case: Case, a: checks.Operands, device: str) -> checks.Operands:
    """With Arrays that are views of larger ones on the device. A bias of less precision than the sums stays."""
    rng = np.random.default_rng(case.seed)
    names = ["input", "grad"] + ["weight", "addend"] * (case.place != "mixed")
    if case.place != "mixed" and not case.narrow:
        names.append("bias")
    arrays = {name: getattr(a, name) for name in names}
    there = {name: Surrounded(value, device, rng).view for name, value in arrays.items() if value is not None}
    return dataclasses.replace(a, **there)


def general(case: Case, a: checks.Operands, options: dict[str, Any]) -> Any:
    p = case.problem
    words = checks.keywords(p, a, **options)
    if case.entry == "lo_hi":
        words["padding"] = tuple(zip(*words.pop("pads"), strict=True))
    return getattr(vkconv, checks.OPERATIONS[p.op])(*checks.positional(p, a), **words)


def epilogue(case: Case, a: checks.Operands) -> dict[str, Any]:
    return {"bias": a.bias, "activation": checks.activation(case.problem)}


def rank(case: Case, a: checks.Operands, options: dict[str, Any]) -> Any:
    p = case.problem
    words = epilogue(case, a) | checks.border(a) | {"precision": p.precision} | options
    lows = tuple(lo for lo, _ in p.pads)
    if case.entry == "depthwise":
        return vkconv.depthwise_conv(a.input, a.weight, p.stride, lows, p.dilation, **words)
    return getattr(vkconv, f"conv{p.rank}d")(a.input, a.weight, p.stride, lows, p.dilation, p.groups, **words)


def transpose_geometry(p: Problem) -> dict[str, Any]:
    return {
        "stride": p.input_dilation,
        "dilation": p.dilation,
        "groups": p.groups,
        "padding": [(k - 1) * d - lo for k, d, (lo, _) in zip(p.kernel, p.dilation, p.pads, strict=True)],
        "output_padding": [hi - lo for lo, hi in p.pads],
    }


def transpose(case: Case, a: checks.Operands, options: dict[str, Any]) -> Any:
    p = case.problem
    words = transpose_geometry(p) | epilogue(case, a) | {"precision": p.precision} | options
    if case.entry == "prepared_transpose":
        out = words.pop("out", None)
        return vkconv.prepare_transpose(a.weight, **words)(a.input, out)
    function = vkconv.conv_transpose if case.seed % 2 else getattr(vkconv, f"conv_transpose{p.rank}d")
    return function(a.input, a.weight, **words)


def prepare(case: Case, a: checks.Operands, options: dict[str, Any]) -> vkconv.PreparedConv:
    return vkconv.prepare(
        a.weight, **checks.arguments(case.problem), **checks.border(a), **epilogue(case, a), **options
    )


def prepared(case: Case, a: checks.Operands, options: dict[str, Any]) -> Any:
    out = options.get("out")
    conv = prepare(case, a, {name: value for name, value in options.items() if name != "out"})
    if case.entry == "addend":
        return conv(a.input, out, a.addend)
    if case.entry == "sizes":
        call_with_other_sizes(case, a, conv)
    if case.entry == "shared":
        call_at_once(conv, a)
    conv(a.input)
    return conv(a.input, out)


@functools.cache
def threads() -> ThreadPoolExecutor:
    """The same for all calls: of every thread that has submitted work, NVIDIA's driver keeps 280 bytes."""
    return ThreadPoolExecutor(3)


def call_at_once(conv: vkconv.PreparedConv, a: checks.Operands) -> None:
    results = [read(y) for y in threads().map(conv, [a.input] * 4)]
    assert all(checks.same(y, results[0]).all() for y in results), "other bits in another thread"


def call_with_other_sizes(case: Case, a: checks.Operands, conv: vkconv.PreparedConv) -> None:
    rng = np.random.default_rng(case.seed)
    for _ in range(2):
        more = rng.integers(0, 5, case.problem.rank)
        space = tuple(n + int(m) for n, m in zip(case.problem.space, more, strict=True))
        p = case.problem.replace(batch=int(rng.integers(1, 4)), space=space)
        if not fits(p, 20):  # a dilated input grows by as much
            continue
        # Of another seed: with that of the weight, they would be the same numbers.
        b = dataclasses.replace(a, input=case.scaled(checks.operands(p, case.seed + 1, case.integers).input))
        tree = vkconv.explain(conv, b.input).plan
        if tree is not None:  # a forced algorithm may want other sizes
            checks.assert_right(p, b, conv(b.input), tree=tree, integers=case.integers, independent=case.independent)


def stream(case: Case, a: checks.Operands, options: dict[str, Any]) -> Array:
    """Chunk by chunk, each a random number of steps long."""
    p, state, made, at = case.problem, None, [], 0
    if p.rank == 1:
        operation, geometry = vkconv.causal_conv1d, {"stride": p.stride[0], "dilation": p.dilation[0]}
    else:
        operation, geometry = vkconv.causal_conv3d, {"stride": p.stride, "dilation": p.dilation}
        geometry["padding"] = tuple(zip(*p.pads[1:], strict=True))
    words = {"groups": p.groups, "precision": p.precision} | geometry | epilogue(case, a) | options
    rng = np.random.default_rng(case.seed)
    while at < p.space[0]:
        chunk = a.input[:, at : at + p.stride[0] * int(rng.integers(1, 6))]
        y, state = operation(chunk, a.weight, state=state, **words)
        made.append(y)
        at += chunk.shape[1]
    return np.concatenate(made, axis=1)


def windows(case: Case, a: checks.Operands, options: dict[str, Any]) -> Array:
    """By `unfold` or `fold`, with the products in double precision."""
    p = case.problem
    geometry = {"stride": p.stride, "pads": p.pads, "dilation": p.dilation} | checks.border(a)
    weight = oracle.f64(a.weight)
    if p.flip:
        weight = np.flip(weight, range(1, p.rank + 1))
    if p.op == "igrad":
        made = vkconv.fold(np.tensordot(oracle.f64(a.grad), weight, 1), p.input_shape, **geometry)
    else:
        gathered = oracle.f64(vkconv.unfold(a.input, p.kernel, **geometry))
        made = np.tensordot(gathered, weight, (range(p.rank + 1, 2 * p.rank + 2), range(1, p.rank + 2)))
        made = oracle.activate(made if a.bias is None else made + oracle.f64(a.bias), p.activation, p.alpha, p.beta)
    return checks.rounded(made, p.dtype)


ENTRIES: dict[str, Callable[[Case, checks.Operands, dict[str, Any]], Any]] = {
    "rank": rank,
    "depthwise": rank,
    "transpose": transpose,
    "prepared_transpose": transpose,
    "prepared": prepared,
    "addend": prepared,
    "shared": prepared,
    "sizes": prepared,
    "stream": stream,
    "windows": windows,
}
