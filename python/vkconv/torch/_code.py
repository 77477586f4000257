"""What code asks of a traced value without a call that its proxy could refuse, its type and its identity; and whether
it handles exceptions of operators, which a trace does not have."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from torch import fx

from vkconv.torch._effects import LIBRARIES

_Run = list[tuple[str, Any]]  # instructions that load, without anything between
_CALLS = ("CALL", "CALL_FUNCTION")
_NUMBERS = ("int", "float", "bool")
_ENDS_EXCEPTION = ("CHECK_EXC_MATCH", "CHECK_EG_MATCH", "POP_EXCEPT")


def hidden(frame: FrameType | None, until: CodeType) -> str | None:
    """Why a trace would lose what the frame does, or one that has called it."""
    while frame is not None and frame.f_code is not until:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in LIBRARIES:
            handled, asked = _analysis(frame.f_code)
            if any(frame.f_lasti in place for place in handled):
                return "it would lose what handles exceptions"
            if asked and any(issubclass(type(frame.f_locals.get(name)), fx.Proxy) for name in asked):
                return "it depends on a type or an identity"
        frame = frame.f_back
    return None


@functools.lru_cache(4096)
def _analysis(code: CodeType) -> tuple[list[range], frozenset[str]]:
    steps = list(dis.get_instructions(code))
    return _handled(code, steps), frozenset(_asked(steps))


def _handled(code: CodeType, steps: list[dis.Instruction]) -> list[range]:
    """Where exceptions have a handler, other than that of `with`, or of `finally` from Python 3.11 on."""
    if sys.version_info < (3, 11):
        return [range(step.offset, step.argval) for step in steps if step.opname == "SETUP_FINALLY"]
    starts = {step.offset: i for i, step in enumerate(steps) if step.opname == "PUSH_EXC_INFO"}
    entries: Any = dis.Bytecode(code).exception_entries
    return [range(e.start, e.end) for e in entries if e.target in starts and _goes_on(steps[starts[e.target] :])]


def _goes_on(handler: list[dis.Instruction]) -> bool:
    """Whether an exception may end there, as it does not in those of `with` and `finally`."""
    decisive = (s.opname for s in handler if s.opname in (*_ENDS_EXCEPTION, "WITH_EXCEPT_START", "RERAISE"))
    return next(decisive, "") in _ENDS_EXCEPTION


def _asked(steps: list[dis.Instruction]) -> Iterator[str]:
    """Variables in `type(x)`, `x is y`, `x.a is y` and `x.a is None`; a tensor is neither None nor a number."""
    run: _Run = []
    for step, following in itertools.pairwise(steps):
        name = step.opname
        if name.startswith("LOAD_"):
            values = step.argval if isinstance(step.argval, tuple) else (step.argval,)  # of LOAD_FAST_LOAD_FAST
            run.extend((name, value) for value in values)
        elif name not in ("PRECALL", "PUSH_NULL"):
            compared_to_none = name.startswith("POP_JUMP") and name.endswith("_NONE")
            if name == "IS_OP" and run and run[-1] == ("LOAD_CONST", None):
                compared_to_none = bool(run.pop())
            if compared_to_none:
                variable, attribute = _operand(run)
                yield from variable if attribute else ()
            elif name == "IS_OP":
                yield from _operand(run)[0]
                yield from _operand(run)[0]
            elif name in _CALLS and step.arg == 1 and following.argval not in _NUMBERS:
                variable, _ = _operand(run)
                yield from variable if run and run[-1] == ("LOAD_GLOBAL", "type") else ()
            run = []


def _operand(run: _Run) -> tuple[list[str], bool]:
    """The variable, if any, that the last of the loaded values is, or has as an attribute; it is taken off the run."""
    attribute = False
    while run and run[-1][0] == "LOAD_ATTR":
        run.pop()
        attribute = True
    name, value = run.pop() if run else ("", "")
    return [str(value)] if name.startswith(("LOAD_FAST", "LOAD_DEREF")) else [], attribute
