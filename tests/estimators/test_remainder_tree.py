"""R at independent estimates of V, and the evaluation of a tree of such estimates."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scasml import Problem
from scasml._equations.base import Solution
from scasml._equations.linearised import LinearisedEquation
from scasml.estimators._level_paths import LevelPaths, State
from scasml.estimators._remainder_tree import ROOTS, RemainderMean, Tree, evaluate, nodes_above

pytestmark = pytest.mark.usefixtures("x64")

DIM = 2
X = np.array([0.3, -0.6])
R_TIME = 0.4


@functools.cache
def mean_of(degree: int, groups: int) -> RemainderMean:
    """Return the mean for an F of this degree in u and z, whose slopes at 0 depend on t and x."""

    def nonlinearity(t: Any, x: Any, u: Any, z: Any) -> Any:
        linear = u * jnp.sin(x[0] + t) + z[0] * x[1] + 0.2 * z[1] * x[0] ** 2
        terms = [
            0.7 * u**2 + 0.3 * u * z[1] + z @ z,
            u**3 - 0.4 * u * z[0] ** 2,
            0.5 * u**4 + (z @ z) ** 2,
        ]
        return linear + sum(terms[: degree - 1])

    sigma = np.array([[0.8, 0.1], [-0.3, 0.6]])
    problem = Problem(
        dim=DIM,
        horizon=1.0,
        diffusion=sigma,
        nonlinearity=nonlinearity,
        terminal=lambda x: jnp.sum(x),
    )
    return RemainderMean(LevelPaths(problem, "euler", 2, True, jnp.asarray(True)), groups)


def estimates(count: int, seed: int = 0) -> tuple[np.ndarray, State]:
    """Return random estimates of V, and of their derivatives in the fields of a state."""
    draw = np.random.default_rng(seed).normal
    u, slope = (
        draw(size=count),
        (draw(size=(count, DIM)), draw(size=(count, DIM)), draw(size=count)),
    )
    x, v, a = map(jnp.asarray, slope)
    return u, State(x, v, a, jnp.zeros_like(a))


def literal_z(mean: RemainderMean, x: np.ndarray, slope: State) -> np.ndarray:
    """Return sigma^T times the gradient in x, from the derivatives in the state at (r, x)."""
    return np.asarray(_literals(mean)[0](jnp.asarray(x), slope))


def remainder(mean: RemainderMean, x: np.ndarray, u: Any, z: Any) -> float:
    """Return R = F(u, z) - F(0, 0) - <dF(0, 0), (u, z)>."""
    return float(_literals(mean)[1](jnp.asarray(x), (jnp.asarray(u), jnp.asarray(z))))


_COMPILED: dict[int, Any] = {}


def _literals(mean: RemainderMean) -> Any:
    """Return the compiled functions z and R of `literal_z` and `remainder`."""
    problem, t = mean.paths.equation, jnp.asarray(R_TIME)
    assert isinstance(problem, Problem)

    def z(x: Any, slope: State) -> Any:
        tilt = jax.jacfwd(lambda x: LinearisedEquation(problem).tilt(t, x))(x)
        gradient = slope.x + tilt[0].T @ slope.v + slope.a * tilt[1]
        return problem.diffusion(t, x).T @ gradient

    def r(x: Any, at: Any) -> Any:
        f = lambda v: problem.nonlinearity_fn(t, x, *v)
        zero = jnp.zeros(()), jnp.zeros(DIM)
        return f(at) - jax.jvp(f, (zero,), (at,))[1] - f(zero)

    return _COMPILED.setdefault(id(mean), (jax.jit(z), jax.jit(r)))


def bias(degree: int, groups: int) -> tuple[float, float]:
    """Return E of the exact combination less R(E V), and R(E V).

    The expectation is exact: each group takes one of three estimates with given probabilities, and
    all combinations of them are enumerated.
    """
    mean, p = mean_of(degree, groups), np.array([0.2, 0.5, 0.3])
    u, slope = estimates(3)
    chosen = np.array(list(itertools.product(range(3), repeat=groups)))
    state = mean.paths.begin(jnp.asarray(R_TIME), jnp.asarray(X))
    one = lambda u, slope: mean(jnp.asarray(mean.exact), jnp.asarray(R_TIME), state, u, slope)
    pick = lambda a: jnp.asarray(a)[chosen]
    found = jax.jit(jax.vmap(one))(pick(u), jax.tree.map(pick, slope))
    average = jax.tree.map(lambda a: np.tensordot(p, a, 1), slope)
    right = remainder(mean, X, p @ u, literal_z(mean, X, average))
    return float(np.prod(p[chosen], 1) @ np.asarray(found)) - right, right


@pytest.mark.parametrize(
    ("degree", "groups", "is_exact"),
    [(2, 2, True), (3, 2, False), (2, 3, True), (3, 3, True), (4, 3, False)],
)
def test_polynomials_of_degree_groups_have_no_bias(degree, groups, is_exact):
    error, right = bias(degree, groups)
    if is_exact:
        assert abs(error) < 1e-12
    else:
        assert abs(error) > 1e-4
    assert abs(right) > 1e-2


@pytest.mark.parametrize("groups", [2, 3])
def test_combinations_average_the_subsets_of_a_size(groups):
    """The factors of all subsets of a size are equal, and add up to the factor of that size."""
    mean = mean_of(2, groups)
    size = mean.subsets.sum(1)
    assert len(np.unique(mean.subsets, axis=0)) == len(mean.subsets) == 2**groups - 1
    for wanted in range(1, groups + 1):
        factors = mean.combination({wanted: 2.5})
        np.testing.assert_allclose(factors[size == wanted].sum(), 2.5)
        assert np.ptp(factors[size == wanted]) == 0
        assert not factors[size != wanted].any()
    np.testing.assert_allclose(mean.exact.sum(), 1)


def random_tree(mean: RemainderMean, seed: int) -> Tree:
    """Return a tree with a random number at every place."""
    tree = Tree.empty(jnp.asarray(X), mean.groups)
    draw = np.random.default_rng(seed).normal
    filled = jax.tree.map(lambda a: jnp.asarray(draw(size=a.shape)), tree)
    r = jnp.full_like(filled.r, R_TIME)
    return filled._replace(r=r, state=jax.jit(jax.vmap(mean.paths.begin))(r, filled.state.x))


def recursion(mean: RemainderMean, factors: np.ndarray, tree: Tree, h: int, b: int, deep: int):
    """Return the weighted R of node h of tree b, which has `deep` layers below it."""
    row = h * ROOTS + b
    one = jax.tree.map(np.asarray, tree)
    x, values, slopes = one.state.x[row], [], []
    at = lambda tree, *place: jax.tree.map(lambda a: a[place], tree)
    times = lambda factor, tree: jax.tree.map(lambda a: factor * a, tree)
    for group in range(mean.groups):
        value, slope = one.value[row, group], at(one.slope, row, group)
        if deep:
            child = mean.groups * h + 1 + group
            below = recursion(mean, factors, tree, child, b, deep - 1)
            value = value + below
            added = times(below, at(one.weight, child * ROOTS + b))
            slope = jax.tree.map(np.add, slope, added)
        values.append(value)
        slopes.append(literal_z(mean, x, slope))
    total = 0.0
    for factor, subset in zip(factors, mean.subsets, strict=True):
        u, z = np.mean(np.array(values)[subset]), np.mean(np.array(slopes)[subset], 0)
        total += factor * remainder(mean, x, u, z)
    return one.factor[row] * total


@pytest.mark.parametrize("groups", [2, 3])
def test_trees_against_a_recursion(groups):
    """The same tree serves the depths 0, 1 and 2. Nodes beyond the depth do not count."""
    mean = mean_of(2, groups)
    tree = random_tree(mean, groups)
    factors = np.random.default_rng(1).normal(size=2**groups - 1)
    run = jax.jit(lambda tree, count: evaluate(mean, tree, count, jnp.asarray(factors)))
    seen = []
    for depth in range(3):
        count = nodes_above(jnp.asarray(depth + 1), groups)
        assert count == sum(groups**k for k in range(depth + 1))
        found = np.asarray(run(tree, count))
        assert found.shape == (ROOTS,)
        for b in (0, 5) if depth < 2 else (ROOTS - 1,):
            right = recursion(mean, factors, tree, 0, b, depth)
            np.testing.assert_allclose(found[b], right, rtol=1e-10)
        seen.append(found)
    assert np.all(seen[0] != seen[1])
    assert np.all(seen[1] != seen[2])


def test_nodes_and_estimates_are_written_and_dropped():
    """A new node clears its estimates. Two paths of one group add up. Others stay the same."""
    mean = mean_of(2, 2)
    tree = random_tree(mean, 0)
    beyond = len(tree.r)
    value, slope = estimates(3, seed=1)
    slope = jax.tree.map(jnp.asarray, slope)
    added = tree.add_estimates(
        jnp.asarray([4, 4, beyond]), jnp.asarray([1, 1, 0]), jnp.asarray(value), slope
    )
    wanted = np.asarray(tree.value).copy()
    wanted[4, 1] += value[0] + value[1]
    np.testing.assert_allclose(added.value, wanted)
    wanted = np.asarray(tree.slope.v).copy()
    wanted[4, 1] += slope.v[0] + slope.v[1]
    np.testing.assert_allclose(added.slope.v, wanted)
    state = jax.tree.map(lambda a: a[:3] + 7, tree.state)
    ones = jnp.ones(3)
    new = added.add_nodes(jnp.asarray([4, beyond, 2]), 5 * ones, state, 3 * ones, state)
    for old, now, entry in ((tree.r, new.r, 5.0), (tree.factor, new.factor, 3.0)):
        wanted = np.asarray(old).copy()
        wanted[[4, 2]] = entry
        np.testing.assert_array_equal(now, wanted)
    np.testing.assert_array_equal(new.state.x[4], state.x[0])
    np.testing.assert_array_equal(new.weight.x[2], state.x[2])
    assert not np.any(new.value[np.array([2, 4])])
    assert not np.any(new.slope.x[np.array([2, 4])])
    np.testing.assert_array_equal(new.value[5:], tree.value[5:])


def test_estimates_of_a_solution_reach_r():
    """With equal estimates of all groups, every combination with sum 1 gives R itself."""
    mean = mean_of(3, 3)
    u, slope = estimates(1, seed=2)
    spread = lambda a: jnp.repeat(jnp.asarray(a), 3, 0)
    state = mean.paths.begin(jnp.asarray(R_TIME), jnp.asarray(X))
    equal = spread(u), jax.tree.map(spread, slope)
    factors = jnp.asarray(mean.combination({1: 0.3, 2: 0.2, 3: 0.5}))
    found = mean(factors, jnp.asarray(R_TIME), state, *equal)
    z = literal_z(mean, X, jax.tree.map(lambda a: a[0], slope))
    v = Solution(jnp.asarray(u[0]), jnp.asarray(z))
    np.testing.assert_allclose(found, remainder(mean, X, v.u, v.z), rtol=1e-10)
