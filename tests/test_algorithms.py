"""Every problem of every theme through every algorithm that claims it, on every device."""

import numpy as np
import pytest

import checks
import oracle
import vkconv
from problem_text import dtype_of, parse
from problems import ALL, THEMES


def run_all(text, device, integers):
    p = parse(text)
    names = checks.claiming(p, checks.operands(p, integers=integers), device=device)
    assert names, f"no algorithm of {device} claims {text}"
    for seed, name in enumerate([None, *names], len(text)):
        # Other numbers each: in memory used again, the answer of the algorithm before is no answer.
        a = checks.operands(p, seed=seed, integers=integers)
        options = {"device": device, "algorithm": name}
        tree = checks.explain(p, a, **options).plan
        checks.assert_right(p, a, checks.run(p, a, **options), tree=tree, integers=integers)


# One after the other, in one process: most of the time a software device compiles what both run.
@pytest.mark.parametrize("integers", [True, False], ids=["integers", "random"])
@pytest.mark.parametrize("text", ALL)
def test_answers(text, device, integers):
    """Small integers are exact, random data within the bound of the algorithm."""
    run_all(text, device, integers)


def test_every_algorithm_is_run(device):
    """The themes leave no row of the registry out but `split`, which waits for arrays beyond the device's reach,
    and those for units that this processor has not."""
    claimed = set()
    for text in ALL:
        p = parse(text)
        claimed |= set(checks.claiming(p, checks.operands(p), device=device))
    missing = set(vkconv.algorithms(device)) - claimed - {"split"}
    p = parse("wgrad_bf16_n2c32o48_i12x12_k3x3_p1x1")
    reasons = {c.algorithm: c.reason for c in checks.explain(p, checks.operands(p), device=device).candidates}
    assert claimed <= reasons.keys()
    assert {name for name in missing if "in the processor" not in reasons[name]} == set()


@pytest.mark.parametrize("theme", [t for t in THEMES if t != "empty"])
def test_refusal_names_the_reason(theme, device):
    p = parse(THEMES[theme][0])
    a = checks.operands(p)
    for candidate in checks.explain(p, a, device=device).candidates:
        if candidate.seconds is None:
            assert candidate.reason, candidate
            with pytest.raises(ValueError, match=candidate.algorithm):
                checks.run(p, a, device=device, algorithm=candidate.algorithm)


POSITIVE = (
    "fwd_f32_n1c64o8_i8x8_k5x5_p2x2",
    "fwd_f32_n1c512o4_i5_k3_p1",
    "fwd_f32_n1c16o16_i5x6x6_k5x3x3_p0x1x1",
    "fwd_f32_n1c8o8g8_i16x16_k13x13_p6x6",
    "fwd_f32_n1c4o4_i40_k33_t3_p30_flip",
    "wgrad_f32_n8c4o4_i24x24_k3x3_p1x1",
    "wgrad_f32_n4c8o8g8_i24x24_k3x3_p1x1",
    "igrad_f32_n1c4o256_i8x8_k3x3_s2x2_p1x1",
    "fwd_f32_n1c32o32_i8x8_k3x3_p1x1",
    "fwd_f32_n1c2048o3_i6x6_k1x1",
)


@pytest.mark.parametrize("text", POSITIVE)
def test_long_sums_of_positive_data(text, device):
    """Nothing cancels, so the rounding errors of a long sum all show; sums in blocks keep c small."""
    p = parse(text)
    rng = np.random.default_rng(7)
    shapes = (p.input_shape, p.weight_shape, p.output_shape)
    a = checks.Operands(*(rng.uniform(0.5, 1, s).astype(dtype_of(p.dtype)) for s in shapes), None)
    want, magnitude = checks.exact(p, a), checks.magnitudes(p, a)
    for name in checks.claiming(p, a, device=device):
        got = checks.run(p, a, device=device, algorithm=name)
        tree = checks.explain(p, a, device=device, algorithm=name).plan
        assert checks.error_c(got, want, magnitude, p.dtype) <= checks.bound(tree), tree


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    "text",
    [
        "n1c64o16_i12x12_k3x3_p1x1",
        "n1c48o48g48_i12x12_k5x5_p2x2",
        "n1c64o32_i3x8x8_k3x3x3_p1x1x1",
        "n1c16o24_i8x8_k4x4_t2x2_p2x2_flip",
    ],
)
def test_halves_are_rounded_once(text, dtype, device):
    """Partial sums that pass through a 16-bit type would leave far fewer results correctly rounded."""
    p = parse(f"fwd_{dtype}_{text}")
    a = checks.operands(p, integers=False)
    want = checks.exact(p, a)
    for name in checks.claiming(p, a, device=device):
        tree = checks.explain(p, a, device=device, algorithm=name).plan
        if "winograd" not in tree:
            got = checks.run(p, a, device=device, algorithm=name)
            assert checks.rounded_share(got, want, dtype) >= checks.ROUNDED_SHARE, tree


@pytest.mark.parametrize("mode", ["valid", "same", "same_lower", "full", "causal"])
@pytest.mark.parametrize(
    "text",
    [
        "fwd_f32_n1c3o4_i9_k3",
        "fwd_f32_n1c3o4_i8x7_k3x4_s2x3",
        "fwd_f32_n1c2o2_i5x6x7_k2x3x4_d2x1x1",
        "fwd_f32_n1c3o4_i9_k4_s3_d2",
    ],
)
def test_named_padding(text, mode, device):
    p = parse(text)
    p = p.replace(pads=tuple(oracle.named_pads(mode, p.space, p.kernel, p.stride, p.dilation)))
    a = checks.operands(p)
    words = checks.keywords(p, a, device=device)
    del words["pads"]
    checks.assert_right(p, a, vkconv.conv_general(a.input, a.weight, **words, padding=mode))


@pytest.mark.parametrize(
    "text",
    [
        "fwd_f32_n1c1023o64_i13x13_k13x13",
        "fwd_f32_n1c1024o64_i16x16_k16x16",
        "fwd_f32_n1c2o4g2_i302x302_k300x300",
        "wgrad_f32_n1c2o2_i90x90_k1x1",
        "wgrad_f32_n1c2o2g2_i400x400_k3x3",
        "igrad_f32_n1c2o30000_i5_k3_p1",
    ],
)
def test_very_long_sums(text, device):
    """More terms than a loop on lavapipe may have iterations: right, or refused with the reason, never cut short."""
    p = parse(text)
    a = checks.operands(p)
    names = [n for n in checks.claiming(p, a, device=device) if n != "reference" or p.multiply_adds < 10**8]
    for name in names:
        options = {"device": device, "algorithm": name}
        tree = checks.explain(p, a, **options).plan
        checks.assert_right(p, a, checks.run(p, a, **options), tree=tree)
    if not names:
        with pytest.raises(ValueError, match="no algorithm can run"):
            checks.run(p, a, device=device)


@pytest.mark.parametrize(
    "text",
    [
        "fwd_f32_n1c300o40_i11x11_k3x3_p1x1",
        "fwd_f16_n1c300o40_i11x11_k3x3_p1x1",
        "fwd_f32_n1c600o64_i13x13_k3x3_p1x1",
        "fwd_f16_n1c200o32_i9x20_k3x3_p1x1",
        "fwd_f16_n1c48o9_i3x3x70_k3x3x3_p0x1x0",
        "fwd_f32_n1c1o1_i90x90_k63x63_p31x31",
        "fwd_f32_n1c1500o16_i9x9_k3x3_p1x1",
        "fwd_f32_n1c4000o8_i10x10_k3x3_p1x1",
        "fwd_f16_n1c2500o16_i13x13_k3x3_p1x1",
        "wgrad_f32_n1c2o16_i180x180_k3x3_p1x1",
        "wgrad_f32_n1c64o64_i56x56_k3x3_p1x1",
        "wgrad_f32_n1c4o4g4_i1x150x150_k265x3x3_p132x1x1",
        "igrad_f32_n1c40o300_i11x11_k3x3_p1x1",
    ],
)
@pytest.mark.parametrize("infinite", ["value", "weight"])
def test_long_sums_with_infinities(text, infinite, device):
    """Sums that padding times infinity made NaN are computed once more, for which lavapipe's loops have few iterations:
    right, or refused, and no other output is cut short."""
    p = parse(text)
    for seed, name in enumerate(checks.claiming(p, infinite_operands(p, infinite), device=device)):
        a = infinite_operands(p, infinite, seed)
        tree = checks.explain(p, a, device=device, algorithm=name).plan
        if name != "reference":
            got = checks.run(p, a, device=device, algorithm=name)
            checks.assert_right(p, a, got, tree=tree, cancelling=False)


def infinite_operands(p, infinite, seed=0):
    """Infinity in all channels of a pixel in a corner, or in a tap there of every output, where others are positive."""
    a = checks.operands(p, seed=seed)
    first, second = (a.input if p.op == "fwd" else a.grad), (a.input if p.op == "wgrad" else a.weight)
    second[...] = np.abs(second) + 1
    array, corner = first if infinite == "value" else second, -(seed % 2)
    if array is a.weight:
        array.reshape(len(array), -1, array.shape[-1])[:, corner] = np.inf
    else:
        array.reshape(-1, array.shape[-1])[corner] = np.inf
    return a
