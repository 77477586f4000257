"""The plan cache as callers see it: no field of a call is forgotten, and `explain` says what runs."""

import dataclasses

import numpy as np
import pytest

import checks
import vkconv
from fuzz_problems import fits, random_problem
from problem_text import Problem, parse

CHANGES = {
    "batch": lambda p: p.replace(batch=p.batch + 1),
    "channels": lambda p: p.replace(channels=p.channels + p.groups),
    "outputs": lambda p: p.replace(outputs=p.outputs + p.groups),
    "groups": lambda p: p.replace(groups=1 if p.groups > 1 else p.channels),
    "space": lambda p: p.replace(space=(p.space[0] + 1, *p.space[1:])),
    "kernel": lambda p: p.replace(kernel=(*p.kernel[:-1], p.kernel[-1] + 1)),
    "stride": lambda p: p.replace(stride=(*p.stride[:-1], p.stride[-1] + 1)),
    "dilation": lambda p: p.replace(dilation=(p.dilation[0] + 1, *p.dilation[1:])),
    "input_dilation": lambda p: p.replace(input_dilation=(p.input_dilation[0] + 1, *p.input_dilation[1:])),
    "pad_lo": lambda p: p.replace(pads=((p.pads[0][0] + 1, p.pads[0][1]), *p.pads[1:])),
    "pad_hi": lambda p: p.replace(pads=(*p.pads[:-1], (p.pads[-1][0], p.pads[-1][1] + 1))),
    "pads_shifted": lambda p: p.replace(pads=((p.pads[0][0] + 1, p.pads[0][1] - 1), *p.pads[1:])),
    "flip": lambda p: p.replace(flip=not p.flip),
    "dtype": lambda p: p.replace(dtype={"f32": "f16", "f16": "bf16", "bf16": "f64", "f64": "f32"}[p.dtype]),
    "op": lambda p: p.replace(op={"fwd": "igrad", "igrad": "wgrad", "wgrad": "fwd"}[p.op], bias=False, activation=None),
    "bias": lambda p: p.replace(bias=not p.bias and p.op == "fwd"),
    "activation": lambda p: p.replace(activation="relu" if p.activation is None and p.op == "fwd" else None),
    "activation_number": lambda p: p.replace(activation="clip", alpha=-1.0, beta=p.beta + 1) if p.op == "fwd" else p,
    "precision": lambda p: p.replace(precision="highest" if p.precision == "high" else "high"),
}


def run_and_check(p: Problem, device: str) -> None:
    a = checks.operands(p)
    report = checks.explain(p, a, device=device)
    checks.assert_right(p, a, checks.run(p, a, device=device), tree=report.plan)


@pytest.mark.parametrize("change", CHANGES)
def test_changing_one_field(change, device, clean_cache):
    """Pairs of calls that differ in one field, back to back through one cache; a forgotten field shows as a wrong
    answer of the second call."""
    done = 0
    for seed in range(100):
        p = random_problem(np.random.default_rng((11, seed))).replace(precision="high")
        q = CHANGES[change](p)
        if q == p or q.groups == 0 or q.channels % q.groups or q.outputs % q.groups or not fits(q):
            continue
        for problem in (p, q, p):
            run_and_check(problem, device)
        done += 1
        if done == (12 if device == "cpu" else 4):
            return
    assert done >= 4


def test_every_field_is_covered():
    """A field added to Problem needs a line in CHANGES."""
    names = {f.name for f in dataclasses.fields(Problem)} - {"pads", "alpha", "beta"}
    assert names <= set(CHANGES)


@pytest.mark.parametrize(
    "text",
    [
        "fwd_f32_n1c16o16_i6x8x8_k3x3x3_p1x1x1",
        "fwd_f32_n1c8o8g8_i9x9_k3x3_p1x1",
        "fwd_f32_n1c4o6_i9_k4_t3_p3_flip",
        "igrad_f32_n1c8o8_i9x9_k3x3_s2x2_p1x1",
        "wgrad_f32_n2c8o8_i9x9_k3x3_p1x1",
        "fwd_bf16_n1c8o8_i9x9_k3x3_p1x1",
        "fwd_f32_n0c8o8_i9x9_k3x3_p1x1",
        "fwd_f32_n1c0o8_i9x9_k3x3_p1x1",
    ],
)
def test_explain_is_consistent(text, device):
    """The choice is the least estimate among those that can run, and forcing it gives the same bits and plan."""
    p = parse(text)
    a = checks.operands(p, integers=False)
    report = checks.explain(p, a, device=device)
    able = [c for c in report.candidates if c.seconds is not None]
    assert [c.algorithm for c in report.candidates] == list(vkconv.algorithms(device))
    for c in report.candidates:
        assert c.reason if c.seconds is None else 0 < c.seconds < np.inf
    best = min(able, key=lambda c: c.seconds)
    assert report.plan.startswith(best.algorithm)
    forced = checks.explain(p, a, device=device, algorithm=best.algorithm)
    assert forced.plan == report.plan
    np.testing.assert_array_equal(
        checks.run(p, a, device=device), checks.run(p, a, device=device, algorithm=best.algorithm)
    )


def test_explain_computes_nothing(device):
    out = np.full((1, 7, 7, 4), 77, np.float32)
    x, w = np.ones((1, 9, 9, 3), np.float32), np.ones((4, 3, 3, 3), np.float32)
    report = vkconv.explain(vkconv.conv2d, x, w, out=out, device=device)
    assert report.plan and (out == 77).all()


def test_precision_highest_forbids_winograd(device):
    p = parse("fwd_f32_n1c64o64_i28x28_k3x3_p1x1_highest")
    report = checks.explain(p, checks.operands(p), device=device)
    assert "winograd" not in report.plan
    for c in report.candidates:
        assert "winograd" not in c.algorithm or c.seconds is None


def test_cache_counters_add_up(device, clean_cache):
    texts = ["fwd_f32_n1c2o3_i9_k3", "fwd_f32_n1c2o3_i10_k3", "fwd_f32_n1c2o3_i9_k3_flip", "fwd_f32_n1c2o3_i9_k3_p1"]
    for text in texts * 3:
        p = parse(text)
        checks.run(p, checks.operands(p), device=device)
    info = vkconv.plan_cache_info(device)
    assert info.hits + info.misses >= 12
    assert info.hits >= 8
    assert info.size <= info.misses <= info.size + info.misses
    vkconv.plan_cache_clear()
    info = vkconv.plan_cache_info(device)
    assert (info.hits, info.misses, info.size) == (0, 0, 0)


def test_equal_work_shares_a_plan(device, clean_cache):
    """A stride that a single output never takes, and a dilation that a single tap never spreads, do not matter."""
    x, w = np.ones((1, 3, 2), np.float32), np.ones((4, 3, 2), np.float32)
    vkconv.conv1d(x, w, 1, device=device)
    misses = vkconv.plan_cache_info(device).misses
    for stride in (2, 3, 100):
        vkconv.conv1d(x, w, stride, device=device)
    assert vkconv.plan_cache_info(device).misses == misses


COLUMNS = [  # and the rows that they are
    ("i40x1_k5x1_s2x1_d2x1_p1x0_flip", "i40_k5_s2_d2_p1_flip"),
    ("i5x1x9_k3x1x2_p1x0x1", "i5x9_k3x2_p1x1"),
    ("i7x1x1_k3x1x1_t2x1x1_p1x0x0", "i7_k3_t2_p1"),
]


@pytest.mark.parametrize("op", ["fwd", "igrad", "wgrad"])
@pytest.mark.parametrize("groups", ["c8o8g8", "c3o4"])
@pytest.mark.parametrize("column, row", COLUMNS)
def test_a_column_of_pixels_is_a_row(column, row, groups, op, device, clean_cache):
    """Axes without an extent do not matter: the same plan and bits."""
    p, q = (parse(f"{op}_f32_n2{groups}_{geometry}") for geometry in (column, row))
    a, b = checks.operands(p), checks.operands(q)
    of_column, of_row = checks.explain(p, a, device=device), checks.explain(q, b, device=device)
    assert (of_column.problem, of_column.plan) == (of_row.problem, of_row.plan)
    got, wanted = checks.run(p, a, device=device), checks.run(q, b, device=device)
    np.testing.assert_array_equal(got.ravel(), wanted.ravel())
    checks.assert_right(p, a, got, tree=of_column.plan)


def test_prepared_weights_serve_columns_and_images(device):
    rng = np.random.default_rng(1)
    w = rng.integers(-3, 4, (4, 3, 1, 2)).astype(np.float32)
    conv = vkconv.prepare(w, padding=(1, 0), device=device, precision="highest")
    for shape in ((1, 20, 1, 2), (1, 20, 5, 2), (2, 9, 1, 2)):
        x = rng.integers(-3, 4, shape).astype(np.float32)
        np.testing.assert_array_equal(conv(x), vkconv.conv2d(x, w, padding=(1, 0), device="cpu", precision="highest"))


def test_unknown_algorithm_is_refused(device):
    p = parse("fwd_f32_n1c2o3_i9_k3")
    with pytest.raises(ValueError, match="fastest_of_all"):
        checks.run(p, checks.operands(p), device=device, algorithm="fastest_of_all")
