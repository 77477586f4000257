"""The layers that are timed: rows of the suite files as problems, arrays and scaled-down copies."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Pads = tuple[tuple[int, int], ...]

PREFIXES = {"forward": "fwd", "input_grad": "igrad", "weight_grad": "wgrad"}

HERE = Path(__file__).parent
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"}
NUMPY_PAD_MODES = {"reflect": "reflect", "symmetric": "symmetric", "circular": "wrap"}
MINI = "_mini"
# With a file of their own; `layers` are those of networks that no other has, `training` such with their gradients.
SUITES = ("peers", "gpu", "layers", "training")


@dataclass(frozen=True)
class Case:
    """One convolution: shapes channels last, padding as (lo, hi) an axis, weight (O, k..., C/groups)."""

    name: str
    family: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    pads: Pads
    dilation: tuple[int, ...]
    groups: int
    dtype: str = "f32"
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    pad_mode: str = "zeros"
    core: bool = False
    direction: str = "forward"  # or input_grad, weight_grad

    @property
    def rank(self) -> int:
        return len(self.stride)

    @property
    def extra(self) -> tuple[int, ...]:
        """Output padding of a transposed convolution, one number an axis."""
        return self.output_padding or (0,) * self.rank

    @property
    def y(self) -> tuple[int, ...]:
        """Shape of the output."""
        extents = []
        for a in range(self.rank):
            n, k, s = self.x[1 + a], self.w[1 + a], self.stride[a]
            reach, padding = (k - 1) * self.dilation[a], sum(self.pads[a])
            if self.transposed:
                extents.append((n - 1) * s + reach + 1 - padding + self.extra[a])
            else:
                extents.append((n + padding - reach - 1) // s + 1)
        return (self.x[0], *extents, self.w[0])

    @property
    def flops(self) -> float:
        """Multiply-adds counted as two, none for the zeros that a transposed convolution inserts."""
        positions = math.prod(self.x[:-1]) if self.transposed else math.prod(self.y[:-1])
        return 2.0 * positions * math.prod(self.w)

    @property
    def bytes(self) -> float:
        item = np.dtype(dtype_of(self.dtype)).itemsize
        return float(item * (math.prod(self.x) + math.prod(self.w) + math.prod(self.y)))

    @property
    def as_general(self) -> dict[str, Any]:
        """The keyword arguments of vkconv.conv_general: a transposed convolution is one of the dilated input."""
        if not self.transposed:
            return {
                "stride": self.stride,
                "pads": list(self.pads),
                "kernel_dilation": self.dilation,
                "input_dilation": (1,) * self.rank,
                "groups": self.groups,
                "flip": False,
            }
        reach = [(k - 1) * d for k, d in zip(self.w[1:-1], self.dilation, strict=True)]
        pads = [(r - lo, r - hi + e) for r, (lo, hi), e in zip(reach, self.pads, self.extra, strict=True)]
        return {
            "stride": (1,) * self.rank,
            "pads": pads,
            "kernel_dilation": self.dilation,
            "input_dilation": self.stride,
            "groups": self.groups,
            "flip": True,
        }

    @property
    def problem(self) -> str:
        """The problem string that logs, explain() and vkconv_bench use."""
        g = self.as_general
        text = f"{PREFIXES[self.direction]}_{self.dtype}_n{self.x[0]}c{self.x[-1]}o{self.w[0]}"
        text += f"g{self.groups}" if self.groups > 1 else ""
        text += f"_i{_by(self.x[1:-1])}_k{_by(self.w[1:-1])}"
        for letter, values in (("s", g["stride"]), ("d", g["kernel_dilation"]), ("t", g["input_dilation"])):
            text += f"_{letter}{_by(values)}" if any(v != 1 for v in values) else ""
        if any(pair != (0, 0) for pair in g["pads"]):
            text += "_p" + "x".join(str(lo) if lo == hi else f"{lo}:{hi}" for lo, hi in g["pads"])
        return text + ("_flip" if g["flip"] else "")

    def zero_padded(self) -> Case:
        """The case after its input went through pad_input: only zero padding is left."""
        if self.pad_mode not in NUMPY_PAD_MODES:
            return replace(self, pad_mode="zeros")
        spatial = tuple(n + sum(p) for n, p in zip(self.x[1:-1], self.pads, strict=True))
        x = (self.x[0], *spatial, self.x[-1])
        return replace(self, x=x, pads=((0, 0),) * self.rank, pad_mode="zeros")

    def arrays(self, seed: int = 0) -> tuple[Array, Array]:
        """Input and weight, padded already where the padding is not of zeros (for every peer alike)."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(self.x, dtype=np.float32)
        w = rng.standard_normal(self.w, dtype=np.float32) / math.sqrt(max(1, math.prod(self.w[1:])))
        if self.pad_mode in NUMPY_PAD_MODES:
            mode: Any = NUMPY_PAD_MODES[self.pad_mode]
            x = np.pad(x, ((0, 0), *self.pads, (0, 0)), mode=mode)
        dtype = dtype_of(self.dtype)
        return x.astype(dtype, copy=False), w.astype(dtype, copy=False)

    def operands(self) -> tuple[Array, Array]:
        """What the case's direction reads: (input, weight), (output gradient, weight) or (output gradient, input)."""
        x, w = self.arrays()
        if self.direction == "forward":
            return x, w
        grad = np.random.default_rng(1).standard_normal(self.zero_padded().y, dtype=np.float32).astype(x.dtype)
        return grad, (w if self.direction == "input_grad" else x)

    def batched(self, images: int | None) -> Case:
        """The case itself, or a copy with so many of its images."""
        few = images is not None and images < self.x[0]
        return replace(self, x=(images, *self.x[1:]), name=f"{self.name}_n{images}") if few else self

    def mini(self, flop_limit: float) -> Case:
        """The case itself, or a copy with fewer images and output pixels (channels and kernel kept) under the limit."""
        case = self
        while case.flops > flop_limit or case.bytes > 2**30:
            smaller = case._halved()
            if smaller is None:
                break
            case = smaller
        return case if case is self else replace(case, name=self.name + MINI)

    def _halved(self) -> Case | None:
        if self.x[0] > 1:
            return replace(self, x=(self.x[0] // 2, *self.x[1:]))
        extents = self.x[1:-1] if self.transposed else self.y[1:-1]
        axis = max(range(self.rank), key=lambda a: extents[a])
        removed = extents[axis] - extents[axis] // 2
        if extents[axis] < 4:
            return None
        x = list(self.x)
        x[1 + axis] -= removed if self.transposed else removed * self.stride[axis]
        return replace(self, x=tuple(x)) if x[1 + axis] > 0 else None


def dtype_of(name: str) -> Any:
    """The NumPy dtype of f32, f16, bf16 or f64."""
    if name == "bf16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(DTYPES[name])


def load(path: Path) -> list[Case]:
    """The rows of a suite file."""
    return [_case(row) for row in json.loads(path.read_text())]


def select(suite: str) -> list[Case]:
    """Cases of `all`, `core`, one of SUITES, of the families whose name has `suite` in it, or whose own name has."""
    if suite in SUITES:
        return load(HERE / f"suite_{suite}.json")
    cases = load(HERE / "suite.json")
    if suite == "all":
        return cases
    if suite == "core":
        return [c for c in cases if c.core]
    chosen = [c for c in cases if suite.lower() in c.family.lower() or suite in c.name]
    if not chosen:
        families = sorted({c.family for c in cases})
        names = f"all, core, {', '.join(SUITES)}, a case's name or a family"
        raise SystemExit(f"no suite '{suite}': it is {names}: {', '.join(families)}")
    return chosen


def named(options: argparse.Namespace) -> list[Case]:
    """The cases that the options of `bench.machine.add_names` name."""
    part, parts = (int(n) for n in options.part.split("/"))
    words = options.only.split(",")
    cases = [c for suite in options.suite.split(",") for c in select(suite) if any(w in c.name for w in words)]
    return cases[part - 1 :: parts]


def chosen(options: argparse.Namespace, images: int | None = None) -> list[Case]:
    """The same under the limit of `bench.machine.add_cases`, with at most so many images a call."""
    return [c.batched(images).mini(options.gflop_limit * 1e9) for c in named(options)]


def _case(row: dict[str, Any]) -> Case:
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items() if k not in ("src", "why")}
    fields["pads"] = tuple((lo, hi) for lo, hi in row["pads"])
    return Case(**fields)


def _by(values: Any) -> str:
    return "x".join(str(v) for v in values)
