"""A `Correction` is a pytree of arrays, `==` compares identities, and a status prints as words."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from correct_case import NUMBERS, T, X, answer, check_same_bits, correct
from scasml import Correction, Status

ARRAYS = ("t", "x", *NUMBERS, "raw_value", "kept_share", "gradient_bias", "replicates", "steps")


def scalar():
    return correct(T[0], X[0])


class TestPytree:
    def test_leaves_are_arrays(self):
        leaves = jax.tree.leaves(answer())
        assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
        assert all(leaf.dtype.kind in "fi" for leaf in leaves)
        assert {id(getattr(answer(), name)) for name in ARRAYS} <= {id(leaf) for leaf in leaves}

    def test_leaves_of_one_point_are_numbers(self):
        leaves = jax.tree.leaves(scalar())
        assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)
        assert {leaf.shape for leaf in leaves} == {(), (3,)}

    def test_without_the_gradient(self):
        """Attributes that are None are no leaves."""
        other = correct(T[:2], X[:2], with_gradient=False)
        assert len(jax.tree.leaves(other)) == len(jax.tree.leaves(answer())) - 3
        assert jax.tree.map(lambda a: a, other).gradient is None

    def test_map(self):
        """The mapped arrays belong to a `Correction`, whose other attributes are kept."""
        got = jax.tree.map(lambda a: a[2:4], answer())
        assert isinstance(got, Correction)
        check_same_bits(answer(), got, slice(2, 4))
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(got, name), getattr(answer(), name)[2:4])
        assert got.status.tolist() == answer().status[2:4].tolist()
        assert np.shape(got.interval()) == (2, 2)
        assert got.rule is answer().rule
        assert got.cost is answer().cost

    def test_flatten_and_unflatten(self):
        leaves, structure = jax.tree.flatten(answer())
        check_same_bits(answer(), jax.tree.unflatten(structure, leaves))

    def test_as_an_argument_and_result_of_jit(self):
        shift = jax.jit(lambda got: jax.tree.map(lambda a: a + 1, got))
        got = shift(answer())
        assert isinstance(got, Correction)
        np.testing.assert_allclose(got.value, answer().value + 1, rtol=1e-6)


class TestEquality:
    def test_batches(self):
        """An answer equals itself only, and the comparison does not raise."""
        one, other = answer(), correct()
        assert (one == other) is False
        assert (one != other) is True
        assert (one == one) is True
        assert other not in [one]
        assert len({one, other, one}) == 2

    def test_one_point(self):
        assert (scalar() == scalar()) is False

    def test_choices(self):
        """The points of a choice are an array, whose comparison has no truth value."""
        (one,), (other,) = answer().choices, correct().choices
        assert (one == other) is False
        assert (one == one) is True


class TestStatus:
    def test_one_point(self):
        status = scalar().status
        assert status is Status.BUDGET_EXHAUSTED
        assert status == "budget exhausted"
        assert str(status) == f"{status}" == "budget exhausted"

    def test_a_batch(self):
        status = answer().status
        assert status.shape == (len(T),)
        assert all(isinstance(each, Status) for each in status)
        assert np.all(status == "budget exhausted")
        assert str(status[:2]) == "[budget exhausted budget exhausted]"
        assert np.all(status == Status.BUDGET_EXHAUSTED)
        assert [str(each) for each in status] == ["budget exhausted"] * len(T)
        assert "budget exhausted" in str(answer())

    def test_codes_are_an_array(self):
        codes = answer().status_code
        assert codes.dtype.kind == "i"
        assert set(codes.tolist()) == {Status.BUDGET_EXHAUSTED.code}

    @pytest.mark.parametrize("status", Status)
    def test_every_code(self, status):
        """The code of a status leads back to it, alone and in a batch."""
        one = replace(scalar(), status_code=np.int8(status.code))
        assert one.status is status
        many = jax.tree.map(lambda a: np.stack([a, a]), one)
        assert many.status.tolist() == [status, status]
