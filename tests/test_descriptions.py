"""Described devices: plans and explanations for devices that are not here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import vkconv

NAMES = ("h100", "h200", "integrated", "lavapipe")
DENSE = "fwd_f32_n8c128o128_i28x28_k3x3_p1x1"


def changed(name: str, **fields: object) -> vkconv.DeviceDescription:
    """A committed description with other features, limits or rates."""
    data = json.loads(vkconv.describe_device(name).json)
    for key, value in fields.items():
        owner = next((data[part] for part in ("features", "limits", "rates") if key in data[part]), data)
        assert key in owner
        owner[key] = value
    return vkconv.DeviceDescription(json.dumps(data))


def seconds(problem: str, device: object) -> dict[str, float | None]:
    return {c.algorithm: c.seconds for c in vkconv.explain(problem, device=device).candidates}


def test_names():
    assert vkconv.described_devices() == list(NAMES)
    for name in NAMES:
        description = vkconv.describe_device(name)
        assert json.loads(description.json)["name"] in repr(description)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "problem",
    [DENSE, "fwd_f16_n2c64o64_i56x56_k3x3_p1x1", "fwd_f32_n1c384o384g384_i60x60_k3x3_p1x1",
     "fwd_bf16_n1c128o128_i16x32x32_k3x3x3_p1x1x1", "igrad_f32_n4c64o64_i28x28_k3x3_s2x2_p1x1",
     "wgrad_f32_n4c64o64_i28x28_k3x3_p1x1", "fwd_f32_n1c80o512_i3000_k3_p1", "fwd_f64_n1c8o8_i14x14_k1x1"],
)  # fmt: skip
def test_every_device_has_a_plan(name, problem):
    told = vkconv.explain(problem, device=vkconv.describe_device(name))
    assert told.plan and told.algorithm in seconds(problem, vkconv.describe_device(name))
    best = min(c.seconds for c in told.candidates if c.seconds is not None)
    assert 0 < best < (1e-2 if name in ("h100", "h200") else 1e2)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("layer", ["n1c512o512_i128x128_k3x3_p1x1", "n1c256o256_i8x64x64_k3x3x3_p1x1x1"])
def test_winograd_in_halves_wants_its_bound(layer, dtype):
    """Points that are themselves halves have F2's error; F4's is for precision "fast"."""
    h200 = vkconv.describe_device("h200")

    def told(precision: str, algorithm: str | None = None) -> vkconv.Explanation:
        return vkconv.explain(f"fwd_{dtype}_{layer}{precision}", device=h200, algorithm=algorithm)

    assert told("", "winograd").plan.startswith("winograd_f2(")
    assert "_f4" not in told("").plan
    assert told("_fast").plan.startswith("winograd_f4(")
    assert all(c.seconds is None for c in told("_highest").candidates if "winograd" in c.algorithm)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("layer", ["n8c3o768_i224x224_k16x16_s16x16", "n8c3o768_i224x224_k32x32_s32x32"])
def test_patches_are_for_matrix_units(layer, dtype):
    """Also where shared memory holds a row of them only."""
    told = vkconv.explain(f"fwd_{dtype}_{layer}", device=vkconv.describe_device("h200"))
    assert told.algorithm == "direct_matrix"


def test_faster_devices_are_estimated_faster():
    def best(problem: str) -> list[float]:
        return [min(s for s in seconds(problem, vkconv.describe_device(n)).values() if s) for n in NAMES]

    h100, h200, integrated, lavapipe = best(DENSE)
    assert max(h100, h200) < integrated / 10 < lavapipe / 10
    h100, h200, *_ = best("fwd_f32_n32c384o384g384_i64x64_k3x3_p1x1")
    assert h200 < h100 / 1.2, "memory bounds it"


def test_the_plan_follows_features_limits_and_rates():
    f64 = DENSE.replace("f32", "f64")
    lacking = vkconv.explain(f64, device=changed("integrated", float64=False))
    assert lacking.plan is None and "f64" in str(lacking)
    slow = seconds(DENSE, changed("h200", f32_flops_per_second=57e9))["implicit_gemm"]
    fast = seconds(DENSE, changed("h200", f32_flops_per_second=57e12))["implicit_gemm"]
    assert slow > 10 * fast
    largest = changed("lavapipe", max_operand_elements=100_000)
    told = vkconv.explain(DENSE, device=largest)
    assert next(c for c in told.candidates if c.algorithm == "split").seconds is not None


@pytest.mark.parametrize("name", NAMES)
def test_reasons_are_readable(name):
    assert "9223372036854775807" not in repr(vkconv.explain(DENSE, device=vkconv.describe_device(name)))


def test_operations_are_explained_and_not_computed():
    h200 = vkconv.describe_device("h200")
    x, w = np.ones((1, 9, 9, 4), np.float32), np.ones((8, 3, 3, 4), np.float32)
    told = vkconv.explain(vkconv.conv2d, x, w, device=h200)
    assert told.device == "described: NVIDIA H200" and told.plan
    assert vkconv.explain(vkconv.conv2d, vkconv.array(x, "cpu"), w, device=h200).plan == told.plan
    with pytest.raises(vkconv.DeviceError, match="a description of a device"):
        vkconv.conv2d(x, w, device=h200)


def test_a_real_device_describes_itself():
    name = next((d.name for d in vkconv.devices() if d.kind != "cpu"), None)
    if name is None:
        pytest.skip("no Vulkan device")
    told = vkconv.explain(DENSE, device=name)
    described = vkconv.explain(DENSE, device=vkconv.describe_device(name))
    assert described.plan == told.plan and described.candidates == told.candidates
    again = vkconv.DeviceDescription(vkconv.describe_device(name).json)
    assert again.json == vkconv.describe_device(name).json


def test_measured_rates_are_used():
    """A device of this machine that a description is about is planned for with its rates."""
    known = {(d["vendor_id"], d["device_id"]): d["rates"]
             for d in (json.loads(vkconv.describe_device(n).json) for n in NAMES)}  # fmt: skip
    for device in vkconv.devices()[1:]:
        data = json.loads(vkconv.describe_device(device.name).json)
        rates = known.get((data["vendor_id"], data["device_id"]))
        assert rates is None or rates == pytest.approx(data["rates"])


@pytest.mark.parametrize(
    "text, message",
    [("", "empty string"), ("{", "offset 1"), ("[1]", "not an object"), ('{"name": 3}', "name is not a string"),
     ('{"nme": "x"}', 'no field "nme"'), ('{"type": "toaster"}', '"toaster"'), ('{"vendor_id": -1}', "vendor_id"),
     ('{"vendor_id": 4294967296}', "too large"), ('{"vendor_id": 1.5}', "integer"), ('{"a": 1} 2', "follows"),
     ('{"features": {"float16": 1}}', "float16"), ('{"rates": {"launch_seconds": -1}}', "negative"),
     ('{"limits": {"workgroup_size": [1, 2]}}', "three"), ('{"name": "a\\u0041"}', "escape"), ("[" * 40, "deep"),
     ('{"cooperative_matrices": [{"operand": "f8"}]}', "f8"), ('{"name": "a', "does not end"),
     ('{"name": "a\\', "does not end"), ('{"name" 3}', "wanted ':'"), ('{"name": "a"', "wanted '}'"),
     ('{"cooperative_matrices": [1, 2}', "wanted ']'"), ('{"vendor_id": 1.2.3}', "wanted a value"),
     ('{"vendor_id": null}', "not a number"), ('{"vendor_id": "1"}', "not a number"),
     ('{"limits": {"shared_memory_bytes": 0}}', "shared_memory_bytes is 0, wanted at least 16384"),
     ('{"limits": {"workgroup_invocations": 0}}', "wanted at least 128"),
     ('{"limits": {"workgroup_size": [128, 128, 0]}}', "workgroup_size is 0, wanted at least 64"),
     ('{"limits": {"subgroup_size": 0}}', "power of two"),
     ('{"cooperative_matrices": [{"m": 16, "n": 0, "k": 16}]}', "cooperative matrix is 0, wanted at least 1")],
)  # fmt: skip
def test_descriptions_that_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        vkconv.DeviceDescription(text)


@pytest.mark.skipif(not shutil.which("localedef"), reason="needs localedef, to make a locale")
def test_numbers_are_those_of_json_in_every_locale(tmp_path):
    """A locale with a decimal comma, as programs with a user interface set it."""
    command = ["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de"]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no sources of locales")
    code = (
        "import json, locale, vkconv; locale.setlocale(locale.LC_ALL, 'de');"
        "h200 = vkconv.describe_device('h200');"
        "print(locale.localeconv()['decimal_point'], vkconv.DeviceDescription(h200.json).json == h200.json,"
        "      json.loads(h200.json)['rates']['launch_seconds'])"
    )
    told = subprocess.run([sys.executable, "-c", code], env={**os.environ, "LOCPATH": str(tmp_path)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    launch = json.loads(vkconv.describe_device("h200").json)["rates"]["launch_seconds"]
    assert told.stdout.split() == [",", "True", str(launch)]


def test_arguments():
    assert repr(vkconv.DeviceDescription(' {"name": "a \\"b\\""} ')) == '<vkconv.DeviceDescription a "b">'
    assert repr(vkconv.DeviceDescription(r'{"name": "\\\\a\\new"}')) == r"<vkconv.DeviceDescription \\a\new>"
    for call, value, error in (
        (vkconv.DeviceDescription, None, TypeError),
        (vkconv.DeviceDescription, b"{}", TypeError),
        (vkconv.describe_device, None, TypeError),
        (vkconv.describe_device, "cpu", ValueError),
        (vkconv.describe_device, "gtx", ValueError),
        (vkconv.describe_device, "vulkan:1000", vkconv.DeviceError),
    ):
        with pytest.raises(error):
            call(value)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("rest", ["n32c64o64_i56x56_k3x3_p1x1", "n32c1024o256_i14x14_k1x1", "n2c80o96_i4x9x9_k3x3x3"])
def test_weight_gradients_run_on_tensor_cores(dtype, rest):
    h200 = vkconv.describe_device("h200")
    assert vkconv.explain(f"wgrad_{dtype}_{rest}", device=h200).algorithm == "weight_grad_matrix"


@pytest.mark.parametrize(
    "problem, plan",
    [
        ("fwd_f16_n32c3o64_i224x224_k7x7_s2x2_p3x3", "direct_matrix"),
        ("fwd_f16_n8c3o768_i224x224_k14x14_s14x14", "direct_matrix"),
        ("fwd_f32_n8c3o64_i224x224_k7x7_s2x2_p3x3", "direct_matrix(split)"),
        ("fwd_f16_n1c1280o1280_i8x38x26_k3x3x3_p1x1x1", "direct_matrix(split k)"),
        ("fwd_f16_n2c320o256_i8x8x8_k2x2x2_t2x2x2_p1x1x1_flip", "transpose_phases(8x direct_matrix)"),
        ("fwd_f16_n1c1o1_i2062x2062_k15x15", "image_filter"),
        ("fwd_f32_n1c128o128g128_i56x56_k31x31_p15x15", "image_filter"),
        ("fwd_f32_n1c384o384g384_i60x60_k3x3_p1x1", "depthwise"),
    ],
)
def test_the_fastest_plans_measured_on_an_h200(problem, plan):
    assert vkconv.explain(problem, device=vkconv.describe_device("h200")).plan == plan
