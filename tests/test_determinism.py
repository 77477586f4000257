"""The same bits for 1 to 16 threads, workspace limit, cache state, batch, and weights prepared or not."""

import numpy as np
import pytest

import checks
import vkconv
from problem_text import parse

PROBLEMS = (
    "fwd_f32_n2c24o40_i13x11_k3x3_p1x1_bias_silu",
    "fwd_f32_n1c33o17_i40_k7_s2_p3",
    "fwd_f32_n2c16o20_i6x7x8_k3x3x3_p1x1x1",
    "fwd_f32_n2c40o40g40_i15x13_k5x5_p2x2",
    "fwd_f32_n2c8o12_i7x8_k4x4_t2x2_p2x2_flip",
    "fwd_bf16_n2c24o40_i13x11_k3x3_p1x1",
    "fwd_f16_n2c64o48_i9x9_k1x1",
    "fwd_f64_n2c9o10_i9x9_k3x3_p1x1",
    "igrad_f32_n2c12o20_i13x11_k3x3_s2x2_p1x1",
    "wgrad_f32_n3c12o20_i17x19_k3x3_p1x1",
    "wgrad_f32_n3c24o24g24_i17x19_k3x3_p1x1",
    "wgrad_f16_n2c12o20_i31_k5_s2_p2",
)
THREADS = range(1, 17)


@pytest.fixture
def threads_restored():
    before = vkconv.num_threads()
    yield
    vkconv.set_num_threads(before)


@pytest.mark.parametrize("text", PROBLEMS)
def test_thread_counts(text, threads_restored):
    p = parse(text)
    a = checks.operands(p, integers=False)
    for algorithm in checks.claiming(p, a, device="cpu"):
        results = []
        for threads in THREADS:
            vkconv.set_num_threads(threads)
            results.append(checks.run(p, a, device="cpu", algorithm=algorithm))
        for threads, result in zip(THREADS, results, strict=True):
            np.testing.assert_array_equal(result, results[0], err_msg=f"{algorithm}, {threads} threads")


@pytest.mark.parametrize("text", PROBLEMS)
def test_run_to_run_and_cache_states(text, device, clean_cache):
    """Fresh plan, cached plan, plan after eviction, and every workspace limit under which the algorithm runs."""
    p = parse(text)
    a = checks.operands(p, integers=False)
    for algorithm in checks.claiming(p, a, device=device):
        options = {"device": device, "algorithm": algorithm}
        first = checks.run(p, a, **options)
        for _ in range(3):
            np.testing.assert_array_equal(checks.run(p, a, **options), first)
        vkconv.plan_cache_clear()
        np.testing.assert_array_equal(checks.run(p, a, **options), first, err_msg=algorithm)


@pytest.mark.parametrize("text", PROBLEMS)
def test_workspace_limits(text, device):
    """A forced algorithm gives the same bits under every limit it accepts."""
    p = parse(text)
    a = checks.operands(p, integers=False)
    for algorithm in checks.claiming(p, a, device=device):
        if "winograd" in checks.explain(p, a, device=device, algorithm=algorithm).plan:
            continue  # a decomposition may have other children under another limit
        results = {}
        for limit in (0, 1 << 12, 1 << 15, 1 << 20, 1 << 28):
            if algorithm in checks.claiming(p, a, device=device, workspace_limit=limit):
                options = {"device": device, "algorithm": algorithm, "workspace_limit": limit}
                tree = checks.explain(p, a, **options).plan
                results.setdefault(tree, []).append(checks.run(p, a, **options))
        for tree, same in results.items():
            for result in same:
                np.testing.assert_array_equal(result, same[0], err_msg=tree)


def test_workspace_limits_beside_an_infinite_weight():
    """Rows whose windows have holes are summed again; packing a part of the weights at a time cuts no tap."""
    p = parse("fwd_f32_n1c130o8_i21x16_k7x3_p3x3")
    a = checks.operands(p, integers=False)
    a.weight[0, 0, 0, 0] = np.inf
    first = checks.run(p, a, device="cpu", algorithm="unfold_gemm")
    for limit in (1 << 15, 1 << 16):
        options = {"algorithm": "unfold_gemm", "workspace_limit": limit}
        np.testing.assert_array_equal(checks.run(p, a, device="cpu", **options), first)
        prepared = vkconv.prepare(a.weight, padding=3, device="cpu", **options)
        np.testing.assert_array_equal(prepared(a.input), first)


@pytest.mark.parametrize("text", [*PROBLEMS, "fwd_f32_n1c16o20_i17x18_k3x3_p1x1", "igrad_f32_n3c4o9_i39_k4_s2_p1"])
def test_plans_stay_within_the_workspace_limit(text, device):
    p = parse(text)
    a = checks.operands(p)
    for algorithm in checks.claiming(p, a, device=device):
        most = checks.explain(p, a, device=device, algorithm=algorithm).workspace_bytes
        for limit in {0, most // 2, max(most - 60, 0), max(most - 1, 0)}:
            if algorithm in checks.claiming(p, a, device=device, workspace_limit=limit):
                told = checks.explain(p, a, device=device, algorithm=algorithm, workspace_limit=limit)
                assert told.workspace_bytes <= limit, algorithm


@pytest.mark.parametrize("text", [t for t in PROBLEMS if not t.startswith("wgrad")])
def test_batch_row_equals_batch_of_one(text, device):
    p = parse(text).replace(batch=3)
    a = checks.operands(p, integers=False)
    for algorithm in checks.claiming(p, a, device=device):
        options = {"device": device, "algorithm": algorithm}
        whole, tree = checks.run(p, a, **options), checks.explain(p, a, **options).plan
        for i in range(3):
            row = checks.Operands(a.input[i : i + 1], a.weight, a.grad[i : i + 1], a.bias)
            one = p.replace(batch=1)
            if algorithm not in checks.claiming(one, row, device=device):
                continue
            if checks.explain(one, row, **options).plan == tree:  # a decomposition may choose other children
                np.testing.assert_array_equal(checks.run(one, row, **options), whole[i : i + 1], err_msg=tree)


@pytest.mark.parametrize("text", [t for t in PROBLEMS if t.startswith("fwd")])
def test_prepared(text, device):
    p = parse(text)
    a = checks.operands(p, integers=False)
    for algorithm in [None, *checks.claiming(p, a, device=device)]:
        options = {"device": device, "algorithm": algorithm}
        conv = vkconv.prepare(a.weight, a.bias, **checks.arguments(p), activation=checks.activation(p), **options)
        want = checks.run(p, a, **options)
        for _ in range(2):
            np.testing.assert_array_equal(conv(a.input), want, err_msg=str(algorithm))


def test_prepared_keeps_its_own_weight(device):
    p = parse("fwd_f32_n1c8o8_i9x9_k3x3_p1x1_bias")
    a = checks.operands(p)
    want = checks.run(p, a, device=device)
    weight, bias = a.weight.copy(), a.bias.copy()
    conv = vkconv.prepare(weight, bias, padding=1, device=device)
    weight[...] = 9
    bias[...] = 9
    np.testing.assert_array_equal(conv(a.input), want)


def test_mutated_weights_are_not_cached_by_address(device):
    p = parse("fwd_f32_n1c16o16_i9x9_k3x3_p1x1")
    a = checks.operands(p)
    for value in (1, 2, 3):
        a.weight[...] = value
        checks.assert_right(p, a, checks.run(p, a, device=device, precision="highest"))
        a.input[...] = value
        checks.assert_right(p, a, checks.run(p, a, device=device, precision="highest"))


def test_many_callers(device):
    """Eight threads with their own problems, over and over: everyone gets the bits of a lone call."""
    from concurrent.futures import ThreadPoolExecutor

    jobs = [(parse(t), checks.operands(parse(t), integers=False)) for t in PROBLEMS if "f64" not in t]
    wanted = [checks.run(p, a, device=device) for p, a in jobs]

    def work(worker):
        wrong = []
        for i in range(25 if device == "cpu" else 4):
            j = (worker * 5 + i) % len(jobs)
            p, a = jobs[j]
            if not np.array_equal(checks.run(p, a, device=device), wanted[j]):
                wrong.append(str(p))
        return wrong

    with ThreadPoolExecutor(8) as executor:
        assert [w for w in executor.map(work, range(8)) if w] == []
