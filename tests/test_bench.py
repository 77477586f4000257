"""The bench: its cases are the convolutions they say, its peers agree with fp64, its report adds up."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkconv
import vkconv.ndimage

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from bench import calibrate, cases, gpu, peers, planner_regret, plot, report, scipy_calls, table, timing  # noqa: E402
from bench.peers import vkconv_own  # noqa: E402
from bench.reference import Reference  # noqa: E402

ALL = cases.select("all") + cases.select("peers")
FLOP_LIMIT = 2e6


def test_the_suite_is_whole() -> None:
    assert len(cases.select("all")) == 90
    assert len(cases.select("peers")) == 22
    assert {c.name for c in cases.select("core")} < {c.name for c in cases.select("all")}


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_problem_strings_are_read_back(case: cases.Case) -> None:
    zero_padded = case.zero_padded()
    told = vkconv.explain(zero_padded.problem, device="cpu")
    assert told.plan
    mini = case.mini(FLOP_LIMIT).zero_padded()
    operands = [np.zeros(shape, cases.dtype_of(mini.dtype)) for shape in (mini.x, mini.w)]
    whole = vkconv.explain(vkconv.conv_general, *operands, device="cpu", **mini.as_general)
    assert whole.problem == vkconv.explain(mini.problem, device="cpu").problem


@pytest.mark.parametrize("case", cases.select("peers"), ids=lambda c: c.name)
def test_installed_peers_compute_the_same(case: cases.Case) -> None:
    mini = case.mini(FLOP_LIMIT)
    operands = mini.operands()
    mini = mini.zero_padded()
    reference = Reference(mini, *operands)
    for peer in peers.find("onnx_runtime,mlx_cpu").peers:
        try:
            run = peer.run(mini, operands, 1)
        except peers.Refusal:
            continue
        assert reference.error(run.output(run.call())) <= reference.tolerance, peer.name


def test_a_rest_outlasts_threads_that_spin() -> None:
    def spin() -> None:
        while time.thread_time() < 0.1:
            pass

    spinning = threading.Thread(target=spin)
    spinning.start()
    timing.rest(0.01)
    assert not spinning.is_alive()


@pytest.mark.parametrize("direction", ["input_grad", "weight_grad"])
@pytest.mark.parametrize("geometry", [{}, {"groups": 2, "flip": True}, {"kernel_dilation": (2, 1), "stride": (2, 3)}])
def test_gradients_are_held_against_fp64(direction: str, geometry: dict[str, Any]) -> None:
    case = cases.Case(
        "odd", "", (2, 9, 8, 4), (6, 3, 2, 4 // geometry.get("groups", 1)), geometry.get("stride", (1, 1)),
        ((1, 0), (0, 2)), geometry.get("kernel_dilation", (1, 1)), geometry.get("groups", 1),
        transposed=geometry.get("flip", False), direction=direction,
    )  # fmt: skip
    own = vkconv_own.contenders("cpu", ["vkconv"])[0]
    operands = case.operands()
    reference, run = Reference(case, *operands), own.run(case, operands, vkconv.num_threads())
    answer = run.output(run.call())
    assert reference.error(answer) <= reference.tolerance
    answer[(0,) * answer.ndim] += 1e-2
    assert reference.error(answer) > reference.tolerance


def test_only_peers_with_gradients_are_asked_for_them() -> None:
    case = next(c for c in cases.select("training") if c.direction == "weight_grad").mini(FLOP_LIMIT)
    peer = peers.Peer("forward only", "1.0", lambda *_: pytest.fail("asked"))  # type: ignore[arg-type]
    with pytest.raises(peers.Refusal, match="gradients"):
        peer.run(case, case.operands(), 1)


def test_a_scaled_case_keeps_its_channels_and_kernel() -> None:
    case = next(c for c in ALL if c.name == "seed0_t41_60x104_256")
    mini = case.mini(1e9)
    assert mini.name == case.name + cases.MINI
    assert mini.flops <= 1e9
    assert (mini.w, mini.x[-1], mini.stride, mini.pads) == (case.w, case.x[-1], case.stride, case.pads)
    assert case.mini(1e15) is case


def test_a_wrong_answer_is_seen() -> None:
    case = cases.select("peers")[0].mini(FLOP_LIMIT)
    x, w = case.arrays()
    y = vkconv.conv_general(x, w, device="cpu", **case.as_general)
    reference = Reference(case, x, w)
    assert reference.error(y) <= reference.tolerance
    y[0, 0, 0, 0] += 1e-3
    assert reference.error(y) > reference.tolerance
    assert reference.error(y[:, :-1]) == np.inf
    y[0, 0, 0, 0] = np.nan
    assert reference.error(y) == np.inf


def _row(name: str, family: str, **ms: float) -> dict[str, Any]:
    return {"case": name, "family": family, "gflop": 1.0, "results": {k: {"ms": v} for k, v in ms.items()}}


def test_the_report_finds_losses_and_means() -> None:
    rows = [
        _row("a", "one", vkconv=1.0, vkconv_prepared=0.5, torch=2.0, jax=4.0),
        _row("b", "one", vkconv=1.0, torch=1.0),
        _row("c", "two", vkconv=2.0, torch=1.0),
    ]
    assert report.ratio(rows[0]) == 4.0
    assert report.by_family(rows) == {"one": (pytest.approx(2.0), 2), "two": (pytest.approx(0.5), 1)}
    summary = report.summary(rows)
    assert "losses: 1" in summary
    assert "0.50x of torch" in summary


def test_the_table_names_the_command_that_measures_it() -> None:
    versions = dict.fromkeys(["vkconv", "vkconv_prepared", "torch_cl", "torch", "ncnn"], "1.0")
    machine = {"cpu": "a CPU", "date": "2026-11-21", "commit": "c0ffee"}
    result = {"suite": "peers", "device": "cpu", "threads": 2, "machine": machine, "versions": versions}
    text = table.table(result | {"rows": [_row("a", "one", vkconv=1.0, torch_cl=2.0, torch=4.0)]})
    assert "`./run bench --suite peers --peers torch_cl,torch,ncnn`" in text
    assert table.command(result | {"versions": {"vkconv": "0"}}) == "./run bench --suite peers --peers none"


@pytest.mark.parametrize("name", ["cpu_peers", "h200"])
def test_figures_show_every_case(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").rcParams["svg.fonttype"] = "none"  # text stays text
    result = cases.HERE / "results" / f"{name}.json"
    monkeypatch.setattr(sys, "argv", ["plot.py", str(result), "--to", str(tmp_path / "figures")])
    assert plot.main() == 0
    rows = json.loads(result.read_text())["rows"]
    for kind, shown in (("speedup", [r for r in rows if report.ratio(r)]), ("roofline", rows)):
        text = (tmp_path / "figures" / f"{name}_{kind}.svg").read_text()
        assert [r["case"] for r in shown if plot.name(r) not in text] == []


def test_a_library_is_all_its_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("pytorch")
    library.peers = lambda: [peers.Peer(name, "1.0", lambda *_: None) for name in ("torch_cl", "torch")]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.peers.pytorch", library)
    for wanted, names in {"torch": ["torch_cl", "torch"], "torch_cl,ncnn_": ["torch_cl"], "jax_none": []}.items():
        assert [p.name for p in peers.find(wanted).peers] == names


def test_run_writes_checked_results(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = ["--suite", "K limits", "--peers", "none", "--gflop-limit", "0.001", "--seconds", "0.05", "--json"]
    command = [sys.executable, str(ROOT / "bench" / "run.py"), *words, str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(result.read_text())
    assert {"cpu", "commit", "date"} <= told["machine"].keys()
    assert all(row["results"]["vkconv"]["samples"] > 0 for row in told["rows"])


def test_the_regret_is_the_time_lost_by_the_choice() -> None:
    estimates = {"winograd": 1.0, "implicit_gemm": 2.0}
    rows = [
        {"case": "right", "plan": "winograd_f4", "chosen": "winograd", "ms": {"winograd": 1.0, "implicit_gemm": 3.0}},
        {"case": "wrong", "plan": "winograd_f2", "chosen": "winograd", "ms": {"winograd": 3.0, "implicit_gemm": 2.0}},
    ]
    rows = [row | {"estimate_ms": estimates} for row in rows]
    assert [planner_regret.regret(row) for row in rows] == [1.0, 1.5]
    summary = planner_regret.summary(rows)
    assert "2 cases; 1 (50.0 %)" in summary
    assert "wrong" in summary
    assert "right" not in summary


def test_filters_of_scipy_calls_are_those_of_scipy() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    theirs = scipy_calls.calls(40, ndimage)
    for name, call in scipy_calls.calls(40, vkconv.ndimage).items():
        np.testing.assert_allclose(call(), theirs[name](), atol=1e-4, err_msg=name)


def _bench(script: str, *words: str) -> str:
    command = [sys.executable, str(ROOT / "bench" / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "program", sorted(p.name for p in (ROOT / "bench").glob("*.py") if "__main__" in p.read_text())
)
def test_programs_say_what_they_take(program: str) -> None:
    assert f"usage: bench/{program}" in _bench(program, "--help")


def test_planner_regret_adds_parts_up(tmp_path: Path) -> None:
    result = tmp_path / "regret.json"
    words = ["--suite", "K limits", "--gflop-limit", "0.001", "--seconds", "0.02", "--json", str(result)]
    for part in ("1/2", "2/2"):
        _bench("planner_regret.py", *words, "--part", part)
    rows = planner_regret.load(result)
    assert set(rows) == {case.mini(1e6).name for case in cases.select("K limits")}
    assert all(row["chosen"] in row["ms"] for row in rows.values())
    assert f"{len(rows)} cases" in _bench("planner_regret.py", "--summary", str(result))


def test_extra_memory_is_counted_and_limited() -> None:
    words = ["--suite", "peers", "--only", "dw_1536,r50_3x3_7x512", "--limit-mib", "8"]
    told = _bench("memory.py", *words).splitlines()
    assert len(told) == 6
    assert told[-1] == "0 above the limit of 8 MiB"


def test_the_committed_rates_are_those_of_calibrate() -> None:
    rows = calibrate.committed()
    core = [row for row in rows if row.isa]
    assert {row.vendor for row in core} >= {"AuthenticAMD", "GenuineIntel"}
    for vendor, family in {(row.vendor, row.family) for row in core}:
        of_processor = [row for row in core if (row.vendor, row.family) == (vendor, family)]
        assert {"AVX3", "AVX2", "SSE4"} == {row.isa for row in of_processor}
        rates = [row.rates[0] for row in sorted(of_processor, key=calibrate.Row.order)]
        assert rates == sorted(rates, reverse=True)
        assert any((row.vendor, row.family) == (vendor, family) for row in rows if not row.isa)
    assert calibrate.header_text(rows) == calibrate.HEADER.read_text()


def test_gpu_cases_are_problems_and_make_a_table() -> None:
    gpu_cases = cases.select("gpu")
    assert len({case.name for case in gpu_cases + cases.select("core")}) == len(gpu_cases) + len(cases.select("core"))
    rows = []
    for case in gpu_cases:
        assert vkconv.explain(gpu.problem_of(case), device="cpu").problem == gpu.problem_of(case)
        own = {"plan": "direct", "ms": 0.5, "c": 1.0, "rounded": 1.0}
        rows.append(gpu.row_of(case, own, 1.0, []))
    assert {"3-D", "1x1", "gradients"} <= {gpu.kind_of(case) for case in cases.select("core") + gpu_cases}
    machine = {"gpu": "a GPU", "date": "today", "commit": "this"}
    text = table.gpu_table({"rows": rows, "machine": machine, "versions": {"cudnn": "9"}})
    assert "| gradients | 2.00x |" in text
    assert "| `r50_3x3_7x512` | 500 / 1000 (2.00x) |" in text
    assert f"which 0 of {len(rows)} cases miss" in text and f"0 of {len(rows)} rows are lost" in text


def test_no_layer_is_long_for_a_large_gpu() -> None:
    """What is estimated at 50 ms or less is one submit; what was measured is below the limit of 200 ms."""
    h200 = vkconv.describe_device("h200")
    seconds = {}
    for case in [*cases.select("all"), *cases.select("gpu"), *cases.select("peers")]:
        told = vkconv.explain(case.problem, device=h200)
        seconds[case.name] = next(c.seconds for c in told.candidates if c.algorithm == told.algorithm)
    assert len(seconds) > 100 and max(seconds.values()) < 0.05, max(seconds, key=seconds.__getitem__)
    measured = json.loads((ROOT / "bench/results/h200.json").read_text())["rows"]
    assert max(ms["ms"] for row in measured for name, ms in row["results"].items() if name.startswith("vkconv")) < 200
