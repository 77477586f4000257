"""An extension of griffe: classes and functions whose docstrings are made in C++ or by a call have them in the
reference too. vkconv must be importable."""

from __future__ import annotations

import inspect
import pkgutil
from typing import Any

import griffe


def runtime_docstring(path: str) -> str:
    """What `help` shows of "package.module.name", without the signature that pybind11 puts above it; else ""."""
    try:
        text = inspect.getdoc(pkgutil.resolve_name(path)) or ""
    except (ImportError, AttributeError):
        return ""
    name = path.rpartition(".")[2]
    return text.partition("\n\n")[2] if text.startswith(f"{name}(self") else text


class RuntimeDocstrings(griffe.Extension):
    """Fills in what the sources leave empty."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        public = not any(part.startswith("__") for part in obj.path.split("."))
        silent = public and obj.docstring is None and (obj.is_class or obj.is_function)
        if silent and (text := runtime_docstring(obj.path)):
            obj.docstring = griffe.Docstring(text, parent=obj)
