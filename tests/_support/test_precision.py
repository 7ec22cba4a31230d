"""The dtype that a user's argument means, and trees that are cast to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scasml._support.errors import ArgumentError
from scasml._support.precision import cast, parse_dtype, use_dtype

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


@pytest.mark.parametrize(
    ("dtype", "parsed"),
    [("float32", SINGLE), (np.float64, DOUBLE), (jnp.float32, SINGLE), (DOUBLE, DOUBLE)],
)
def test_a_given_dtype(dtype, parsed):
    assert parse_dtype(dtype) == parsed


@pytest.mark.parametrize(("x64", "parsed"), [(False, SINGLE), (True, DOUBLE)])
def test_none_is_the_default_of_jax(x64, parsed):
    with jax.enable_x64(x64):
        assert parse_dtype(None) == parsed


@pytest.mark.parametrize("dtype", ["float16", "no dtype", 32, np.complex64, int])
def test_others_are_refused(dtype):
    with pytest.raises(ArgumentError, match='dtype must be None, "float32" or "float64", got'):
        parse_dtype(dtype)


def test_only_floating_point_arrays_are_cast():
    tree = {"a": np.ones(2), "n": np.arange(2), "s": "text", "x": 1.0}
    got = cast(tree, SINGLE)
    assert got["a"].dtype == SINGLE
    assert got["n"].dtype == tree["n"].dtype
    assert (got["s"], got["x"]) == ("text", 1.0)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_jax_computes_in_the_dtype(dtype):
    with use_dtype(dtype):
        assert jnp.ones(2).dtype == dtype
