"""Measured choices of algorithms: kept in files, and taken by the planner.

A file is JSON and holds names of algorithms only, which run where their `supports` allows: whatever it says, results
are right. One that is damaged, or that no device here has written, is ignored with a warning.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vkconv import _core

FORMAT = "vkconv tuning 1"
_LARGEST_BYTES = 64 << 20
_ENVIRONMENT = "VKCONV_TUNING_FILE"


@dataclass(frozen=True)
class Choice:
    """An algorithm that was measured to be faster than the one planned: medians in seconds, infinite where the planned
    one did not agree with the reference."""

    device: str
    problem: str
    algorithm: str
    seconds: float
    planned: str
    planned_seconds: float


@dataclass(frozen=True)
class Tuning:
    """What `tune` found. `kept` are the problems whose plan is the fastest, `skipped` says why others are not tuned."""

    choices: tuple[Choice, ...]
    kept: tuple[str, ...]
    skipped: dict[str, str]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the choices to a file that `load_tuning` and VKCONV_TUNING_FILE take, beside what is in it."""
        try:
            devices = _read(path)
        except (OSError, ValueError):
            devices = {}
        for c in self.choices:
            row = {"algorithm": c.algorithm, "ms": c.seconds * 1e3, "planned": c.planned}
            if math.isfinite(c.planned_seconds):
                row["planned_ms"] = c.planned_seconds * 1e3
            devices.setdefault(_core.device_identity(c.device), {})[c.problem] = row
        # A reader sees the old file or the new one, and another process that saves has its own.
        part = f"{os.fspath(path)}.{os.getpid()}.part"
        text = _json().dumps({"format": FORMAT, "version": _version(), "devices": devices}, indent=1) + "\n"
        try:
            with open(part, "w") as file:
                file.write(text)
            os.replace(part, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(part)
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def tune(
    target: str | Sequence[str] | Callable[[], object],
    *,
    seconds: float = 30.0,
    device: str | None = None,
    prepared: bool = False,
) -> Tuning:
    """Measure the algorithms of some problems, and let the planner take the fastest of each from now on.

    Every algorithm that can run a problem is compared with the reference loop nest on random data before its time
    counts. The planned algorithm stays unless another takes at most 97 % of its time. A tuned choice may have other
    bits than the planner's, within the same bounds; `clear_tuning` takes it back.

    Parameters
    ----------
    target : str, sequence of str or callable
        Problem strings; or a function without arguments, which is called once: the problems of its operations are
        tuned, on their devices, with prepared weights where it uses them.
    seconds : float
        About how long all of it may take. A problem whose reference would not leave time for more is skipped.
    device : str, optional
        As in every operation. A callable runs with it as the default.
    prepared : bool
        Whether problem strings are measured with prepared weights.

    Returns
    -------
    Tuning
        With ``.choices``, and ``.save(path)`` for `load_tuning` or VKCONV_TUNING_FILE.

    Examples
    --------
    >>> found = vkconv.tune('fwd_f32_n1c8o8_i9x9_k3x3_p1x1', seconds=0.1, device='cpu')
    >>> len(found.choices) + len(found.kept) + len(found.skipped)
    1
    """
    from vkconv._tune import measured  # noqa: PLC0415 - few programs tune, all import

    return measured(target, seconds, device, prepared)


def load_tuning(path: str | os.PathLike[str]) -> int:
    """Let the planner take the choices of a file that `Tuning.save` wrote, for the devices they were measured on.

    VKCONV_TUNING_FILE names a file to load when vkconv is imported. Returns the number of choices taken: 0 and a
    RuntimeWarning where the file is damaged or comes from another device or version. Raises OSError where it cannot be
    read.

    Examples
    --------
    >>> vkconv.tune('fwd_f32_n1c8o8_i9x9_k3x3_p1x1', seconds=0.1).save('tuning.json')  # doctest: +SKIP
    >>> vkconv.load_tuning('tuning.json')  # doctest: +SKIP
    1
    """
    try:
        devices = _read(path)
        names = _names(devices)
        chosen = {
            names[identity]: {p: row["algorithm"] for p, row in rows.items()}
            for identity, rows in devices.items()
            if identity in names
        }
        if devices and not chosen:
            raise ValueError(f"it is for other devices: {'; '.join(devices)}")
        for name, choices in chosen.items():
            _core.prefer(name, choices)
    except ValueError as error:
        _warn(path, error)
        return 0
    return sum(len(choices) for choices in chosen.values())


def clear_tuning() -> None:
    """Forget all choices that were loaded or tuned: the planner's own are taken again."""
    _core.clear_preferences()


def load_environment() -> None:
    """Loads the file that VKCONV_TUNING_FILE names, if it does."""
    path = os.environ.get(_ENVIRONMENT)
    if not path:
        return
    try:
        load_tuning(path)
    except OSError as error:  # no reason to fail an import
        _warn(path, error)


def _warn(path: str | os.PathLike[str], error: Exception) -> None:
    warnings.warn(f"tuning file {os.fspath(path)} is ignored: {error}", RuntimeWarning, stacklevel=3)


def _version() -> str:
    return str(_core.build_info()["version"])


def _names(devices: Iterable[str]) -> dict[str, str]:
    """Names of this machine's devices by their identities. Vulkan is opened only where a file has choices for it."""
    names = ["cpu"]
    if any(identity.startswith("vulkan") for identity in devices):
        names += [name for name, kind, _, unusable, _ in _core.devices() if kind != "cpu" and not unusable]
    return {_core.device_identity(name): name for name in reversed(names)}


def _json() -> Any:
    import json  # noqa: PLC0415 - only files need it

    return json


def _read(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """The choices of a file by device. Raises ValueError for anything that `Tuning.save` does not write."""
    with open(os.fspath(path), "rb") as file:
        content = file.read(_LARGEST_BYTES + 1)
    if len(content) > _LARGEST_BYTES:
        raise ValueError(f"it has more than {_LARGEST_BYTES >> 20} MiB")
    try:
        told = _json().loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON, or not all of it") from error
    if not isinstance(told, dict) or told.get("format") != FORMAT or not isinstance(told.get("devices"), dict):
        raise ValueError(f"it is not of the format {FORMAT!r}")
    if told.get("version") != _version():
        raise ValueError(f"it was measured with vkconv {told.get('version')}, this is {_version()}")
    for rows in told["devices"].values():
        if not isinstance(rows, dict) or not all(
            isinstance(row, dict) and isinstance(row.get("algorithm"), str) for row in rows.values()
        ):
            raise ValueError("its choices are not algorithms by problem")
    devices: dict[str, dict[str, Any]] = told["devices"]
    return devices
