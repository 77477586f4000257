"""Random problems: 60 s in all by default, 100,000 on the CPU and 10,000 on a Vulkan device with --full."""

import pytest

import fuzz

SECONDS = {"cpu": 30.0, "vulkan": 25.0}
FULL = {"cpu": {"count": 100_000}, "vulkan": {"count": 10_000, "alike": 100}}
BATCH = {"cpu": 1, "vulkan": 10_000}


def test_corpus(device):
    for case in fuzz.corpus():
        fuzz.run_case(case, device)


def test_case_text_round_trips():
    for case in [*fuzz.corpus(), *fuzz.cases(seed=3, count=300)]:
        assert fuzz.Case.parse(str(case)) == case


def test_cases_do_not_depend_on_the_bounds():
    assert list(fuzz.cases(seed=1, count=5)) == list(fuzz.cases(seed=1, count=9))[:5]


def test_cases_alike_share_kernels():
    made = list(fuzz.cases(seed=1, count=60, alike=20))
    assert len({str(c) for c in made}) == 60
    for i in (0, 20, 40):
        kinds = {(c.problem.op, c.problem.dtype, c.problem.rank, c.problem.activation) for c in made[i : i + 20]}
        assert len(kinds) == 1


def test_cases_in_the_order_of_their_plans():
    made = list(fuzz.cases(seed=4, count=100))
    ordered = list(fuzz.by_plan(made, "cpu", 50))
    assert set(map(str, ordered[:50])) == set(map(str, made[:50]))
    plans = [fuzz.plan_of(case, "cpu") for case in ordered]
    assert plans[:50] == sorted(plans[:50])
    assert plans[50:] == sorted(plans[50:])


def test_the_case_that_ends_the_process_is_noted(tmp_path):
    note = tmp_path / "case"
    stream = fuzz.noted(fuzz.cases(seed=5, count=2), note)
    for case in stream:
        assert fuzz.Case.parse(note.read_text()) == case
    assert not note.exists()


def test_a_wrong_answer_is_found(monkeypatch):
    """The fuzzer notices a single element off by the smallest step."""
    import numpy as np

    right = fuzz.call

    def wrong(case, a, options):
        y = right(case, a, options).copy()
        if y.size:
            y.flat[-1] = np.nextafter(y.flat[-1], np.inf, dtype=y.dtype) if y.dtype.kind == "f" else y.flat[-1] + 1
        return y

    monkeypatch.setattr(fuzz, "call", wrong)
    with pytest.raises(fuzz.CaseError):
        fuzz.run_case(fuzz.Case.parse("fwd_f32_n1c3o5_i9x8_k3x3_p1x1 seed=1"), "cpu")


def test_random_problems(device):
    seconds = SECONDS[device.split(":")[0]]
    count, _, failures = fuzz.fuzz(device, fuzz.until(fuzz.cases(seed=0), seconds))
    assert not failures, f"of {count}:\n" + "\n".join(failures)
    assert count > 0


@pytest.mark.full
def test_many_random_problems(device):
    kind = device.split(":")[0]
    bounds = FULL[kind]
    stream = fuzz.by_plan(fuzz.cases(seed=1, **bounds), device, BATCH[kind])
    count, plans, failures = fuzz.fuzz(device, stream)
    assert not failures, "\n".join(failures)
    assert count == bounds["count"]
    assert len(plans) > 20
