"""The inputs of a tile: where its paths start, their random numbers, and what is evaluated."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._sampling.designs import Sampling, design
from .._sampling.normals import normal_of
from .._sampling.sobol import reflect
from .._support.tracing import prevent_fusion
from ._families import INCREMENT
from ._integers import is_odd, quotient, remainder
from ._level_paths import LANES, Job, Lanes, LevelPaths, State
from ._remainder_tree import ROOTS, RemainderMean, Tree, nodes_above, nodes_at
from ._schedule import BASE, TRIPLES, Place
from ._step_grids import Noise
from ._streams import path_keys, uniform_of, words

# Stream of a path for what F(t, x, 0, 0) draws at its end.
END_STREAM = 2**31
# An upper bound of the nodes of a tree, a power of two.
MOST_NODES = 16


class Setting(eqx.Module):
    """What is the same for all tiles of a replicate."""

    paths: LevelPaths
    mean: RemainderMean | None  # None without R
    factors: Array  # of the subsets of groups, (families, subsets); see `RemainderMean`
    inner: int = eqx.field(static=True)  # inner paths of a group
    sampling: Sampling = eqx.field(static=True)
    gradient: bool = eqx.field(static=True)  # whether the gradient of u is estimated
    is_pathwise: bool = eqx.field(static=True)  # whether first-order slopes are path derivatives
    t: Array
    x: Array
    level: Array  # the base level

    @property
    def groups(self) -> int:
        """The number of groups of inner paths; 1 without R."""
        return 1 if self.mean is None else self.mean.groups

    def r(self, lanes: Lanes) -> Array:
        """Return the random time of each path."""
        return lanes.s + lanes.rho * self.paths.span(lanes.s)


class Tile(NamedTuple):
    """The inputs of a tile, and where its results belong."""

    lanes: Lanes
    job: Job
    kind: Array  # BASE, DIFFERENCE, NODE or INNER
    family: Array  # index into FAMILIES
    source: Array  # whether F(t, x, 0, 0) is evaluated at r
    end_key: PRNGKeyArray  # (lanes,), of what F(t, x, 0, 0) draws
    weight: Array  # time weights, (lanes,)
    factor_time: Array  # (lanes,), factor of the sample at r; 0 for lanes without a sample
    factor_horizon: Array  # the same at T
    node: Array  # (lanes,), index of a node of the trees
    group: Array  # (lanes,), group of inner paths


class _Order(NamedTuple):
    """What the lanes of a tile are to do, before random numbers are drawn."""

    s: Array
    start: State
    first: Array  # numbers of the path, from which its key is made, (lanes,)
    second: Array
    flip: Array
    mirror: Array
    coarse: Array
    job: Job
    source: Array
    is_weighted: Array  # whether the times suit gradient weights
    factor_time: Array
    factor_horizon: Array
    node: Array
    group: Array


class Preparation:
    """Prepares the inputs of tiles."""

    def __init__(self, setting: Setting, counts: Array, expected: Array, key: PRNGKeyArray):
        self.setting, self.counts, self.expected = setting, counts, expected
        self.root = setting.paths.begin(setting.t, setting.x)
        self.key = jax.random.key_data(key)
        self.net = None
        if setting.sampling == "rqmc":
            streams = lambda k: (key, jax.random.fold_in(key, 0))
            samples, axes = jnp.maximum(counts[0], counts[1]), 2 * len(setting.x)
            self.net = design("rqmc", streams, samples, (1, axes), setting.x, None)

    def __call__(self, place: Place, tree: Tree | None) -> Tile:
        """Return the inputs of the tile at a place."""
        kinds = [self._base, self._difference]
        if tree is not None:
            kinds += [lambda place: self._node(place, tree), lambda place: self._inner(place, tree)]
        order = jax.lax.switch(place.kind, kinds, place)
        keys = path_keys(self.key, order.first, order.second)
        uniform, changes = self._draw(place, order, keys)
        changes = order.flip[:, None, None] * changes
        exponent = jnp.where(order.is_weighted, 0.5, 0.0).astype(uniform.dtype)
        # See `FullHistory`. The power underflows if the uniform number is very small.
        rho = jnp.maximum(uniform ** (1 / (1 - exponent)), 1e-30)
        weight = self.setting.paths.span(order.s) * rho**exponent / (1 - exponent)
        noise = Noise(keys, order.flip, order.mirror, order.coarse)
        ends = jax.vmap(lambda key: jax.random.wrap_key_data(words(key, END_STREAM, 2)))(keys)
        return Tile(
            Lanes(order.s, order.start, rho, changes, noise),
            order.job,
            place.kind,
            place.family,
            order.source,
            ends,
            weight,
            order.factor_time,
            order.factor_horizon,
            order.node,
            order.group,
        )

    def _draw(self, place: Place, order: _Order, keys: Array) -> tuple[Array, Array]:
        """Return a uniform number (lanes,) and normal numbers (lanes, 2, d)."""
        x = self.setting.x

        def independent(keys: Array) -> tuple[Array, Array]:
            found = jax.vmap(lambda key: words(key, 0, 2 * len(x) + 1))(keys)
            normals = normal_of(found[:, 1:].reshape(LANES, 2, -1), x.dtype)
            return uniform_of(found[:, 0], x.dtype), normals

        def from_net(keys: Array) -> tuple[Array, Array]:
            drawn = jax.vmap(self.net)(order.first)  # type: ignore[arg-type]
            # The coordinates of the net alternate between the two rows, so both get good ones.
            normals = drawn.noise.reshape(LANES, -1, 2).swapaxes(1, 2)
            heading = self.setting.paths.equation.heading(self.setting.t, x)
            return drawn.uniform, jax.vmap(reflect, (0, None))(normals, heading)

        if self.net is None:
            return prevent_fusion(independent, self.setting.paths.true)(keys)
        return jax.lax.cond(place.kind == BASE, from_net, independent, keys)

    @property
    def _is_weighted(self) -> bool:
        """Whether first-order samples use gradient weights."""
        return self.setting.paths.slopes and not self.setting.is_pathwise

    def _starts(self) -> tuple[Array, State]:
        spread = lambda a: jnp.broadcast_to(a, (LANES, *a.shape))
        return spread(self.setting.t), jax.tree.map(spread, self.root)

    def _base(self, place: Place) -> _Order:
        setting = self.setting
        index = place.number * LANES + jnp.arange(LANES)
        s, start = self._starts()
        one, false = jnp.ones_like(s), jnp.asarray(False)
        # A factor is zero where an increment has no sample of that index.
        factor = lambda k: jnp.where(index < self.counts[k], 1 / self.expected[k], 0)
        is_antithetic = setting.sampling == "antithetic"
        any_of = lambda k: place.number * LANES < self.counts[k]
        return _Order(
            s,
            start,
            quotient(index, 2) if is_antithetic else index,
            self._second(place, 0 * index),
            jnp.where(is_antithetic & is_odd(index), -one, one),
            one,
            jnp.zeros(LANES, bool),
            Job(setting.level, false, any_of(0), jnp.asarray(setting.gradient)),
            any_of(1),
            jnp.asarray(self._is_weighted),
            factor(1).astype(s.dtype),
            factor(0).astype(s.dtype),
            0 * index,
            0 * index,
        )

    def _difference(self, place: Place) -> _Order:
        setting, lane = self.setting, jnp.arange(LANES)
        triple, member = quotient(lane, 3), remainder(lane, 3)
        index = place.number * TRIPLES + triple
        at = jnp.asarray(INCREMENT)[place.family]
        s, start = self._starts()
        one, true = jnp.ones_like(s), jnp.asarray(True)
        valid = (index < self.counts[at]) & (triple < TRIPLES)
        factor = jnp.where(member == 2, -1.0, 0.5) * jnp.where(valid, 1 / self.expected[at], 0)
        factor = factor.astype(s.dtype)
        return _Order(
            s,
            start,
            index,
            self._second(place, 0 * index),
            one,
            jnp.where(member == 1, -one, one),
            member == 2,
            Job(place.level, true, self._to_horizon, jnp.asarray(setting.gradient)),
            true,
            jnp.asarray(self._is_weighted),
            factor,
            factor,
            0 * index,
            0 * index,
        )

    def _node(self, place: Place, tree: Tree) -> _Order:
        setting, mean = self.setting, self.setting.mean
        assert mean is not None
        lane = place.number * LANES + jnp.arange(LANES)
        trees = jnp.maximum(place.trees, 1)
        local, b = quotient(lane, trees), remainder(lane, trees)
        h = nodes_above(place.layer, mean.groups) + local
        valid = local < nodes_at(place.layer, mean.groups)
        parent = quotient(jnp.maximum(h - 1, 0), mean.groups) * ROOTS + b
        s, start = self._starts()
        at = lambda root, nodes: jnp.where(place.layer == 0, root, nodes[parent])
        s, start = at(s, tree.r), jax.tree.map(at, start, tree.state)
        one, false = jnp.ones_like(s), jnp.asarray(False)
        first, coarse = self._of_tree(place, b)
        return _Order(
            s,
            start,
            first,
            self._second(place, h),
            one,
            one,
            coarse,
            self._tree_job(place, false, setting.paths.slopes),
            false,
            jnp.asarray(setting.paths.slopes),
            0 * one,
            0 * one,
            jnp.where(valid, h * ROOTS + b, len(tree.r)),
            0 * h,
        )

    def _inner(self, place: Place, tree: Tree) -> _Order:
        setting, mean = self.setting, self.setting.mean
        assert mean is not None
        count = setting.inner * jnp.left_shift(1, place.doublings)
        lane = place.number * LANES + jnp.arange(LANES)
        in_node = mean.groups * count
        of_node, path = quotient(lane, in_node), remainder(lane, in_node)
        group, path = quotient(path, count), remainder(path, count)
        trees = jnp.maximum(place.trees, 1)
        h, b = quotient(of_node, trees), remainder(of_node, trees)
        valid = h < nodes_above(place.depth + 1, mean.groups)
        node = jnp.where(valid, h * ROOTS + b, 0)
        s, start = tree.r[node], jax.tree.map(lambda a: a[node], tree.state)
        one, true = jnp.ones_like(s), jnp.asarray(True)
        factor = jnp.where(valid, 1 / count.astype(s.dtype), 0)
        first, coarse = self._of_tree(place, b)
        # Antithetic pairs share a key.
        inside = 1 + quotient(path, 2) * mean.groups + group
        return _Order(
            s,
            start,
            first,
            self._second(place, h + inside * MOST_NODES),
            jnp.where(is_odd(path), -one, one),
            one,
            coarse,
            self._tree_job(place, self._to_horizon, setting.paths.equation.uses_z),
            true,
            jnp.asarray(self._is_weighted),
            factor,
            factor,
            jnp.where(valid, node, len(tree.r)),
            group,
        )

    def _of_tree(self, place: Place, b: Array) -> tuple[Array, Array]:
        """Return the number of each tree, and whether its paths take the steps of the coarse grid.

        The fine and the coarse tree of a pair stand side by side and have equal numbers.
        """
        index = place.batch * ROOTS + b
        tree = jnp.where(place.is_paired, quotient(index, 2), index)
        return tree, place.is_paired & is_odd(b)

    def _second(self, place: Place, within: Array) -> Array:
        """Return the second number of a path, from its family and its number within a tree."""
        return place.family + 32 * within

    def _tree_job(self, place: Place, to_horizon: Array, slopes: bool) -> Job:
        level = jnp.where(place.is_paired, place.level, self.setting.level)
        return Job(level, place.is_paired, to_horizon, jnp.asarray(slopes))

    @property
    def _to_horizon(self) -> Array:
        return jnp.asarray(not self.setting.paths.equation.zero_terminal)
