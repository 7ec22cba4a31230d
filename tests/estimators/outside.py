"""An estimator, a stepping scheme and a path law that are defined outside of the library."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scasml.estimators import AbstractEstimator, Evaluations, Replicate, Tuning
from scasml.paths import AbstractDynamics, AbstractPathLaw, Jump


class MonteCarlo(AbstractEstimator):
    """E g(X_T) of a linear problem without a source, by `samples` exact paths."""

    samples: int = eqx.field(static=True, default=16)

    @property
    def increments(self):
        return ("terminal",)

    def default_tuning(self, equation, gradient):
        return Tuning("pathwise", steps=0)

    def replicate(self, equation, tuning, variant, key, t, x, gradient):
        def values(x):
            end = lambda key: equation.dynamics.exact.jump(key, t, x, equation.horizon - t, False).x
            g = jax.vmap(lambda key: equation.terminal(end(key)))(
                jax.random.split(key, self.samples)
            )
            return jnp.mean(g), jnp.mean(jnp.abs(g))

        (value, size), slope = jax.value_and_grad(values, has_aux=True)(x)
        slopes = (slope, slope[None]) if gradient else (None, None)
        no_telescoping = jnp.zeros(0, x.dtype)
        return Replicate(value, slopes[0], value[None], slopes[1], size[None], no_telescoping)

    def evaluations(self, equation, tuning):
        return [Evaluations(terminal=self.samples, normals=self.samples * equation.dim)]

    def work(self, equation, tuning, gradient):
        return np.array([100.0 * equation.dim])

    def level_bias(self, equation, mean, size):
        return np.zeros(mean.shape[:-1])


def heun(dynamics, t, x, h, dw):
    """A step with the mean of the drifts at both ends: weak order 1, and 2 without noise."""
    first, noise = dynamics.drift(t, x), dynamics.diffusion(t, x) * dw
    second = dynamics.drift(t + h, x + h * first + noise)
    return x + h / 2 * (first + second) + noise


class SinhBrownian(AbstractDynamics, AbstractPathLaw):
    """X = sinh(Y) with Y a Brownian motion of volatility `volatility` in every coordinate."""

    volatility: float = eqx.field(static=True)
    steps: int = eqx.field(static=True, default=1)

    def drift(self, t, x):
        return 0.5 * self.volatility**2 * x

    def diffusion(self, t, x):
        return self.volatility * jnp.sqrt(1 + x**2)

    @property
    def constant_diffusion(self):
        return None

    @property
    def exact(self):
        return self

    def check(self, dim):
        """All dimensions fit."""

    def move(self, noise, s, x, duration, weight):
        end = jnp.sinh(jnp.arcsinh(x) + self.volatility * jnp.sqrt(duration) * noise[0])
        return Jump(end, noise[0] / jnp.sqrt(duration) if weight else None)
