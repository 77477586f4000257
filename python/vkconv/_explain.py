"""Why a plan was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vkconv import _core


@dataclass(frozen=True)
class Candidate:
    """One algorithm's answer to a problem: an estimate, or the reason why it cannot run. `tuned`: the planner takes it,
    whatever the estimates say, because `tune` measured it to be the fastest."""

    algorithm: str
    seconds: float | None
    reason: str
    tuned: bool = False


@dataclass(frozen=True)
class Explanation:
    """How a problem is computed. Its repr is a table; the fields serve programs."""

    problem: str
    device: str
    plan: str | None
    workspace_bytes: int
    reason: str
    candidates: tuple[Candidate, ...]

    @property
    def algorithm(self) -> str | None:
        """Name of the algorithm chosen, the root of ``plan`` without its variant (``winograd`` of ``winograd_f4``)."""
        if self.plan is None:
            return None
        root = self.plan.split("(", 1)[0]
        return max((c.algorithm for c in self.candidates if root.startswith(c.algorithm)), key=len, default=root)

    @property
    def plan_text(self) -> str:
        """The plan for people, with why there is none, or that tuning chose it."""
        if self.plan is None:
            return f"none: {self.reason}"
        tuned = any(c.tuned and c.algorithm == self.algorithm for c in self.candidates)
        return self.plan + ", chosen by tuning" * tuned

    def __repr__(self) -> str:
        width = max(len(c.algorithm) for c in self.candidates)
        lines = [
            f"problem    {self.problem}",
            f"device     {self.device}",
            f"plan       {self.plan_text}",
            f"workspace  {self.workspace_bytes} bytes",
        ]
        for c in sorted(self.candidates, key=lambda c: (c.seconds is None, c.seconds or 0.0)):
            mark = "*" if c.algorithm == self.algorithm else " "
            answer = c.reason if c.seconds is None else f"{_time(c.seconds):>10}"
            lines.append(f"  {mark} {c.algorithm:<{width}}  {answer}")
        return "\n".join(lines)


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


_OPERATIONS = frozenset(
    [f"{name}{rank}" for name in ("conv", "conv_transpose", "depthwise_conv") for rank in ("1d", "2d", "3d")]
    + ["conv_general", "conv_transpose", "depthwise_conv", "conv_input_grad", "conv_weight_grad", "conv_bias_grad"]
    + ["causal_conv1d", "causal_conv3d"]
)
_OPTIONS = ("precision", "device", "algorithm", "workspace_limit")  # of a problem string


def explain(op: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Tell how an operation would be computed, without computing it.

    Parameters
    ----------
    op : callable or str
        An operation of this package, its name, a prepared convolution, or a problem string such as
        ``fwd_f32_n1c64o64_i56x56_k3x3_p1x1``.
    *args, **kwargs
        The operation's arguments. A problem string takes ``precision``, ``device``, ``algorithm`` and
        ``workspace_limit``. ``device`` may also be a `vkconv.DeviceDescription`.

    Returns
    -------
    Explanation
        Every algorithm with its estimated seconds or the reason it cannot run, the plan chosen as a tree, its
        workspace, the device and the problem string.

    Examples
    --------
    >>> vkconv.explain('fwd_f32_n1c64o64_i56x56_k3x3_p1x1').device
    'cpu'
    >>> vkconv.explain(vkconv.conv1d, np.ones((1, 8, 1), np.float32), np.ones((1, 3, 1), np.float32)).problem
    'fwd_f32_n1c1o1_i8_k3'
    """
    if isinstance(op, str) and op not in _OPERATIONS:
        return _explain_problem(op, args, kwargs)
    if isinstance(op, str):
        import vkconv  # noqa: PLC0415 - the package imports this module

        op = getattr(vkconv, op)
    if not callable(op):
        raise TypeError(f"op must be an operation, its name or a problem string, got {type(op).__name__}")
    return _from_core(_core.explain_call(op, *args, **kwargs))


def _explain_problem(problem: str, args: tuple[Any, ...], given: dict[str, Any]) -> Explanation:
    unknown = [type(a).__name__ for a in args] + sorted(given.keys() - set(_OPTIONS))
    if unknown:
        raise TypeError(
            f"op is {problem!r}, which is no operation; a problem string takes {', '.join(_OPTIONS)} as keywords, "
            f"got {unknown[0]}"
        )
    return _from_core(_core.explain_problem(problem, *(given.get(name) for name in _OPTIONS)))


def _from_core(told: _core.ExplainTuple) -> Explanation:
    problem, device, plan, workspace_bytes, reason, candidates = told
    return Explanation(problem, device, plan, workspace_bytes, reason, tuple(Candidate(*c) for c in candidates))
