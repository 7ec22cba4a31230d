"""A surrogate of the HJB problem with a deliberate error of 3 per cent, to be corrected by

    scasml correct hjb --surrogate examples/perturbed_hjb.py:u --rtol 1e-3

The formula replaces |x|^2 in the terminal value ln((1 + |x|^2)/2) by its mean at the horizon. A
ripple is added to it.
"""

import jax.numpy as jnp


def u(t, x):
    """Return the surrogate at one point: a time t and a state x (d,)."""
    approximation = jnp.log((1 + x @ x + 2 * (1 - t) * x.shape[0]) / 2)
    return approximation * (1 + 0.03 * jnp.sin(x[0] + t))
