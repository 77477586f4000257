"""Random problems, fresh seeds every commit of the corpus: 60 s in all by default, 10,000 a device with --full."""

import pytest

import fuzz

SECONDS = {"cpu": 30.0, "vulkan": 25.0}
FULL_COUNT = 10_000


def test_corpus(device):
    for case in fuzz.corpus():
        fuzz.run_case(case, device)


def test_case_text_round_trips():
    for case in [*fuzz.corpus(), *fuzz.cases(seed=3, count=300)]:
        assert fuzz.Case.parse(str(case)) == case


def test_cases_do_not_depend_on_the_bounds():
    assert list(fuzz.cases(seed=1, count=5)) == list(fuzz.cases(seed=1, count=9))[:5]


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
    count, _, failures = fuzz.fuzz(device, fuzz.cases(seed=0, seconds=seconds))
    assert not failures, f"of {count}:\n" + "\n".join(failures)
    assert count > 0


@pytest.mark.full
def test_ten_thousand_random_problems(device):
    count, plans, failures = fuzz.fuzz(device, fuzz.cases(seed=1, count=FULL_COUNT))
    assert not failures, "\n".join(failures)
    assert count == FULL_COUNT
    assert len(plans) > 20
