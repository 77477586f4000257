"""Other projects' tests with vkconv's functions in the place of those they test: a plugin of pytest.

    VKCONV_IN_PLACE=scipy PYTHONPATH=tests python -m pytest -p in_place --pyargs scipy.ndimage.tests.test_filters

VKCONV_IN_PLACE is scipy, torch, jax or mlx. Results are in docs/reliability.md.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any


def put(into: ModuleType, ours: ModuleType, known: dict[Any, Any] | None = None) -> None:
    """Every public function of `ours` for that of the same name; `known` is what a project keeps about its own."""
    for name in ours.__all__:
        if hasattr(into, name):
            if known is not None and getattr(into, name) in known:
                known[getattr(ours, name)] = known[getattr(into, name)]
            setattr(into, name, getattr(ours, name))


def scipy() -> None:
    import scipy.ndimage
    import scipy.signal
    from scipy._lib import _array_api

    import vkconv.ndimage
    import vkconv.signal

    table = getattr(_array_api, "xp_capabilities_table", None)
    put(scipy.ndimage, vkconv.ndimage, table)
    put(scipy.signal, vkconv.signal, table)


def torch() -> None:
    import torch

    import vkconv.torch

    functions = ModuleType("functions")
    functions.__all__ = [name for name in vkconv.torch.__all__ if name.startswith("conv")]
    vars(functions).update({name: getattr(vkconv.torch, name) for name in functions.__all__})
    put(torch, functions)
    put(torch.nn.functional, functions)


def jax() -> None:
    import jax
    from jax._src.lax import convolution, lax

    import vkconv.jax

    for module in (convolution, lax, jax._src.lax, jax.lax):
        module.conv_general_dilated = vkconv.jax.conv_general_dilated


def mlx() -> None:
    import mlx.core

    import vkconv.mlx

    mlx.core.set_default_device(mlx.core.cpu)
    vkconv.mlx.install()


PLACES = {place.__name__: place for place in (scipy, torch, jax, mlx)}
if chosen := os.environ.get("VKCONV_IN_PLACE"):
    PLACES[chosen]()
