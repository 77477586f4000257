"""Objects of the package as Python treats any object: made, copied, pickled; and objects of others that run code."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import vkconv

X, W = np.ones((1, 5, 5, 3), np.float32), np.ones((4, 3, 3, 3), np.float32)


def test_prepared_convolutions_are_their_own_copies():
    conv = vkconv.prepare(W)
    assert copy.copy(conv) is conv
    assert copy.deepcopy([conv])[0] is conv
    with pytest.raises(TypeError, match=r"pickle the arguments of vkconv.prepare"):
        pickle.dumps(conv)


def test_a_copy_of_an_array_has_its_own_memory(device):
    a = vkconv.array(X, device=device)
    for made in (copy.copy(a[:, 1:]), copy.deepcopy(a[:, 1:]), pickle.loads(pickle.dumps(a[:, 1:]))):
        assert (made.device, made.dtype) == (a.device, a.dtype)
        np.testing.assert_array_equal(made.numpy(), X[:, 1:])
    made = copy.copy(a)
    vkconv.conv2d(a, 2 * np.eye(3, dtype=np.float32).reshape(3, 1, 1, 3), out=made)
    np.testing.assert_array_equal(made.numpy(), 2 * X)
    np.testing.assert_array_equal(a.numpy(), X)


def test_descriptions_are_their_text():
    h200 = vkconv.describe_device("h200")
    for made in (copy.copy(h200), copy.deepcopy(h200), pickle.loads(pickle.dumps(h200))):
        assert (made.json, repr(made)) == (h200.json, repr(h200))


@pytest.mark.parametrize("kind", [vkconv.PreparedConv, vkconv.Array, vkconv.DeviceDescription])
def test_no_object_is_half_made(kind):
    with pytest.raises(TypeError):
        kind.__new__(kind)
    with pytest.raises(TypeError):
        kind()
    assert kind.__module__ == "vkconv"


class Clears:
    """An integer that empties a list when it is read."""

    def __init__(self, items: list, value: int) -> None:
        self.items, self.value = items, value

    def __index__(self) -> int:
        self.items.clear()
        return self.value


def emptying_itself(*values: int) -> list:
    items: list = []
    items += [Clears(items, value) for value in values]
    return items


class Raises:
    """A sequence, an integer and a number whose code ends with an error."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> int:
        raise self.error

    def __index__(self) -> int:
        raise self.error


@pytest.mark.parametrize(("error", "seen"), [(KeyboardInterrupt, KeyboardInterrupt), (ValueError, TypeError)])
def test_only_errors_of_kind_are_taken_for_them(error, seen):
    x = np.ones((1, 8, 8, 3), np.float32)
    for options in (
        {"stride": Raises(error)},
        {"stride": (1, Raises(error))},
        {"activation": ("clip", 0, Raises(error))},
    ):
        with pytest.raises(seen):
            vkconv.conv2d(x, W, **options)


def test_sequences_are_read_as_they_were():
    x = np.ones((1, 8, 8, 3), np.float32)
    assert vkconv.conv2d(x, W, stride=emptying_itself(1, 2)).shape == (1, 6, 3, 4)
    for options in (
        {"pads": [emptying_itself(1, 0), emptying_itself(0, 2)]},
        {"padding": (emptying_itself(1, 0), emptying_itself(0, 2))},
    ):
        assert vkconv.conv2d(x, W, **options).shape == (1, 7, 8, 4)
    grad = np.ones((1, 6, 6, 4), np.float32)
    assert vkconv.conv_input_grad(grad, W, emptying_itself(1, 8, 8, 3)).shape == x.shape
