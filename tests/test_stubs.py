"""The stubs and docstrings say what the module does."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vkconv
from vkconv import _core

STUB = Path(vkconv.__file__).with_name("_core.pyi")
NAMES = {name: importlib.import_module(f"vkconv.{name}") for name in ("ndimage", "signal")}
FRAMEWORKS = {"dask", "jax", "mlx", "torch"}  # adapters, each for a package that may be missing
OPERATIONS = [n for n in vkconv.__all__ if n.startswith(("conv", "depthwise", "prepare", "causal", "fold", "unfold"))]
LISTED = r"^(\w+, )*"  # parameters that share a description


def stub_definitions() -> dict[str, ast.AST]:
    tree = ast.parse(STUB.read_text())
    return {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def test_stub_and_module_have_the_same_names():
    public = {n for n in dir(_core) if not n.startswith("_")}
    assert public == set(stub_definitions())


@pytest.mark.parametrize("name", sorted(n for n, d in stub_definitions().items() if isinstance(d, ast.FunctionDef)))
def test_stub_functions_take_as_many_arguments(name):
    """pybind11 writes the arity into the docstring: `name(arg0: object, ...) -> object`."""
    signature = getattr(_core, name).__doc__.splitlines()[0]
    definition = stub_definitions()[name]
    bound = signature[len(name) + 1 : signature.rindex(")")]
    if "*args" in bound:
        assert definition.args.vararg and definition.args.kwarg
        return
    count = len([a for a in bound.split(",") if a.strip()])
    assert count == len(definition.args.posonlyargs) + len(definition.args.args)
    with pytest.raises(TypeError):
        getattr(_core, name)(*[None] * (count + 1))


def test_positional_order_of_the_core_calls():
    """Every operation hands each of its arguments to the place of the same name."""
    for module in ("_ops", "_depthwise", "_transpose", "_gradients", "_prepare"):
        for node in ast.walk(ast.parse(Path(vkconv.__file__).with_name(f"{module}.py").read_text())):
            if not (isinstance(node, ast.Call) and core_name(node.func) in stub_definitions()):
                continue
            definition = stub_definitions()[core_name(node.func)]
            wanted = [a.arg for a in definition.args.posonlyargs + definition.args.args]
            assert len(node.args) == len(wanted), ast.unparse(node)
            for argument, name in zip(node.args, wanted, strict=True):
                if isinstance(argument, ast.Name):
                    assert argument.id == name or {argument.id, name} == {"dilation", "kernel_dilation"}


def core_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_mlx_argument_order():
    def positional(op) -> list[str]:
        return [p.name for p in inspect.signature(op).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]

    assert positional(vkconv.conv_general) == ["input", "weight", "stride", "padding", "kernel_dilation",
                                               "input_dilation", "groups", "flip"]  # fmt: skip
    for rank in "123":
        conv, transpose = getattr(vkconv, f"conv{rank}d"), getattr(vkconv, f"conv_transpose{rank}d")
        assert positional(conv) == ["input", "weight", "stride", "padding", "dilation", "groups"]
        assert positional(transpose) == ["input", "weight", "stride", "padding", "dilation", "output_padding", "groups"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_docstrings(name):
    doc = inspect.getdoc(getattr(vkconv, name))
    assert "Examples\n--------" in doc and "Returns\n-------" in doc
    described = doc.partition("Parameters\n----------")[2].partition("Returns\n-------")[0]
    names = inspect.signature(getattr(vkconv, name)).parameters
    assert [n for n in names if not re.search(rf"{LISTED}{n}\b", described, re.MULTILINE)] == []


@pytest.mark.parametrize("module", sorted(m.name for m in pkgutil.iter_modules(vkconv.__path__)
                                          if m.name not in ("_core", "__main__")))  # fmt: skip
def test_examples(module):
    if module in FRAMEWORKS:
        pytest.importorskip("mlx.core" if module == "mlx" else module)
    module = importlib.import_module(f"vkconv.{module}")
    with vkconv.device("cpu"):
        result = doctest.testmod(module, extraglobs={"np": np, "vkconv": vkconv} | NAMES)
    assert result.failed == 0


CALLER = """
import copy
from typing import Any
import numpy as np
from numpy.typing import NDArray
import vkconv
from vkconv import ndimage, signal

x, w = np.ones((1, 8, 8, 4), np.float32), np.ones((4, 3, 3, 4), np.float32)
y: NDArray[Any] = vkconv.conv2d(x, w, stride=(1, 2), padding="same", activation=("clip", 0, 6))
vkconv.conv_general(x, w, padding=((0, 1), (2, 3)), flip=True, out=y)
vkconv.conv_transpose(x, w, 2, pads=[(1, 0), (0, 1)], precision="highest")
with vkconv.device("cpu"):
    name: str | None = vkconv.explain(vkconv.conv2d, x, w).algorithm
conv = copy.deepcopy(vkconv.prepare(w, activation="relu"))
y = conv(x, out=None, addend=None)
there: vkconv.Array = vkconv.conv2d(vkconv.array(x, "cpu"), w)
rows: NDArray[Any] = there[:, 1:, ::2].numpy()
grad: NDArray[Any] = vkconv.conv_weight_grad(y, x, w.shape, padding_mode=("constant", 1.0))
part, state = vkconv.causal_conv1d(x[0], w[0])
blurred: NDArray[Any] = ndimage.gaussian_filter(signal.oaconvolve(rows, rows, axes=0), 2.0)
found: vkconv.Tuning = vkconv.tune(lambda: conv(x), seconds=1.0)
gains: list[float] = [c.planned_seconds / c.seconds for c in found.choices]
count: int = vkconv.load_tuning("tuning.json")
"""
MISTAKES = [
    'vkconv.conv2d(x, w, stride="2")',
    'vkconv.conv2d(x, w, padding="reflect")',
    'vkconv.conv2d(x, w, precision="best")',
    'vkconv.conv_transpose2d(x, w, padding="same")',
    "vkconv.conv2d(x, w, 1, 0, 1, 1, None)",
    "vkconv.conv2d(x)",
    "vkconv.prepare(w, w, 2)",
    "vkconv.plan_cache_info().missing",
    "vkconv.tune(3)",
    "vkconv.PreparedConv(w)",
    "there @ there",
]


def test_types_of_a_caller(tmp_path):
    """A caller's correct code passes `mypy --strict`, and each mistake is found."""
    pytest.importorskip("mypy")
    source = tmp_path / "caller.py"
    source.write_text(CALLER + "".join(f"{mistake}\n" for mistake in MISTAKES))
    options = ["--strict", "--follow-imports=silent", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}"]
    package = Path(vkconv.__file__).parents[1]
    # mypy finds an installed package by itself and refuses site-packages in its path.
    environment = os.environ if package.name == "site-packages" else {**os.environ, "MYPYPATH": str(package)}
    done = subprocess.run([sys.executable, "-m", "mypy", *options, str(source)], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    first = CALLER.count("\n") + 1
    wrong = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert wrong == set(range(first, first + len(MISTAKES))), done.stdout + done.stderr
