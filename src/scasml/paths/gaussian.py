"""Constant drift and diffusion: X_t given X_s = x is Gaussian, so the jump is exact whatever its length."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ..problem import AbstractLaw, diffuse


class Jump(NamedTuple):
    """X_t, and the Bismut-Elworthy-Li weight: E[f(X_t) weight] = sigma^T grad_x E[f(X_t)]."""

    x: Array
    weight: Array


def gaussian_jump(law: AbstractLaw, key: PRNGKeyArray, s: Array, x: Array, duration: Array) -> Jump:
    """X_t = x + mu (t - s) + sigma (W_t - W_s), weight (W_t - W_s)/(t - s), for t = s + duration."""
    xi = jax.random.normal(key, (law.dim,), x.dtype)
    root = jnp.sqrt(duration)
    return Jump(x + law.drift * duration + root * diffuse(law.diffusion, xi), xi / root)
