"""The starts of a run: the surrogate, smoothed g, zero, and tangents to an estimate."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._equations.base import AbstractEquation
from .._equations.defect import Defect
from .._equations.generator import Hutchinson
from .._equations.problem import Problem
from .._equations.smoothness import terminal_may_be_rough
from .._equations.surrogate import AbstractSurrogate
from ..paths.coefficients import Coefficient, diffuse_transposed
from ..surrogates import wrap
from ..surrogates.terminal import smoothed_terminal
from .task import Start


def given_start(
    equation: AbstractEquation,
    surrogate: AbstractSurrogate | None,
    hutchinson: Hutchinson | None,
) -> Start:
    """Return the start of an estimator that the user named: the surrogate, or zero without one."""
    if surrogate is None:
        return Start("zero", equation, None)
    return Start("the surrogate", Defect(equation, surrogate, hutchinson), surrogate)


def offered_starts(
    equation: AbstractEquation,
    surrogate: AbstractSurrogate | None,
    hutchinson: Hutchinson | None,
) -> list[Start]:
    """Return the starts of the automatic choice, in the order: the surrogate, smoothed g, zero.

    The surrogate is left out if it is None. Smoothed g is offered if the equation is a `Problem`,
    g is smooth, and F depends on u or z.
    """
    found = [] if surrogate is None else [given_start(equation, surrogate, hutchinson)]
    is_problem = isinstance(equation, Problem)
    if is_problem and not equation.is_linear and not terminal_may_be_rough(equation):
        model = wrap(smoothed_terminal(equation), equation)
        found.append(Start("smoothed g", Defect(equation, model, hutchinson), model))
    return [*found, given_start(equation, None, hutchinson)]


class Tangent(eqx.Module):
    """The tangent plane of an estimate at one point: a model of the solution near that point.

    `value`, a scalar, and `slope` (d,) are the estimated solution and its gradient at (t0, x0). The
    derivative in time is that of the equation at (t0, x0), if second derivatives in x are left out.
    """

    equation: AbstractEquation
    t0: Coefficient
    x0: Coefficient
    value: Coefficient
    slope: Coefficient

    def __call__(self, t: Array, x: Array) -> Array:
        t0, x0, value, slope = (
            jnp.asarray(a, x.dtype) for a in (self.t0, self.x0, self.value, self.slope)
        )
        z = diffuse_transposed(self.equation.diffusion(t0, x0), slope)
        # The equation is that of the problem, whose F draws no random numbers from the key.
        f = self.equation.nonlinearity(t0, x0, value, z, jax.random.key(0))
        rate = -self.equation.drift(t0, x0) @ slope - f
        return value + rate * (t - t0) + slope @ (x - x0)


def tangent_start(tangent: Tangent) -> Start:
    """Return a tangent as a start."""
    model = wrap(tangent, tangent.equation)
    return Start("tangent", Defect(tangent.equation, model), model)
