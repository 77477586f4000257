"""The documentation: every snippet runs, every page is in the navigation, the site builds without a warning."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vkconv

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = sorted((DOCS / "reference").glob("*.md"))  # docstrings, whose examples test_stubs.py runs
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page not in REFERENCE]
FRAMEWORKS = {"pytorch": "torch", "mlx": "mlx.core", "jax": "jax", "dask": "dask.array"}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_snippets(path: Path) -> None:
    if path.stem in FRAMEWORKS:
        pytest.importorskip(FRAMEWORKS[path.stem])
    text = path.read_text()
    assert (">>>" in text) == ("```pycon" in text)
    names = {"np": np, "vkconv": vkconv}
    failed, run = doctest.testfile(str(path), module_relative=False, globs=names)
    assert run > 0 and failed == 0


def test_every_operation_has_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    operations = ("conv", "depthwise", "prepare", "causal", "fold", "unfold")
    assert [
        n for n in vkconv.__all__ if n.startswith(operations) and f"`{n}" not in text and f".{n}(" not in text
    ] == []


def test_scripts_that_are_named_exist() -> None:
    pages = [*PAGES, *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"))]
    text = "".join(page.read_text() for page in pages)
    named = re.findall(r"\b(?:bench|tests|tools)/\w+\.(?:py|txt|json|cpp)\b", text)
    assert [name for name in sorted(set(named)) if not (ROOT / name).exists()] == []
    table = re.search(r"^\| `bench/` .*$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)[0]
    programs = [p for p in (ROOT / "bench").glob("*.py") if "__main__" in p.read_text()]
    assert [p.name for p in programs if f"`{p.name}`" not in table] == []


def test_the_reference_has_every_name() -> None:
    named = re.findall(r"^::: (\S+)$", "".join(page.read_text() for page in REFERENCE), re.MULTILINE)
    modules = {f"vkconv.{name}" for name in ("_ops", "torch", "mlx", "jax", "dask", "ndimage", "signal")}
    assert sorted(named) == sorted(modules | {f"vkconv.{n}" for n in vkconv.__all__ if n != "__version__"})


def test_the_reference_has_every_variable_of_the_environment() -> None:
    sources = [
        p.read_text() for folder in ("cpp", "python") for p in (ROOT / folder).rglob("*") if p.suffix in (".cpp", ".py")
    ]
    read = set(re.findall(r"""(?:getenv\(|_ENVIRONMENT = )"(VKCONV_\w+)""", "".join(sources)))
    listed = re.findall(r"^\| (VKCONV_\w+) \|", (DOCS / "reference" / "devices.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(read)


@pytest.mark.full
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    built = {p.relative_to(tmp_path).with_suffix(".md") for p in tmp_path.rglob("*.html")}
    assert {p.relative_to(DOCS) for p in PAGES + REFERENCE} <= built
