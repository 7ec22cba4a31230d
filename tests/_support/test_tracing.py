"""Abstract points, cache keys, the prevention of fusion, and the comparison of functions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scasml._support.tracing import (
    abstract_point,
    cached_by_structure,
    prevent_fusion,
    same_function,
    structure_key,
)


class Scale(eqx.Module):
    factor: np.ndarray
    name: str = eqx.field(static=True, default="")

    def __call__(self, x):
        return self.factor * x


@pytest.mark.parametrize(("x64", "dtype"), [(False, np.float32), (True, np.float64)])
def test_abstract_point(x64, dtype):
    with jax.enable_x64(x64):
        t, x = abstract_point(3)
    assert (t.shape, x.shape) == ((), (3,))
    assert t.dtype == x.dtype == dtype


class TestStructureKey:
    def test_values_of_arrays_do_not_count(self):
        assert structure_key(Scale(np.ones(2))) == structure_key(Scale(np.zeros(2)))
        assert hash(structure_key(Scale(np.ones(2)))) == hash(structure_key(Scale(np.zeros(2))))

    @pytest.mark.parametrize(
        "other",
        [
            Scale(np.ones(3)),
            Scale(np.ones(2, np.float32)),
            Scale(np.ones(2), "another"),
            Scale(2.0),
            [np.ones(2)],
        ],
        ids=["shape", "dtype", "static field", "leaf that is no array", "tree"],
    )
    def test_everything_else_counts(self, other):
        assert structure_key(Scale(np.ones(2))) != structure_key(other)

    def test_the_default_dtype_counts(self):
        with jax.enable_x64(False):
            single = structure_key(1.0)
        with jax.enable_x64(True):
            assert structure_key(1.0) != single

    def test_leaves_of_equal_value_and_other_type_differ(self):
        assert structure_key(1) != structure_key(True)


def test_results_are_cached_by_structure():
    calls = []
    cached = cached_by_structure(lambda model: calls.append(model) or len(calls))
    assert cached(Scale(np.ones(2))) == cached(Scale(np.zeros(2))) == 1
    assert cached(Scale(np.ones(3))) == 2
    # With an unhashable leaf, the function is called each time.
    assert cached({1, 2}) == 3
    assert cached({1, 2}) == 4


class TestPreventFusion:
    def test_values_and_gradients_are_those_of_the_function(self):
        f = lambda x, y: (jnp.sin(x) * y, x + 1)
        unfused = lambda x, true: prevent_fusion(f, true)(x, 2.0)
        x = jnp.arange(3.0)
        got, expected = jax.jit(unfused)(x, True), f(x, 2.0)
        jax.tree.map(np.testing.assert_allclose, got, expected)
        slope = jax.grad(lambda x: jnp.sum(unfused(x, jnp.asarray(True))[0]))(x)
        np.testing.assert_allclose(slope, 2 * np.cos(x), rtol=1e-6)

    def test_the_compiled_program_has_the_conditional(self):
        """Inside vmap too. Otherwise XLA would fuse the function and compute it once per use."""
        unfused = lambda x, true: jax.vmap(lambda x: prevent_fusion(jnp.sin, true)(x))(x)
        text = jax.jit(unfused).lower(jnp.arange(3.0), jnp.asarray(True)).compile().as_text()
        assert "conditional(" in text


def test_same_function():
    f = lambda x: x
    assert same_function(f, f)
    assert not same_function(f, lambda x: x)
    assert not same_function(None, f)
    assert same_function(Scale(np.ones(2)), Scale(np.ones(2)))
    assert not same_function(Scale(np.ones(2)), Scale(np.zeros(2)))
    assert not same_function(Scale(np.ones(2)), Scale(np.ones(3)))
    # The values of traced arrays are not known.
    seen = []
    jax.jit(lambda a, b: seen.append(same_function(Scale(a), Scale(b))))(np.ones(2), np.ones(2))
    assert seen == [False]
