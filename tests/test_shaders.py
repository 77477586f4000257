"""The SPIR-V checked in is what the sources compile to. Needs the compiler that tools/compile_shaders.py names."""

import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def load_tool():
    """tools/compile_shaders.py as a module: tools/ is not a package."""
    spec = importlib.util.spec_from_file_location("compile_shaders", REPOSITORY / "tools" / "compile_shaders.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_shader_has_its_variants_checked_in():
    tool = load_tool()
    sources = sorted(tool.SOURCE_ROOT.rglob("*.comp"))
    expected = {
        path.with_name(f"{path.stem}_{variant}.spv" if variant else f"{path.stem}.spv")
        for path in sources
        for variant in tool.variants(path)
    }
    assert expected == set(tool.SOURCE_ROOT.rglob("*.spv"))


def test_checked_in_spirv_is_up_to_date():
    if importlib.util.find_spec("slangpy") is None:
        pytest.skip("the shader compiler is not installed")
    tool = load_tool()
    expected = tool.compile_all()
    assert [str(path) for path in tool.differences(expected)] == []


def test_a_wrong_shader_is_reported_with_its_line(tmp_path):
    if importlib.util.find_spec("slangpy") is None:
        pytest.skip("the shader compiler is not installed")
    tool = load_tool()
    bad = tmp_path / "bad.comp"
    bad.write_text("#version 460\nvoid main() {\n  undeclared = 1;\n}\n")
    with pytest.raises(tool.ShaderError, match=r"bad\.comp:3:.*undeclared"):
        tool.Glslang().compile(tool.flattened_variant(bad, "f32"), "bad_f32")
