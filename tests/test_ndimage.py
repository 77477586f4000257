"""vkconv.ndimage against scipy.ndimage."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from vkconv import _window, ndimage

scipy_ndimage = pytest.importorskip("scipy.ndimage")

RNG = np.random.default_rng(6)
MODES = ["reflect", "mirror", "nearest", "wrap", "constant", "grid-mirror", "grid-wrap", "grid-constant"]
needs_axes = pytest.mark.skipif(
    "axes" not in inspect.signature(scipy_ndimage.correlate).parameters, reason="this SciPy's correlate has no axes"
)
DTYPES = [np.float64, np.float32, np.int32, np.uint8]


def array(*shape: int, dtype: type = np.float64) -> np.ndarray:
    if np.issubdtype(dtype, np.integer):
        return RNG.integers(0, 50, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


def near(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    if np.issubdtype(want.dtype, np.integer):
        # A sum that is whole but for its rounding may be cut to either side.
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
        assert (got == want).mean() > 0.9
        return
    tolerance = 1e-13 if want.dtype == np.float64 else 1e-6
    assert np.abs(got - want).max() <= tolerance * max(np.abs(want).max(), 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["correlate", "convolve"])
@pytest.mark.parametrize(
    ("shape", "kernel", "origin"),
    [((9,), (4,), 1), ((7, 8), (3, 4), (0, -1)), ((5, 6, 4), (2, 3, 3), 0), ((7, 8), (2, 5), (0, 2))],
)
def test_filters(name, shape, kernel, origin, mode):
    x, w = array(*shape), array(*kernel)
    options = {"mode": mode, "cval": 2.5, "origin": origin}
    near(getattr(ndimage, name)(x, w, **options), getattr(scipy_ndimage, name)(x, w, **options))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["reflect", "constant"])
def test_dtypes(dtype, mode):
    x = array(20, 22, dtype=dtype)
    near(ndimage.correlate(x, np.ones((3, 3)), mode=mode), scipy_ndimage.correlate(x, np.ones((3, 3)), mode=mode))
    near(ndimage.gaussian_filter(x, 1.3, mode=mode), scipy_ndimage.gaussian_filter(x, 1.3, mode=mode))
    near(ndimage.uniform_filter(x, (3, 4), mode=mode), scipy_ndimage.uniform_filter(x, (3, 4), mode=mode))
    if dtype != np.uint8:
        near(ndimage.sobel(x, 0, mode=mode), scipy_ndimage.sobel(x, 0, mode=mode))


def test_float16_is_its_own():
    x = array(20, 22, dtype=np.float16)
    got = ndimage.gaussian_filter(x, 2)
    want = scipy_ndimage.gaussian_filter(x.astype(np.float64), 2)
    assert got.dtype == np.float16 and np.abs(got - want).max() < 2e-3


@pytest.mark.parametrize("name", ["correlate1d", "convolve1d"])
@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_one_axis(name, axis):
    x, w = array(6, 7, 8), [1.0, 2.0, -3.0, 0.5]
    for options in ({}, {"origin": -2, "mode": "wrap"}, {"origin": 1, "mode": "constant", "cval": -1.0}):
        near(getattr(ndimage, name)(x, w, axis, **options), getattr(scipy_ndimage, name)(x, w, axis, **options))


@pytest.mark.parametrize("order", [0, 1, 2, 3, (0, 1)])
def test_gaussians(order):
    x = array(30, 25)
    for options in ({"sigma": 1.5}, {"sigma": (0, 2.2), "truncate": 2.5}, {"sigma": 1, "radius": (3, 2)},
                    {"sigma": 1, "mode": ("wrap", "constant"), "cval": 2.0}):  # fmt: skip
        near(
            ndimage.gaussian_filter(x, order=order, **options), scipy_ndimage.gaussian_filter(x, order=order, **options)
        )
    for sigma in (0.7, 3):
        near(ndimage.gaussian_filter1d(x, sigma, 0, 1), scipy_ndimage.gaussian_filter1d(x, sigma, 0, 1))


@needs_axes
def test_axes_and_many_dimensions():
    x = array(3, 4, 5, 6)
    near(ndimage.uniform_filter(x, 2), scipy_ndimage.uniform_filter(x, 2))
    near(ndimage.gaussian_filter(x, (1, 2), axes=(1, 3)), scipy_ndimage.gaussian_filter(x, (1, 2), axes=(1, 3)))
    near(ndimage.sobel(x, 2), scipy_ndimage.sobel(x, 2))
    w = array(3, 2)
    near(ndimage.correlate(x[0], w, axes=(0, 2)), scipy_ndimage.correlate(x[0], w, axes=(0, 2)))


@pytest.mark.parametrize("width", [64, 70, 103])
def test_wide_images(width):
    """Blocks of outputs and what is left of them; an infinity stays in the windows that see it."""
    for dtype in (np.float32, np.float64):
        x, w = array(9, width, dtype=dtype), array(3, 4)
        near(ndimage.correlate(x, w), scipy_ndimage.correlate(x, w))
        near(ndimage.convolve1d(x, w[0]), scipy_ndimage.convolve1d(x, w[0]))
        volume = array(5, 6, width, dtype=dtype)
        near(ndimage.gaussian_filter(volume, 1), scipy_ndimage.gaussian_filter(volume, 1))
        x[4, 20] = np.inf
        got = ndimage.correlate(x, np.abs(w))
        assert np.array_equal(np.isfinite(got), np.isfinite(scipy_ndimage.correlate(x, np.abs(w))))


def test_output():
    x, w = array(9, 8), np.ones((3, 3))
    out = np.empty((9, 8), np.float32)
    assert ndimage.correlate(x, w, output=out) is out
    near(out, scipy_ndimage.correlate(x, w, output=np.float32))
    near(ndimage.gaussian_filter(x, 1, output=np.float32), scipy_ndimage.gaussian_filter(x, 1, output=np.float32))
    inside = x.copy()
    assert ndimage.uniform_filter(inside, 3, output=inside) is inside
    near(inside, scipy_ndimage.uniform_filter(x, 3))
    view = x[::-2, ::3]
    near(ndimage.convolve(view, w), scipy_ndimage.convolve(view, w))
    near(ndimage.uniform_filter(x, (1, 3)), scipy_ndimage.uniform_filter(x, (1, 3)))
    assert ndimage.correlate(x[:0], w).shape == (0, 8)


@pytest.mark.parametrize("module", [ndimage, scipy_ndimage], ids=["vkconv", "scipy"])
def test_errors(module):
    x = array(5, 5)
    for kind, call in (
        (ValueError, lambda: module.correlate(x, np.ones((3, 3)), origin=2)),
        (ValueError, lambda: module.convolve(x, np.ones((4, 4)), origin=2)),
        (RuntimeError, lambda: module.correlate(x, np.ones(3))),
        (RuntimeError, lambda: module.correlate(x, np.ones((3, 3)), mode="edges")),
        (RuntimeError, lambda: module.correlate(x, np.ones((3, 3)), output=np.empty((4, 5)))),
        (ValueError, lambda: module.gaussian_filter(x, 1, axes=(0, 2))),
        (ValueError, lambda: module.gaussian_filter(x, 1, axes=(0, 0))),
        (RuntimeError, lambda: module.gaussian_filter(x, (1, 2, 3))),
        (ValueError, lambda: module.gaussian_filter1d(x, 1, order=-1)),
        (ValueError, lambda: module.gaussian_filter1d(x, 1, radius=-1)),
        (ValueError, lambda: module.gaussian_filter1d(x, 1, radius=1.5)),
        (RuntimeError, lambda: module.uniform_filter1d(x, 0)),
        (RuntimeError, lambda: module.correlate1d(x, [])),
        (TypeError, lambda: module.convolve(x, np.ones((3, 3)), origin=0.5)),
        (TypeError, lambda: module.uniform_filter1d(x, 4, origin=1.0)),
        (TypeError, lambda: module.sobel(x, None)),
    ):
        kinds = kind if kind is TypeError else (kind, ValueError, RuntimeError)
        with pytest.raises(kinds):
            call()


@pytest.mark.parametrize("name", ["correlate", "convolve"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128, np.int32])
@pytest.mark.parametrize("cval", [0.0, np.nan, np.inf, -np.inf])
def test_weights_of_zero_do_not_see_what_is_not_finite(name, dtype, cval):
    x = array(9, 10)
    if dtype != np.int32:
        x[4, 4], x[7, 2], x[7, 4] = np.nan, np.inf, -np.inf
    x, w = x.astype(dtype), np.array([[0, 1.0, 0], [1, 0, -1], [0, 2, 1e-17]])
    for mode in ("constant", "reflect"):
        output = np.complex128 if dtype == np.complex128 else np.float64
        got, want = (getattr(m, name)(x, w, output, mode, cval) for m in (ndimage, scipy_ndimage))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "kinds", [(np.complex64, np.float32), (np.float64, np.complex128), (np.complex128, np.complex64)]
)
@pytest.mark.parametrize("name", ["correlate", "convolve"])
def test_complex(name, kinds):
    x, w = (
        array(*s) + (1j * array(*s) if np.issubdtype(k, np.complexfloating) else 0)
        for s, k in zip(((9, 8), (3, 4)), kinds, strict=True)
    )
    x, w = x.astype(kinds[0]), w.astype(kinds[1])
    cval = 1.5 - 2j if np.iscomplexobj(x) else 1.5
    near(
        getattr(ndimage, name)(x, w, mode="constant", cval=cval),
        getattr(scipy_ndimage, name)(x, w, mode="constant", cval=cval),
    )


def test_complex_outputs_and_inputs_of_filters():
    x = array(12, 10) + 1j * array(12, 10)
    for name, argument in (("gaussian_filter", 1.2), ("uniform_filter", 3), ("sobel", 0)):
        near(getattr(ndimage, name)(x, argument), getattr(scipy_ndimage, name)(x, argument))
    with pytest.warns(UserWarning, match="complex"):
        assert ndimage.correlate(x, np.ones((3, 3)), output=np.float32).dtype == np.complex64
    for output in (np.zeros((12, 10)), "f8"):
        with pytest.raises(RuntimeError, match="output"):
            ndimage.correlate(x, np.ones((3, 3)), output=output)
    with pytest.raises(ValueError, match="cval"):
        ndimage.correlate(x.real, np.ones((3, 3)), cval=1j)


@needs_axes
@pytest.mark.parametrize("axes", [(2, 0), (1, 0), (2, 1)])
def test_weights_of_some_axes_stand_in_the_arrays_order(axes):
    x, w = array(5, 6, 7), array(2, 3)
    near(ndimage.correlate(x, w, axes=axes, origin=(-1, 0)), scipy_ndimage.correlate(x, w, axes=axes, origin=(-1, 0)))


@needs_axes
def test_results_lie_row_by_row():
    for x in (array(6, 4, 9), np.asfortranarray(array(6, 4, 9)), array(6, 4, 9) + 1j, array(4, 70)):
        for name, arguments, options in (
            ("correlate1d", ([1, 2, 1],), {"axis": 0}),
            ("correlate1d", ([1, 0, -1],), {"axis": 1}),
            ("uniform_filter1d", (3, 0), {}),
            ("uniform_filter1d", (65, 0), {}),
            ("gaussian_filter1d", (1, 0), {}),
            ("correlate", (array(2, 3),), {"axes": (0, x.ndim - 1)}),
        ):
            for part in (x, x[..., :3]):
                got = getattr(ndimage, name)(part, *arguments, **options)
                assert got.flags.c_contiguous
                near(got, getattr(scipy_ndimage, name)(part, *arguments, **options))


def test_four_axes():
    x, w = array(4, 5, 6, 7), array(2, 3, 3, 2)
    near(ndimage.convolve(x, w, mode="wrap"), scipy_ndimage.convolve(x, w, mode="wrap"))


def test_uniform_filter_of_integers_is_exact():
    """A sum, then one division: means that are whole numbers stay whole."""
    x = np.full((40,), 3)
    for size in (3, 7, 13):
        assert np.array_equal(ndimage.uniform_filter1d(x, size), x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("shape", "axis"), [((300,), 0), ((3, 150, 12), 1), ((20, 9), 0), ((1,), 0)])
def test_long_uniform_filters(shape, axis, mode):
    for dtype in DTYPES:
        x = array(*shape, dtype=dtype)
        for size, origin in ((64, 0), (67, -20), (100, 31), (331, 7)):
            got, want = (
                m.uniform_filter1d(v, size, axis, np.float64, mode, 1.5, origin)
                for m, v in ((ndimage, x), (scipy_ndimage, x.astype(np.float64)))
            )
            assert np.abs(got - want).max() <= (1e-6 if dtype == np.float32 else 1e-13) * max(np.abs(want).max(), 1)
    whole = np.full(shape, 7)
    assert np.array_equal(ndimage.uniform_filter1d(whole, 101, axis, mode=mode, cval=7), whole)


def test_long_windows_of_means_see_only_themselves():
    x = array(2000)
    x[1000], x[1100] = np.nan, np.inf
    got = ndimage.uniform_filter1d(x, 65)
    assert np.array_equal(np.flatnonzero(np.isnan(got)), np.arange(968, 1033))
    assert np.array_equal(np.flatnonzero(np.isinf(got)), np.arange(1068, 1133))


def test_long_uniform_filters_take_few_additions(monkeypatch):
    lengths = []
    filtered = _window._line_filter
    monkeypatch.setattr(_window, "_line_filter", lambda x, w, *rest: lengths.append(len(w)) or filtered(x, w, *rest))
    ndimage.uniform_filter1d(array(5000), 1001)
    assert sum(lengths) < 100


@pytest.mark.parametrize("name", ["correlate1d", "convolve1d"])
@pytest.mark.parametrize("mode", MODES)
def test_antisymmetric_weights_are_zero_where_the_input_is_constant(name, mode):
    w = [-0.1, 0.7, 0.0, -0.7, 0.1]
    for dtype, shape, axis in ((np.float64, (30,), 0), (np.float32, (30, 9), 0), (np.float64, (5, 30), 1)):
        x = np.full(shape, 0.3, dtype)
        x[tuple(slice(12 if a == axis else None) for a in range(x.ndim))] = 0.8
        for options in ({}, {"origin": 1}, {"origin": -2, "cval": 0.1}):
            got = getattr(ndimage, name)(x, w, axis, mode=mode, **options)
            want = getattr(scipy_ndimage, name)(x, w, axis, mode=mode, **options)
            near(got, want)
            np.testing.assert_array_equal(got == 0, want == 0)


def test_antisymmetric_weights_of_random_data():
    for dtype in (np.float64, np.float32, np.complex128, np.int32):
        x = array(40, 11, dtype=dtype)
        for w in ([-0.3, 0.0, 0.3], np.array([2, 5, -4, 0, 4, -5, -2]), np.array([1j, 0, -1j])):
            for axis in (0, 1):
                near(ndimage.correlate1d(x, w, axis), scipy_ndimage.correlate1d(x, w, axis))


def test_antisymmetric_weights_of_what_is_not_finite():
    x, w = np.zeros(9), np.array([1, 2, 0, -2, -1])
    x[4] = np.inf
    for dtype in (np.float64, np.float32):
        got = ndimage.correlate1d(x.astype(dtype), w)
        assert np.array_equal(got, [0, 0, -np.inf, -np.inf, np.nan, np.inf, np.inf, 0, 0], equal_nan=True)
    x[4:6] = 1e308, -1e308  # their difference is beyond float64
    near(ndimage.correlate1d(x, w * 0.1) / 1e307, np.array([0, 0, -1, -1, 2, 2, -1, -1, 0.0]))


def test_a_filter_of_several_axes_has_one_mode():
    with pytest.raises(RuntimeError, match="mode is"):
        ndimage.correlate(array(5, 5), np.ones((3, 3)), mode=("wrap", "mirror"))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.7, 3.0])
def test_gaussians_keep_constant_integers(sigma, dtype):
    for value in range(1, 128):
        x = np.full((9, 11), value, dtype)
        assert np.array_equal(ndimage.gaussian_filter(x, sigma), x)
    assert np.array_equal(ndimage.correlate1d(np.arange(2**52, 2**52 + 9), [1.0], 0), np.arange(2**52, 2**52 + 9))


@pytest.mark.parametrize("dtype", ["?", "u1", "u2", "u4", "u8", "i1", "i8", ">f8"])
def test_outputs_are_cast_as_there(dtype):
    x = array(40, 11) * 3
    x = x > 0 if dtype == "?" else np.abs(x).astype(dtype)
    calls = {"uniform_filter": (), "gaussian_filter": (0.8, 1), "correlate1d": ([-1, 0, 1],), "sobel": ()}
    if dtype in ("?", "u8"):  # there, a negative truth is 255 for the next axis; sums of wrapped u8 round
        del calls["sobel"], calls["gaussian_filter"]
    for name, arguments in calls.items():
        got, want = (getattr(module, name)(x, *arguments) for module in (ndimage, scipy_ndimage))
        assert got.dtype == want.dtype
        near(got, want) if dtype == ">f8" else np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["O", "g", "G", "M8[s]", "U1", "f4,f4"])
def test_other_types_are_refused(dtype):
    calls = {"uniform_filter": (3,), "gaussian_filter": (1,), "correlate": (np.ones(3),), "sobel": ()}
    for name, arguments in calls.items():
        for given in ({"input": np.zeros(4, dtype)}, {"input": np.zeros(4), "output": np.dtype(dtype)}):
            with pytest.raises(RuntimeError, match=r"array type .* not supported"):
                getattr(ndimage, name)(given.pop("input"), *arguments, **given)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_gaussians_of_one_element(order):
    x = array(9, 8)
    near(*(m.gaussian_filter(x, 1, order, truncate=0) for m in (ndimage, scipy_ndimage)))


def test_numbers_may_be_arrays_without_axes():
    x = array(7, 8)
    for name, arguments, numbers in (
        ("gaussian_filter", (), {"sigma": 1.5, "order": 1}),
        ("gaussian_filter1d", (), {"sigma": 1.5, "axis": 0}),
        ("uniform_filter", (), {"size": 4, "origin": 1}),
        ("correlate1d", ([1.0, 2.0, -3.0],), {"axis": -2, "origin": -1}),
        ("sobel", (), {"axis": 0}),
    ):
        given = {key: np.array(number) for key, number in numbers.items()}
        near(getattr(ndimage, name)(x, *arguments, **given), getattr(scipy_ndimage, name)(x, *arguments, **numbers))


def test_an_integer_without_axes_wraps():
    got = ndimage.correlate(np.array(100, np.int8), np.array(50))
    assert got.shape == () and got.dtype == np.int8 and got == -120


@needs_axes
@pytest.mark.parametrize("name", ["correlate", "convolve"])
@pytest.mark.parametrize("weight", [-1.5, 2 - 1j])
def test_filters_of_no_axis(name, weight):
    for x, options in ((np.array(3.0), {}), (array(4, 5), {"axes": ()})):
        near(*(getattr(module, name)(x, weight, **options) for module in (ndimage, scipy_ndimage)))
