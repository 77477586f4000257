"""python -m vkconv, as a person at a shell meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vkconv
from vkconv._cli import hard_cases, main, render
from vkconv._problem_call import problem_call

PROBLEM = "fwd_f32_n1c8o8_i9x9_k3x3_p1x1"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vkconv", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_info_tells_version_threads_and_devices() -> None:
    told = run("info")
    assert told.returncode == 0, told.stderr
    assert f"vkconv {vkconv.version}" in told.stdout
    assert f"threads         {vkconv.num_threads()}" in told.stdout
    assert all(f"{device.name}: " in told.stdout for device in vkconv.devices())
    assert told.stderr == ""


def test_info_json_is_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["version"] == vkconv.version
    assert [d["name"] for d in told["devices"]] == [d.name for d in vkconv.devices()]
    assert told["devices"][0]["properties"]["instruction_set"]


def test_explain_lists_every_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", PROBLEM, "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert f"problem    {PROBLEM}" in out
    assert all(name in out for name in vkconv.algorithms("cpu"))


def test_explain_for_a_device_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", PROBLEM, "--device", "h200"]) == 0
    assert "device     described: NVIDIA H200" in capsys.readouterr().out


def test_explain_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", PROBLEM, "--device", "cpu", "--algorithm", "reference", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["plan"] == "reference"
    assert {c["algorithm"] for c in told["candidates"]} == set(vkconv.algorithms("cpu"))


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        "fwd_f32_n2c4o4g2_i9_k3_s2_d2_p1:2_bias_leaky_relu0.1_highest",
        "fwd_f64_n1c2o2_i5x6x7_k3x2x1_t2x1x1_flip",
        "fwd_f16_n1c3o2_i8x8_k3x3_clip-1:2",
        "igrad_f32_n1c8o8_i9x9_k3x3_s2x2_p1x1",
        "wgrad_f32_n1c8o8_i9x9_k3x3_p1x1",
        "fwd_f32_n0c8o8_i9x9_k3x3",
        "fwd_f32_n2c0o8_i9x9_k3x3",
    ],
)
def test_bench_times_and_checks_every_algorithm(capsys: pytest.CaptureFixture[str], problem: str) -> None:
    assert main(["bench", problem, "--device", "cpu", "--all", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    told = vkconv.explain(problem, device="cpu")
    assert {r["algorithm"] for r in rows} == {c.algorithm for c in told.candidates if c.seconds is not None}
    assert [r["algorithm"] for r in rows if r["chosen"]] == [told.algorithm]
    assert all(r["ms"] > 0 and r["right"] is not False for r in rows)


def test_bench_makes_the_call_of_its_problem() -> None:
    for problem in (
        PROBLEM,
        "igrad_f32_n1c8o8_i9x9_k3x3_s2x2_p1x1",
        "fwd_f32_n1c4o6_i9x7_k2x3_s1x2_d1x2_p0:1x2_bias_relu",
    ):
        function, operands, options = problem_call(problem)
        assert vkconv.explain(function, *operands, **options, device="cpu").problem == problem


def test_an_addend_has_no_call() -> None:
    with pytest.raises(ValueError, match="no call of one operation"):
        problem_call(f"{PROBLEM}_add_relu")


def test_bench_checks_gradients_and_activations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "wgrad_f16_n1c8o8_i9x9_k3x3", f"{PROBLEM}_relu", "--device", "cpu", "--json"]) == 0
    assert [row["right"] for row in json.loads(capsys.readouterr().out)] == [True, True]


def test_no_command_tells_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr().out
    assert all(command in told for command in ("info", "explain", "bench", "tune", "demo"))
    assert len(told.splitlines()) < 20


def test_json_has_no_infinities() -> None:
    text = render.as_json({"a": [1.5, float("inf")], "b": (float("nan"), "x")})
    assert json.loads(text) == {"a": [1.5, None], "b": [None, "x"]}


@pytest.mark.parametrize("rich", [True, False])
def test_tables_and_progress_on_a_terminal(
    rich: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if rich:
        pytest.importorskip("rich")
    else:
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with render.Progress(2) as progress:
        progress.step("the first")
        progress.step("the second")
    render.table("a title", ("name", "ms"), [("one", "1.5"), ("two", "12.5")], right=("ms",))
    out, err = capsys.readouterr()
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines.index("  one     1.5") + 1 == lines.index("  two    12.5") if rich else "  one    1.5" in lines
    assert "a title" in out and ("─" in out) == rich
    assert rich or "[2/2] the second" in err


def test_sizes_and_times() -> None:
    assert [render.size(n) for n in (1023, 1024, 3 << 20, 5 << 40)] == ["1023 B", "1.0 KiB", "3.0 MiB", "5120.0 GiB"]
    assert [render.milliseconds(s) for s in (5e-6, 5e-3, 0.05, 5)] == ["0.005", "5.00", "50.0", "5000"]


def test_a_reader_that_stops_is_no_error() -> None:
    script = f"{sys.executable} -m vkconv explain {PROBLEM} --json | head -n 1"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=600)
    assert told.stdout == "{\n" and told.stderr == ""


def test_bench_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", PROBLEM, "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert PROBLEM in out and "measured, ms" in out and "right" in out


def test_explain_says_when_nothing_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", PROBLEM, "--device", "cpu", "--algorithm", "depthwise"]) == 1
    assert "none: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["explain", "fwd_f32_n1c8o8_i9x9_k3x3_sideways"], "sideways"),
        (["explain", PROBLEM, "--device", "toaster"], "toaster"),
        (["demo", "--photo", "no-such-file.jpg"], "no-such-file.jpg"),
        (["demo", "--device", "toaster"], "toaster"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(words: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    if words[0] == "demo":
        pytest.importorskip("PIL")
        pytest.importorskip("rich")
    assert main(words) == 2
    error = capsys.readouterr().err.strip()
    assert named in error
    assert "\n" not in error


def test_demo_checks_its_answers_and_writes_the_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 52, 3), np.uint8)
    image.fromarray(pixels).save(tmp_path / "photo.png")
    monkeypatch.setattr(hard_cases, "CPU_FLOPS", 1e8)
    arguments = [
        "demo",
        "--photo",
        str(tmp_path / "photo.png"),
        "--out",
        str(tmp_path / "sheet.png"),
        "--device",
        "cpu",
    ]
    status = main(arguments)
    out = capsys.readouterr().out
    assert status == 0, out
    assert "photograph: 52x40 pixels" in out
    assert " 0 wrong" in out
    assert image.open(tmp_path / "sheet.png").size[0] > 1000
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["wrong"] == [] and {"op", "problem", "plan", "device", "ms", "error"} == set(told["answers"][0])


def test_demo_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert main(["demo", "--json"]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and "pip install 'vkconv[demo]'" in error


def test_demo_fails_when_an_answer_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((24, 24, 3), 100, np.uint8)).save(tmp_path / "photo.png")
    monkeypatch.setattr(hard_cases, "CPU_FLOPS", 1e7)
    right, explain = vkconv.conv2d, vkconv.explain

    def conv2d(*args: object, **kwargs: object) -> object:
        return right(*args, **kwargs) + np.float32(0.01)  # type: ignore[arg-type]

    monkeypatch.setattr(vkconv, "conv2d", conv2d)
    monkeypatch.setattr(vkconv, "explain", lambda op, *a, **k: explain(right if op is conv2d else op, *a, **k))
    out = str(tmp_path / "sheet.png")
    assert main(["demo", "--photo", str(tmp_path / "photo.png"), "--out", out, "--device", "cpu"]) == 1
    assert "edges on cpu" in capsys.readouterr().out


def test_plain_tables_align_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    render.table("title", ("name", "ms"), [("a", "1.5"), ("longer", "10")], right=("ms",))
    assert capsys.readouterr().out == "\ntitle\n  name     ms\n  a       1.5\n  longer   10\n"


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with render.Progress(2) as progress:
        progress.step("first")
    assert capsys.readouterr() == ("", "")
