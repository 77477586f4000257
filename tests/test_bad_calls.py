"""Malformed calls raise what a caller can catch: 2,000 by default, 100,000 with --full."""

import pytest

import bad_calls

FULL_COUNT = 100_000


def test_malformed_calls():
    outcomes, failures = bad_calls.check(seed=0, count=2000)
    assert not failures, "\n".join(failures)
    assert {"TypeError", "ValueError", "MemoryError", "answer"} <= set(outcomes)


@pytest.mark.full
def test_a_hundred_thousand_malformed_calls():
    _, failures = bad_calls.check(seed=10_000, count=FULL_COUNT)
    assert not failures, "\n".join(failures)
