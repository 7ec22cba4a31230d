"""The remainder R as a tree of paths, and its evaluation from the leaves to the root.

`Tree` holds the nodes of the trees. `RemainderMean` evaluates R at one node. `evaluate` takes a
tree and returns R at its root.
"""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.base import Solution
from .._equations.linearised import LinearisedEquation
from .._support.types import Floats
from ..paths.coefficients import diffuse_transposed
from ._families import MOST_DEPTH
from ._level_paths import LevelPaths, State

# Trees that are simulated side by side.
ROOTS = 16


def nodes_at(depth: Array | int, groups: int) -> Array:
    """Return the number of nodes of a tree at a depth."""
    return jnp.asarray([groups**k for k in range(MOST_DEPTH + 1)], jnp.int32)[depth]


def nodes_above(depth: Array | int, groups: int) -> Array:
    """Return the number of nodes of a tree that are less deep than `depth`."""
    numbers = [sum(groups**k for k in range(above)) for above in range(MOST_DEPTH + 2)]
    return jnp.asarray(numbers, jnp.int32)[depth]


class Tree(NamedTuple):
    """The nodes of `ROOTS` trees, and the first-order estimates at them.

    A sample of R begins with a path from (s, x) to a random time. Its end is the root node of a
    tree. At a node, R is evaluated at independent estimates of V, one for each group of inner paths
    that start from the node. At depth k > 0, each group also has one path to a child node, whose R
    is added to its estimate of V. The estimates are completed one tile of paths after the other.

    Nodes are numbered as in a heap: the children of node h are D h + 1 ... D h + D, where D is the
    number of groups. Entry h * ROOTS + b of an array belongs to node h of tree b.
    """

    r: Array  # time of the node, (nodes,)
    state: State  # at the node, (nodes, ...)
    factor: Array  # time weight times exp(growth) of the path to the node, (nodes,)
    weight: State  # gradient weights of that path, as derivatives in its start, (nodes, ...)
    value: Array  # first-order estimates, (nodes, groups)
    slope: State  # their derivatives in `state`, (nodes, groups, ...)

    @classmethod
    def empty(cls, x: Array, groups: int) -> "Tree":
        """Return a tree of zeros."""
        nodes = ROOTS * sum(groups**k for k in range(MOST_DEPTH + 1))
        scalar = jnp.zeros(nodes, x.dtype)
        states = State.zero(x, nodes)
        value = jnp.zeros((nodes, groups), x.dtype)
        return cls(scalar, states, scalar, states, value, State.zero(x, nodes, groups))

    def add_nodes(
        self, nodes: Array, r: Array, state: State, factor: Array, weight: State
    ) -> "Tree":
        """Write new nodes with these indices. Indices beyond the end are dropped."""
        write = lambda all, one: all.at[nodes].set(one, mode="drop")
        clear = lambda all: all.at[nodes].set(0, mode="drop")
        return Tree(
            write(self.r, r),
            jax.tree.map(write, self.state, state),
            write(self.factor, factor),
            jax.tree.map(write, self.weight, weight),
            clear(self.value),
            jax.tree.map(clear, self.slope),
        )

    def add_estimates(self, nodes: Array, group: Array, value: Array, slope: State) -> "Tree":
        """Add inner paths to the estimates of groups. Indices beyond the end are dropped."""
        add = lambda all, one: all.at[nodes, group].add(one, mode="drop")
        return self._replace(
            value=add(self.value, value), slope=jax.tree.map(add, self.slope, slope)
        )


class RemainderMean(eqx.Module):
    """Evaluates R at independent estimates of V, so that noise causes little or no bias.

    For independent estimates V_1, ..., V_D with the mean V, let f_m be the mean of R over the means
    of all subsets of m estimates. E f_m is a polynomial in 1/m if R is a polynomial, and E f_m
    tends to R(V). With polynomials of degree D, the combination

        D = 2: 2 f_2 - f_1        D = 3: 9/2 f_3 - 4 f_2 + 1/2 f_1

    has the mean R(V) exactly.
    """

    paths: LevelPaths
    groups: int = eqx.field(static=True)

    @property
    def subsets(self) -> NDArray[np.bool_]:
        """The subsets of the groups that are not empty, (subsets, groups)."""
        every = itertools.product((False, True), repeat=self.groups)
        return np.array([chosen for chosen in every if any(chosen)])

    def combination(self, by_size: dict[int, float]) -> Floats:
        """Return the factor of each subset, from those of f_1, ..., f_D."""
        size = self.subsets.sum(1)
        return np.array([by_size.get(int(m), 0.0) / np.sum(size == m) for m in size])

    @property
    def exact(self) -> Floats:
        """The factors of the subsets that make a polynomial R of degree `groups` unbiased."""
        return self.combination({2: {1: -1.0, 2: 2.0}, 3: {1: 0.5, 2: -4.0, 3: 4.5}}[self.groups])

    def __call__(self, factors: Array, r: Array, state: State, value: Array, slope: State) -> Array:
        """Return the combination of R at one node.

        `factors` (subsets,) are those of the subsets. `value` (groups,) and `slope` (groups, ...)
        are the estimates of V and their derivatives in `state`.
        """
        equation = LinearisedEquation(self.paths.equation)
        z = jnp.zeros((self.groups, *state.x.shape), state.x.dtype)
        if equation.uses_z:
            pull = jax.vmap(lambda pulled: self.paths.pull_begin(r, state.x, pulled))
            sigma = equation.diffusion(r, state.x)
            z = jax.vmap(lambda slope: diffuse_transposed(sigma, slope))(pull(slope))
        chosen = jnp.asarray(self.subsets / self.subsets.sum(1, keepdims=True), state.x.dtype)
        zero = Solution.zero(r, state.x)
        at = lambda u, z: equation.difference(r, state.x, Solution(u, z), zero)
        return factors @ jax.vmap(at)(chosen @ value, chosen @ z)


def weighted(values: Array, weights: State) -> State:
    """Return the weights times the values (rows,), and zero where a value is zero.

    A node that a batch does not use may have weights that are not finite.
    """
    one = lambda value, a: jnp.where(value == 0, 0, value * a)
    return jax.tree.map(lambda a: jax.vmap(one)(values, a), weights)


def evaluate(mean: RemainderMean, tree: Tree, count: Array, factors: Array) -> Array:
    """Return R of the roots, weighted by their factors, (ROOTS,), for trees of `count` nodes.

    Nodes beyond the first `count` of a tree count as zero, so the same tree serves all depths.
    """
    groups = mean.groups
    nodes = len(tree.r) // ROOTS

    def node(k: Array, values: Array) -> Array:
        h = count - 1 - k
        row = h * ROOTS + jnp.arange(ROOTS)
        at = lambda a: a[row]
        value, slope = at(tree.value), jax.tree.map(at, tree.slope)
        for group in range(groups):
            child = groups * h + 1 + group
            below = jnp.minimum(child, nodes - 1) * ROOTS + jnp.arange(ROOTS)
            added = jnp.where(child < count, values[below], 0)
            value = value.at[:, group].add(added)
            weights = weighted(added, jax.tree.map(lambda a, below=below: a[below], tree.weight))
            add = lambda all, one, group=group: all.at[:, group].add(one)
            slope = jax.tree.map(add, slope, weights)
        state = jax.tree.map(at, tree.state)
        found = jax.vmap(mean, (None, 0, 0, 0, 0))(factors, at(tree.r), state, value, slope)
        return values.at[row].set(at(tree.factor) * found)

    values = jax.lax.fori_loop(0, count, node, jnp.zeros(nodes * ROOTS, tree.r.dtype))
    return values[:ROOTS]
