"""vkconv.signal against scipy.signal."""

from __future__ import annotations

import itertools
import sys
from fractions import Fraction

import numpy as np
import pytest

from vkconv import signal

scipy_signal = pytest.importorskip("scipy.signal")

RNG = np.random.default_rng(7)
SHAPES = [((9,), (4,)), ((4,), (9,)), ((120,), (5,)), ((8, 9), (3, 4)), ((3, 4), (3, 4)), ((5, 6, 7), (2, 3, 4)),
          ((1,), (1,)), ((7, 90), (4, 3))]  # fmt: skip
MODES = ["full", "same", "valid"]


def normal(*shape: int, dtype: type = np.float64) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def near(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    tolerance = 1e-12 if want.dtype in (np.float64, np.complex128) else 1e-5
    assert np.abs(got - want).max(initial=0) <= tolerance * max(np.abs(want).max(initial=0), 1)


@pytest.mark.parametrize("method", ["direct", "fft", "auto"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_convolve_and_correlate(shapes, mode, method):
    a, b = (normal(*s) for s in shapes)
    for name in ("convolve", "correlate"):
        near(getattr(signal, name)(a, b, mode, method), getattr(scipy_signal, name)(a, b, mode, "direct"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
@pytest.mark.parametrize("shapes", [((8, 9), (3, 4)), ((8, 9), (4, 3)), ((6, 70), (5, 5)), ((5, 5), (2, 5))], ids=str)
def test_two_dimensions(shapes, mode, boundary):
    a, b = (normal(*s) for s in shapes)
    for name, fill in itertools.product(("convolve2d", "correlate2d"), (0, 1.5)):
        near(getattr(signal, name)(a, b, mode, boundary, fill), getattr(scipy_signal, name)(a, b, mode, boundary, fill))


@pytest.mark.parametrize(("name", "other"), [("fill", "pad"), ("wrap", "circular"), ("symm", "symmetric")])
def test_boundaries_have_two_names(name, other):
    a, b = normal(8, 9), normal(3, 4)
    near(signal.convolve2d(a, b, "same", other, 1.5), scipy_signal.convolve2d(a, b, "same", name, 1.5))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128, np.int32, np.uint8])
def test_dtypes(dtype):
    a, b = (RNG.integers(0, 5, s).astype(dtype) for s in ((20, 40), (3, 4)))
    if np.issubdtype(dtype, np.complexfloating):
        a, b = a + 1j * a[::-1], b * dtype(2 - 1j)
        a, b = a.astype(dtype), b.astype(dtype)
    for method in ("direct", "fft"):
        near(signal.convolve(a, b, method=method), scipy_signal.convolve(a, b, method="direct"))
        near(signal.correlate(a, b, method=method), scipy_signal.correlate(a, b, method="direct"))
    near(signal.convolve(a, b.real.copy()), scipy_signal.convolve(a, b.real.copy(), method="direct"))
    near(signal.fftconvolve(a, b), scipy_signal.fftconvolve(a, b))


def test_the_choice():
    """Sums for small kernels, transforms for large ones; always a right answer."""
    image = normal(512, 512, dtype=np.float32)
    assert signal.choose_conv_method(image, normal(3, 3, dtype=np.float32), "same") == "direct"
    assert signal.choose_conv_method(image, normal(255, 255, dtype=np.float32), "same") == "fft"
    whole = np.ones((512, 512), int)
    assert signal.choose_conv_method(whole, whole[:255, :255]) == "fft"  # whose error rounding takes away
    assert signal.choose_conv_method(whole * 2**40, whole[:255, :255] * 2**40) == "direct"  # and here it would not
    assert signal.choose_conv_method(np.ones((4,) * 4), np.ones((4,) * 4)) == "fft"
    a, b = normal(2, 3, 4, 5), normal(2, 2, 2, 2)
    near(signal.convolve(a, b), scipy_signal.convolve(a, b))


def test_without_scipy(monkeypatch):
    a, b = normal(40, 41), normal(17, 30)
    want = scipy_signal.convolve(a, b, method="direct")
    monkeypatch.setitem(sys.modules, "scipy.fft", None)
    near(signal.convolve(a, b, method="fft"), want)


def test_empty_and_errors():
    assert signal.convolve(np.zeros(0), np.ones(3), "same").shape == (0,)
    assert signal.convolve(2.0, 3.0) == 6
    for call in (
        lambda: signal.convolve(np.ones(3), np.ones((3, 3))),
        lambda: signal.convolve(np.ones(3), np.ones(3), "middle"),
        lambda: signal.convolve(np.zeros(0), np.ones(3)),
        lambda: signal.convolve(np.ones(3), [], "valid"),
        lambda: signal.correlate(np.ones((3, 4)), np.ones((2, 0)), "same"),
        lambda: signal.convolve(np.ones(3), np.ones(3), method="slow"),
        lambda: signal.convolve(np.ones((3, 5)), np.ones((5, 3)), "valid"),
        lambda: signal.convolve2d(np.ones(3), np.ones(3)),
        lambda: signal.convolve2d(np.ones((3, 3)), np.ones((3, 3)), boundary="edge"),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
def test_same_planes_keep_no_larger_ones(boundary):
    got = signal.correlate2d(normal(4, 5), normal(3, 9), "same", boundary)
    assert got.flags.c_contiguous and (got.base is None or got.base.nbytes <= got.nbytes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shapes", [((4, 5), (2, 0)), ((4, 5), (0, 7)), ((0, 5), (2, 3))], ids=str)
def test_planes_that_are_empty(shapes, mode):
    a, b = (normal(*s) for s in shapes)
    for name in ("convolve2d", "correlate2d"):
        try:
            want = getattr(scipy_signal, name)(a, b, mode)
        except ValueError:
            with pytest.raises(ValueError):
                getattr(signal, name)(a, b, mode)
        else:
            near(getattr(signal, name)(a, b, mode), want)


@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
def test_around_nothing_are_the_values_outside(name):
    run, nothing, b = getattr(signal, name), np.zeros((0, 2), np.float32), np.ones((3, 3), np.float32)
    assert np.array_equal(run(nothing, b, fillvalue=2), np.full((2, 4), 18, np.float32))
    assert run(nothing, b, "same", fillvalue=2).shape == (0, 2)
    assert not run(nothing, b, "valid", fillvalue=2).any()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["fftconvolve", "oaconvolve"])
@pytest.mark.parametrize(
    ("first", "second", "axes"),
    [((3, 900), (3, 7), -1), ((5, 1, 40), (1, 4, 9), [2]), ((300, 9), (11, 250), None), ((1, 8), (5, 8), [0])],
)
def test_along_axes(name, first, second, axes, mode):
    """Blocks along each axis, of either operand; the other axes broadcast."""
    a, b = normal(*first), normal(*second)
    if mode == "valid" and axes is None:
        a, b = a[:, :9], b[:, :9]
    for x in (a, a + 1j * a[::-1]):
        near(getattr(signal, name)(x, b, mode, axes), getattr(scipy_signal, name)(x, b, mode, axes))


def test_scipys_rules_at_the_edges():
    assert isinstance(signal.convolve(4, 289), np.int64) and signal.oaconvolve(2.0, 3.0) == 6
    for call in (
        lambda: signal.fftconvolve(np.ones((2, 3)), np.ones((2, 4)), axes=[0]),
        lambda: signal.fftconvolve(np.ones(3), np.ones(3), axes=[]),
        lambda: signal.oaconvolve(np.ones(3), np.ones(3), axes=[0, 0]),
        lambda: signal.oaconvolve(np.ones(3), np.ones(3), axes=1.5),
        lambda: signal.oaconvolve(np.ones(3), np.ones(3), axes=3),
        lambda: signal.convolve2d([[1]], [[1, 2]], fillvalue=[1, 2]),
        lambda: signal.convolve2d([[1]], [[1, 2]], fillvalue=1j),
        lambda: signal.convolve(np.ones(3, "m8[s]"), [1, 2]),
        lambda: signal.fftconvolve(["1"], [1]),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.warns(RuntimeWarning, match="NaN"):
        signal.convolve([1.0, np.inf, 2.0], [1.0, 2.0], method="fft")
    chosen, times = signal.choose_conv_method(np.ones(50), np.ones(4), measure=True)
    assert chosen == min(times, key=times.__getitem__)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_what_float64_cannot_hold(name, mode):
    integers = np.random.default_rng(0).integers

    def operands(dtype, *shapes):
        return [(integers(0, 2**62, s).astype(dtype) * (2**18 if dtype == "O" else 1) + 1) for s in shapes]

    line, plane = ((9,), (4,)), ((5, 6), (3, 2))
    pairs = [operands(dtype, *shapes) for dtype in ("i8", "u8") for shapes in (line, plane)]
    pairs += [operands("O", *line), [np.array([1, np.finfo("g").eps], "g")] * 2]
    for a, b in pairs:
        got, want = (getattr(module, name)(a, b, mode, "direct") for module in (signal, scipy_signal))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4"])
@pytest.mark.parametrize("method", ["auto", "direct", "fft"])
@pytest.mark.filterwarnings("error")
def test_sums_beyond_the_type_wrap(dtype, method):
    if method == "fft" and dtype in ("u4", "i4"):
        pytest.skip("float64 does not hold the products")
    ends = np.iinfo(dtype)
    line, plane = (RNG.integers(ends.min, ends.max, s, dtype, endpoint=True) for s in (9, (5, 6)))
    line[:3], plane[:2] = ends.min, ends.max
    for name in ("convolve", "correlate"):
        for a, b in ((line, line[:4]), (plane, plane[:3, :2])):
            got = getattr(signal, name)(a, b, method=method)
            want = getattr(scipy_signal, name)(a, b, method="direct")
            assert got.dtype == dtype and np.array_equal(got, want)
    for name, boundary in itertools.product(("convolve2d", "correlate2d"), ("fill", "wrap", "symm")):
        got, want = (getattr(m, name)(plane, plane[:3, :2], "same", boundary, 7) for m in (signal, scipy_signal))
        assert got.dtype == dtype and np.array_equal(got, want)


@pytest.mark.parametrize("dtypes", ["? ?", "u1 u1", "i2 i2", "i4 i2", "i1 u4", "i8 i1", "u8 u1"])
def test_transforms_of_integers_are_exact(dtypes):
    """Of numbers as large as they can be, too, for which one operand is cut into pieces."""
    kinds = [np.dtype(kind) for kind in dtypes.split()]
    ends = [(0, 1) if kind == "?" else (np.iinfo(kind).min, np.iinfo(kind).max) for kind in kinds]
    for low in (0, 1):
        lines = [
            RNG.integers(e[low], e[1], n, np.int64 if e[0] else np.uint64, endpoint=True).astype(kind)
            for kind, e, n in zip(kinds, ends, (9000, 4000), strict=True)
        ]
        got = signal.convolve(*lines, method="fft")
        want = np.convolve(*(v.astype(np.int64) for v in lines)).astype(np.result_type(*lines))
        assert got.dtype == want.dtype and np.array_equal(got, want)


def test_values_outside_have_the_type_of_the_result():
    a, b = np.arange(12, dtype=np.uint16).reshape(3, 4), np.ones((3, 3), np.uint16)
    got = signal.convolve2d(a, b, "same", fillvalue=2.5)
    assert got.dtype == np.uint16 and np.array_equal(got, signal.convolve2d(a, b, "same", fillvalue=2))
    assert np.array_equal(signal.convolve2d(a, b, fillvalue=0.5), signal.convolve2d(a, b))


def test_objects():
    a, b = np.arange(12, dtype=np.uint64), np.array([1, -2, 10**20], object)
    want = scipy_signal.convolve(a.astype(object), b)
    assert np.array_equal(signal.convolve(a, b), want)
    plane = signal.convolve2d(a[None], b[None], fillvalue=5)
    assert plane.dtype == object and np.array_equal(plane[0, 2:-2], want[2:-2])


@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_objects_without_axes(name):
    for pair in ((2, 3), (2**70, 3), (2.5, 2), (Fraction(1, 3), 2)):
        got, want = (getattr(m, name)(*(np.array(v, object) for v in pair)) for m in (signal, scipy_signal))
        assert got == want and type(got) is type(want)
    whole = getattr(signal, name)(np.array(2**62), np.array(4, object))
    assert whole == 2**64
    for kind in (object, float):
        with pytest.raises(ValueError, match="must both be 2-D arrays"):
            getattr(signal, f"{name}2d")(np.array(2, kind), np.array(3, kind))


def test_valid_planes_of_complex_numbers_agree_with_correlate():
    a, b = normal(3, 4), normal(5, 6)
    for x, y in ((a, b + 1j), (a - 2j, b), (a - 2j, b + 1j * b[::-1])):
        got = signal.correlate2d(x, y, "valid")
        near(got, scipy_signal.correlate(x, y, "valid"))
        near(got, scipy_signal.correlate2d(x, y, "valid").conj())


@pytest.mark.parametrize("mode", MODES)
def test_four_axes_of_what_must_be_exact(mode):
    a, b = RNG.integers(-(2**20), 2**20, (3, 4, 2, 5)), RNG.integers(-(2**20), 2**20, (2, 3, 1, 4))
    for wide in (0, 2**30):  # sums that float64 holds, and others
        got, want = signal.convolve(a + wide, b, mode), scipy_signal.convolve(a + wide, b, mode, "direct")
        assert got.dtype == want.dtype and np.array_equal(got, want)
    thirds = np.array([Fraction(int(n), 3) for n in a.flat], object).reshape(a.shape)
    got = signal.convolve(thirds, b.astype(object), mode)
    assert np.array_equal(got, scipy_signal.convolve(a, b, mode, "direct") * Fraction(1, 3))


def test_the_order_of_bytes_is_no_type():
    a = np.arange(5, dtype=np.float32)
    assert signal.fftconvolve(a.astype(">f4"), a).dtype == np.dtype("=f4")


def test_correlations_of_truth():
    a = np.array([True, False, True])
    for module in (signal, scipy_signal):
        assert module.correlate(a, a).dtype == bool


@pytest.mark.parametrize("dtype", ["g", "G"])
def test_long_doubles(dtype):
    a, b = normal(30, 20).astype(dtype), normal(4, 5).astype(dtype)
    for name in ("convolve", "fftconvolve", "oaconvolve"):
        got, want = (getattr(module, name)(a, b) for module in (signal, scipy_signal))
        assert got.dtype == want.dtype == dtype
        assert np.abs(got - want).max() < 1e-16 * np.abs(want).max()
