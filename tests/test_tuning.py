"""tune: what is measured and verified, what files may say, and that the planner listens."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import vkconv
from vkconv import _core, _tune
from vkconv._cli import main
from vkconv._tuning import FORMAT

PROBLEM = "fwd_f32_n1c8o8_i9x9_k3x3_p1x1"
OTHER = "unfold_gemm"  # able to run PROBLEM, and not the plan


@pytest.fixture(autouse=True)
def untuned() -> Iterator[None]:
    vkconv.clear_tuning()
    yield
    vkconv.clear_tuning()


def plan(problem: str = PROBLEM, **options: object) -> str | None:
    return vkconv.explain(problem, device="cpu", **options).algorithm


def file_of(path: Path, **changes: object) -> Path:
    choices = {PROBLEM: {"algorithm": OTHER, "ms": 1.0, "planned": "implicit_gemm", "planned_ms": 2.0}}
    devices = {_core.device_identity("cpu"): choices}
    path.write_text(json.dumps({"format": FORMAT, "version": vkconv.version, "devices": devices} | changes))
    return path


def test_a_loaded_choice_is_planned_and_taken_back(tmp_path, clean_cache):
    before = plan()
    assert before != OTHER
    assert vkconv.load_tuning(file_of(tmp_path / "t.json")) == 1
    assert plan() == OTHER
    told = vkconv.explain(PROBLEM, device="cpu")
    assert [c.algorithm for c in told.candidates if c.tuned] == [OTHER]
    assert f"plan       {OTHER}, chosen by tuning\n" in repr(told)
    x, w = np.ones((1, 9, 9, 8), np.float32), np.ones((8, 3, 3, 8), np.float32)
    assert vkconv.explain(vkconv.conv2d, x, w, padding=1, device="cpu").algorithm == OTHER
    assert vkconv.explain(vkconv.prepare(w, padding=1, device="cpu"), x).algorithm == OTHER
    assert plan(algorithm="reference") == "reference"
    vkconv.clear_tuning()
    assert plan() == before


def test_a_choice_that_cannot_run_is_not_taken(tmp_path):
    problem = PROBLEM.replace("c8o8", "c32o32g32")
    before = plan(problem)
    for name in ("winograd", "no_such_algorithm", "input_grad"):
        choices = {_core.device_identity("cpu"): {problem: {"algorithm": name}}}
        assert vkconv.load_tuning(file_of(tmp_path / "t.json", devices=choices)) == 1
        assert plan(problem) == before != name


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not of the format"),
        (b'{"format": "vkconv tuning 2", "devices": {}}', "not of the format"),
        ({"version": "0.0.1"}, r"measured with vkconv 0\.0\.1"),
        ({"devices": {"cpu of another age": {PROBLEM: {"algorithm": OTHER}}}}, "for other devices: cpu of another age"),
        ({"devices": {"cpu": 3}}, "not algorithms by problem"),
        ({"devices": {"cpu": {PROBLEM: {"algorithm": 3}}}}, "not algorithms by problem"),
        ({"devices": {"HERE": {"fwd_nonsense": {"algorithm": OTHER}}}}, "nonsense"),
        ({"devices": {"HERE": {"\udc80": {"algorithm": OTHER}}}}, "problem string is .* wanted text"),
        ({"devices": {"HERE": {PROBLEM: {"algorithm": "\udc80"}}}}, "algorithm is .* wanted text"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_a_bad_file_is_ignored_with_one_warning(tmp_path, content, reason):
    path = tmp_path / "t.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        here = _core.device_identity("cpu")
        content = json.loads(json.dumps(content).replace("HERE", here))
        file_of(path, **content)
    before = plan()
    with pytest.warns(RuntimeWarning, match=reason) as caught:
        assert vkconv.load_tuning(path) == 0
    assert len(caught) == 1
    assert plan() == before


def test_every_prefix_of_a_file_is_ignored_or_whole(tmp_path):
    text = file_of(tmp_path / "whole.json").read_text()
    for length in range(0, len(text), 7):
        (tmp_path / "cut.json").write_text(text[:length])
        with pytest.warns(RuntimeWarning, match="is ignored"):
            assert vkconv.load_tuning(tmp_path / "cut.json") == 0


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        vkconv.load_tuning(tmp_path / "missing.json")


def test_the_environment_names_a_file(tmp_path):
    code = f"import vkconv; print(vkconv.explain({PROBLEM!r}, device='cpu').algorithm)"
    for path, said in ((file_of(tmp_path / "t.json"), ""), (tmp_path / "missing.json", "is ignored")):
        environment = os.environ | {"VKCONV_TUNING_FILE": str(path)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=600
        )
        assert (done.stdout.strip() == OTHER) == (said == "")
        assert said in done.stderr and bool(done.stderr) == bool(said)


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        "fwd_f64_n2c4o6g2_i9x8_k3x2_s2x1_p1:0x1_bias_leaky_relu3",
        "fwd_f16_n1c6o5_i7x8x9_k2x3x3_t2x1x2_silu",
        "fwd_f32_n1c8o8_i9x9_k3x3_s1x2_p1x1_add_bias_relu",
        "fwd_f32_n1c2o4_i9_k3_clip-inf:1",
        "fwd_f32_n3c8o60g4_i15_k1_t2_p-1_bias_gelu",  # of some results, the bias is all there is
        "fwd_f16_n1c40o8g8_i7x5x5_k1x2x3_s1x5x1_t2x1x1_p-2:1x1x3:-2_highest",  # a sum between two halves
        "igrad_f32_n1c8o8_i9x9_k3x3_s2x2_p1x1",
        "wgrad_f32_n1c8o8_i9x9_k3x3_p1x1",
    ],
)
def test_every_right_algorithm_is_verified_and_a_wrong_one_never_wins(problem, device, monkeypatch):
    task = _tune.Task(device, vkconv.explain(problem, device=device).problem, prepared=False)
    runs = _tune.Runs(task)
    expected = _tune.Expected(runs, budget=60.0)
    able = [c for c in vkconv.explain(problem, device=device).candidates if c.seconds is not None]
    for c in able:
        result = runs.of(c.algorithm)()
        host = result if isinstance(result, np.ndarray) else result.numpy()
        assert expected.met_by(host), c.algorithm
        wrong = host.copy()
        wrong.flat[-1] += 0.05 * max(1, abs(float(wrong.flat[-1])))
        assert not expected.met_by(wrong)
    monkeypatch.setattr(_tune.Expected, "met_by", lambda self, result: False)
    found = vkconv.tune(problem, seconds=60, device=device)
    assert not found.choices
    assert found.kept if len(able) == 2 else "agrees with the reference" in next(iter(found.skipped.values()))


def make_up_times(monkeypatch, other: float, rest: float) -> None:
    """What is measured decides, not the estimate."""
    real = _tune.Runs.of

    def named(self, algorithm):
        call = real(self, algorithm)
        call.algorithm = algorithm
        return call

    monkeypatch.setattr(_tune.Runs, "of", named)
    monkeypatch.setattr(_tune, "_seconds", lambda call: other if call.algorithm == OTHER else rest)


def test_the_fastest_is_taken(monkeypatch, tmp_path):
    make_up_times(monkeypatch, 1e-3, 2e-3)
    found = vkconv.tune([PROBLEM], seconds=5, device="cpu")
    (choice,) = found.choices
    assert (choice.algorithm, choice.seconds, choice.planned_seconds) == (OTHER, 1e-3, 2e-3)
    assert plan() == OTHER
    found.save(tmp_path / "t.json")
    vkconv.clear_tuning()
    assert vkconv.load_tuning(tmp_path / "t.json") == 1
    assert plan() == OTHER


def test_the_command_says_what_was_added(monkeypatch, tmp_path, capsys):
    command = ["tune", PROBLEM, "--device", "cpu", "--seconds", "1", "--out", str(tmp_path / "t.json")]
    make_up_times(monkeypatch, 1e-3, 2e-3)
    assert main(command) == 0
    assert "\n1 choice added;" in capsys.readouterr().out
    assert main(command) == 0
    assert "\nno choices to add;" in capsys.readouterr().out
    assert vkconv.load_tuning(tmp_path / "t.json") == 1
    assert main([*command[:-1], str(tmp_path / "nowhere" / "t.json")]) == 2
    told = capsys.readouterr()
    assert PROBLEM in told.out and "No such file" in told.err


def test_a_gain_within_noise_changes_nothing(monkeypatch):
    make_up_times(monkeypatch, 0.98e-3, 1e-3)
    found = vkconv.tune(PROBLEM, seconds=5, device="cpu")
    assert (found.choices, found.kept, found.skipped) == ((), (PROBLEM,), {})


def test_files_are_added_to(tmp_path):
    path = tmp_path / "t.json"
    for problem in (PROBLEM, PROBLEM.replace("i9x9", "i8x8")):
        vkconv.Tuning((vkconv.Choice("cpu", problem, OTHER, 1.0, "winograd", 2.0),), (), {}).save(path)
    assert vkconv.load_tuning(path) == 2
    path.write_text("damaged")
    vkconv.Tuning((vkconv.Choice("cpu", PROBLEM, OTHER, 1.0, "winograd", 2.0),), (), {}).save(path)
    assert vkconv.load_tuning(path) == 1


def test_processes_may_save_at_once(tmp_path):
    path = tmp_path / "t.json"
    tuning = vkconv.Tuning((vkconv.Choice("cpu", PROBLEM, OTHER, 1.0, "winograd", 2.0),), (), {})
    fork = multiprocessing.get_context("fork")
    savers = [fork.Process(target=lambda: [tuning.save(path) for _ in range(200)]) for _ in range(2)]
    for saver in savers:
        saver.start()
    for saver in savers:
        saver.join()
    assert [saver.exitcode for saver in savers] == [0, 0]
    assert vkconv.load_tuning(path) == 1 and list(tmp_path.iterdir()) == [path]


def test_the_problems_of_a_callable_are_tuned():
    x, w = np.ones((1, 9, 9, 8), np.float32), np.ones((8, 3, 3, 8), np.float32)
    conv = vkconv.prepare(w, padding=1, device="cpu")
    residual = vkconv.prepare(w, padding=1, activation="relu", device="cpu")

    def program() -> None:
        vkconv.conv2d(x, w, padding=1, device="cpu")
        vkconv.conv2d(x, w, padding=1, device="cpu", algorithm="reference")
        conv(x[:, :7])
        residual(x, addend=x)

    tasks = {t.problem: t.prepared for t in _tune._tasks(program, None, False)}
    assert sorted(tasks.values()) == [False, True, True]
    assert {PROBLEM: False, PROBLEM.replace("i9x9", "i7x9"): True}.items() <= tasks.items()
    found = vkconv.tune(program, seconds=5)
    assert len(found.choices) + len(found.kept) == 3 and not found.skipped
    assert _core.noted_problems(False) == []


def test_callables_may_be_tuned_within_and_beside_each_other():
    w = np.ones((8, 3, 3, 8), np.float32)
    extents = {n: PROBLEM.replace("i9x9_k3x3_p1x1", f"i{n}x9_k3x3") for n in (5, 6, 7)}

    def convolve(n: int) -> None:
        vkconv.conv2d(np.ones((1, n, 9, 8), np.float32), w, device="cpu")

    def outer() -> None:
        convolve(5)
        assert set(noted(lambda: convolve(6))) == {extents[6]}
        convolve(7)

    def noted(program: Callable[[], None]) -> list[str]:
        return [t.problem for t in _tune._tasks(program, None, False)]

    assert set(noted(outer)) == set(extents.values())
    barrier = threading.Barrier(2)

    def beside(n: int) -> None:
        barrier.wait(timeout=60)
        convolve(n)
        barrier.wait(timeout=60)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda n: noted(lambda: beside(n)), (5, 6)))
    assert all(set(problems) == {extents[5], extents[6]} for problems in found)
    assert _core.noted_problems(False) == []


def test_what_cannot_be_verified_in_time_is_left_alone():
    found = vkconv.tune("fwd_f32_n1c64o64_i56x56_k3x3_p1x1", seconds=1e-3, device="cpu")
    assert "its reference takes" in next(iter(found.skipped.values()))
    with pytest.raises(ValueError, match="seconds is 0"):
        vkconv.tune(PROBLEM, seconds=0)
    with pytest.raises(TypeError, match="seconds must be a number, got str"):
        vkconv.tune(PROBLEM, seconds="1")
    for wrong in (3, [3], None):
        with pytest.raises(TypeError, match="target must be"):
            vkconv.tune(wrong)


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path):
    found = vkconv.Tuning((), (), {})
    for path in (tmp_path, tmp_path / "absent" / "t.json"):
        with pytest.raises(OSError, match=rf"{path.name}'$"):
            found.save(path)
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}.*"))


def test_what_does_not_fit_in_memory_is_skipped():
    too_large = "fwd_f32_n1000000c800o800_i900x900_k3x3_p1x1"
    found = vkconv.tune([too_large, PROBLEM], seconds=1, device="cpu")
    assert "allocate" in found.skipped[too_large] and len(found.kept) + len(found.choices) == 1


def test_the_command(tmp_path, capsys):
    path = tmp_path / "t.json"
    assert main(["tune", PROBLEM, "--device", "cpu", "--seconds", "1", "--out", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [c["problem"] for c in told["choices"]] + told["kept"] == [PROBLEM]
    assert json.loads(path.read_text())["format"] == FORMAT
    assert main(["tune", PROBLEM, "--device", "cpu", "--seconds", "1"]) == 0
    assert PROBLEM in capsys.readouterr().out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert vkconv.load_tuning(path) == len(told["choices"])
