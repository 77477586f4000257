"""The shape of the source: short files, short functions, nothing of a machine, nothing binary but SPIR-V."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from structure import brace_functions, python_functions

ROOT = Path(__file__).parents[1]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
SOURCE = {".py", ".cpp", ".h", ".comp", ".glsl", ".sh", ".cmake"}
BRACES = {".cpp", ".h"}
MACHINE_PATH = re.compile(r"(?<![\w.<~-])/(?:home|root|work|tmp|Users|mnt)/[\w.]")


def tracked() -> list[Path]:
    """Files of the checkout that git knows or would add; an exported tree is listed as it is."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]
    skipped = {".venv", "build", ".git", "__pycache__"}
    return [p for p in ROOT.rglob("*") if p.is_file() and not skipped.intersection(p.relative_to(ROOT).parts)]


FILES = tracked()
SOURCES = [p for p in FILES if p.suffix in SOURCE or p.name in ("run", "CMakeLists.txt")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_checkout_is_read() -> None:
    names = {name_of(p) for p in SOURCES}
    assert {"run", "cpp/core/problem.h", "python/vkconv/__init__.py", "tests/test_structure.py"} <= names


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", [p for p in SOURCES if p.suffix in BRACES | {".py"}], ids=name_of)
def test_functions_are_short(path: Path) -> None:
    find = python_functions if path.suffix == ".py" else brace_functions
    long = [f"{f.name} (line {f.line}): {f.lines}" for f in find(path.read_text()) if f.lines > MAX_FUNCTION_LINES]
    assert not long


def test_nothing_binary_but_spirv() -> None:
    binary = [p for p in FILES if p.suffix != ".spv" and b"\0" in p.read_bytes()[:8192]]
    assert [name_of(p) for p in binary] == []


def test_no_path_of_a_machine() -> None:
    text = [p for p in FILES if p.suffix != ".spv" and b"\0" not in p.read_bytes()[:8192]]
    found = [f"{name_of(p)}: {m.group()}" for p in text for m in MACHINE_PATH.finditer(p.read_text())]
    assert found == []


def test_tools_are_pinned_with_hashes() -> None:
    """Those that build the package, and the compiler of the shaders."""
    pinned = {}
    for path in (ROOT / "requirements").glob("*.txt"):
        for line in path.read_text().replace("\\\n", " ").splitlines():
            if not line.startswith("#"):
                found = re.fullmatch(r"([\w-]+)==([\d.]+)( ; [^-]+)?(\s+--hash=sha256:[0-9a-f]{64})+", line)
                assert found, line
                pinned[found[1]] = found[2]
    wanted = re.search(r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert set(re.findall(r'"([\w-]+)', wanted)) < set(pinned)
    assert f'"slangpy=={pinned["slangpy"]}"' in (ROOT / "tools/compile_shaders.py").read_text()


def test_functions_are_found_in_cpp() -> None:
    source = """
    namespace a { struct S { int v{1}; int get() const { return v; } };
    template <class T>
    T sum(const T* p, int n = f(3)) noexcept {
      auto add = [&](T x) { return x; };  // a } in a comment, "{" in a string
      for (int i = 0; i < n; ++i) { if (p[i]) { add('}'); } }
      const char* raw = R"(})";
      return 1'000;
    }
    int table[] = {1, 2};
    }
    """
    found = {f.name: f.lines for f in brace_functions(source)}
    assert found == {"get": 1, "sum": 7}


def test_functions_are_found_in_python() -> None:
    source = 'def f():\n    """Doc\n    string."""\n    def g():\n        return 1\n    return g\n'
    assert {f.name: f.lines for f in python_functions(source)} == {"f": 4, "g": 2}
