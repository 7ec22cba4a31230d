"""Functions kept apart from what uses them, and functions that are the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scasml._support.tracing import apart, same_function


class TestApart:
    def test_it_is_the_function(self):
        f = lambda x, y: (jnp.sin(x) * y, x + 1)
        kept = lambda x, yes: apart(yes, f)(x, 2.0)
        x = jnp.arange(3.0)
        got, expected = jax.jit(kept)(x, True), f(x, 2.0)
        jax.tree.map(np.testing.assert_allclose, got, expected)
        slope = jax.grad(lambda x: jnp.sum(kept(x, jnp.asarray(True))[0]))(x)
        np.testing.assert_allclose(slope, 2 * np.cos(x), rtol=1e-6)

    def test_it_stays_a_conditional(self):
        """Also inside vmap, in the program that runs: else it would be fused, and computed again by whatever uses it."""
        kept = lambda x, yes: jax.vmap(lambda x: apart(yes, jnp.sin)(x))(x)
        text = jax.jit(kept).lower(jnp.arange(3.0), jnp.asarray(True)).compile().as_text()
        assert "conditional(" in text


class Scale(eqx.Module):
    by: np.ndarray

    def __call__(self, x):
        return self.by * x


def test_is_same():
    f = lambda x: x
    assert same_function(f, f)
    assert not same_function(f, lambda x: x)
    assert not same_function(None, f)
    assert same_function(Scale(np.ones(2)), Scale(np.ones(2)))
    assert not same_function(Scale(np.ones(2)), Scale(np.zeros(2)))
    assert not same_function(Scale(np.ones(2)), Scale(np.ones(3)))
    # What is traced is not known.
    seen = []
    jax.jit(lambda a, b: seen.append(same_function(Scale(a), Scale(b))))(np.ones(2), np.ones(2))
    assert seen == [False]
