"""One team of threads for PyTorch and vkconv."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from vkconv import _core


def share_threads() -> bool:
    """Run vkconv in the threads of the OpenMP runtime that PyTorch has loaded; False when there is none.

    Idle OpenMP threads spin for milliseconds before they sleep. On a machine whose processors they fill, another
    library's threads get half of the time meanwhile.
    """
    if not torch.backends.openmp.is_available():
        return False
    maps = Path("/proc/self/maps")
    libraries = set(re.findall(r"\S*lib(?:gomp|omp|iomp5)[-.\w]*\.so\S*", maps.read_text() if maps.exists() else ""))
    near_torch = str(Path(torch.__file__).parent)
    return any(_core.share_threads_of(path) for path in sorted(libraries, key=lambda p: not p.startswith(near_torch)))
