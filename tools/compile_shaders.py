#!/usr/bin/env python3
"""Compile every GLSL shader of the algorithms to the SPIR-V that is checked in beside it.

    python tools/compile_shaders.py            rewrite the .spv files, delete those without a source
    python tools/compile_shaders.py --check    report the files that differ, exit 1 if there are any

`cpp/**/<name>.comp` becomes `<name>.spv`, or one `<name>_<variant>.spv` for each word of the line

    // variants: f32 f16 f16_wide

of its opening comment. A variant defines VARIANT_<PART> for each of its parts: VARIANT_F16 and VARIANT_WIDE.
`#include "path"` is resolved from cpp/, each file once. Only who changes a shader needs this tool and its compiler,
the glslang inside the PyPI wheel named by COMPILER (pip install --no-deps).
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COMPILER = "slangpy==0.43.1"
SOURCE_ROOT = Path(__file__).resolve().parent.parent / "cpp"

VARIANTS_LINE = re.compile(r"^// variants:(.*)$", re.MULTILINE)
INCLUDE_LINE = re.compile(r'^#include "([^"]+)"$')
SPIRV_VERSION = (1, 5)  # Vulkan 1.2


class ShaderError(Exception):
    """A shader does not compile; the text is the compiler's."""


Writer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class Request(ctypes.Structure):
    """glslang_CompileRequest_1_2."""

    _fields_ = (
        ("size_bytes", ctypes.c_size_t),
        ("source_path", ctypes.c_char_p),
        ("source_begin", ctypes.c_void_p),
        ("source_end", ctypes.c_void_p),
        ("write_diagnostic", Writer),
        ("diagnostic_user_data", ctypes.c_void_p),
        ("write_output", Writer),
        ("output_user_data", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("action", ctypes.c_uint),
        ("optimization_level", ctypes.c_uint),
        ("debug_info", ctypes.c_uint),
        ("target_name", ctypes.c_char_p),
        ("version_major", ctypes.c_int),
        ("version_minor", ctypes.c_int),
        ("version_patch", ctypes.c_int),
        ("entry_point", ctypes.c_char_p),
    )


class Glslang:
    """The C entry point of slang's glslang library."""

    COMPUTE_STAGE = 6
    COMPILE_GLSL = 0
    OPTIMIZE_DEFAULT = 1

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(self.library_path()))

    @staticmethod
    def library_path() -> Path:
        """The library inside the installed wheel, found without importing it."""
        spec = importlib.util.find_spec("slangpy")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"the shader compiler is missing: pip install --no-deps {COMPILER}")
        return next(Path(spec.origin).parent.glob("libslang-glslang*.so"))

    def compile(self, source: str, name: str) -> bytes:
        """SPIR-V of one flattened source."""
        text = source.encode()
        buffer = ctypes.create_string_buffer(text, len(text))
        begin = ctypes.addressof(buffer)
        output: list[bytes] = []
        diagnostic: list[bytes] = []
        request = Request(
            size_bytes=ctypes.sizeof(Request),
            source_path=name.encode(),
            source_begin=begin,
            source_end=begin + len(text),
            write_diagnostic=Writer(lambda p, n, _: diagnostic.append(ctypes.string_at(p, n))),
            write_output=Writer(lambda p, n, _: output.append(ctypes.string_at(p, n))),
            stage=self.COMPUTE_STAGE,
            action=self.COMPILE_GLSL,
            optimization_level=self.OPTIMIZE_DEFAULT,
            version_major=SPIRV_VERSION[0],
            version_minor=SPIRV_VERSION[1],
            entry_point=b"main",
        )
        failed = self._library.glslang_compile_1_2(ctypes.byref(request))
        if failed or not output:
            raise ShaderError(f"{name}:\n" + b"".join(diagnostic).decode(errors="replace"))
        return b"".join(output)


def line_mark(number: int, path: Path) -> str:
    """Makes the compiler count lines from here as those of the file."""
    return f'#line {number} "{path.name}"'


def flatten(path: Path, included: set[Path]) -> list[str]:
    """The lines of a file with its includes in place."""
    included.add(path)
    lines: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        match = INCLUDE_LINE.match(line)
        if match is None:
            lines.append(line)
            continue
        target = SOURCE_ROOT / match[1]
        if target not in included:
            lines += [line_mark(1, target), *flatten(target, included), line_mark(number + 1, path)]
    return lines


def flattened_variant(path: Path, variant: str) -> str:
    """The source of one variant: its definitions behind `#version`, which must come first."""
    version, *lines = flatten(path, set())
    if not version.startswith("#version"):
        raise ShaderError(f"{path}: the first line must be #version")
    named_lines = "#extension GL_GOOGLE_cpp_style_line_directive : require"
    defines = [f"#define VARIANT_{part.upper()} 1" for part in variant.split("_") if part]
    return "\n".join([version, named_lines, *defines, line_mark(2, path), *lines, ""])


def variants(path: Path) -> list[str]:
    """Words of the shader's `// variants:` line; one empty word without it."""
    match = VARIANTS_LINE.search(path.read_text())
    return match[1].split() if match else [""]


def compile_all(root: Path = SOURCE_ROOT) -> dict[Path, bytes]:
    """Path and content of every SPIR-V file that the sources define."""
    compiler = Glslang()
    jobs = [(path, variant) for path in sorted(root.rglob("*.comp")) for variant in variants(path)]

    def work(job: tuple[Path, str]) -> tuple[Path, bytes]:
        path, variant = job
        name = f"{path.stem}_{variant}" if variant else path.stem
        return path.with_name(name + ".spv"), compiler.compile(flattened_variant(path, variant), name)

    with ThreadPoolExecutor() as pool:
        return dict(pool.map(work, jobs))


def differences(expected: dict[Path, bytes], root: Path = SOURCE_ROOT) -> list[Path]:
    """SPIR-V files that are missing, stale or without a source."""
    present = {path: path.read_bytes() for path in root.rglob("*.spv")}
    return sorted(path for path in expected.keys() | present.keys() if expected.get(path) != present.get(path))


def main() -> int:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description="Compile the shaders of vkconv to SPIR-V.")
    parser.add_argument("--check", action="store_true", help="compare with the checked-in files instead of writing")
    arguments = parser.parse_args()
    try:
        expected = compile_all()
    except (ShaderError, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    changed = differences(expected)
    for path in changed:
        print(("differs: " if arguments.check else "writing: ") + str(path.relative_to(SOURCE_ROOT)))
        if not arguments.check:
            path.write_bytes(expected[path]) if path in expected else path.unlink()
    print(f"{len(expected)} shaders, {sum(map(len, expected.values()))} bytes")
    return 1 if arguments.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
