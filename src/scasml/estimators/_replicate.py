"""One replicate of `Linearised`: a loop over tiles of paths that serves all families.

`replicate_sums` takes the expected samples of every increment, and returns the sum of each.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ._families import CLUSTER, INCREMENT, NAMES, SOURCE
from ._integers import is_odd
from ._level_paths import Ends, Seeds, State
from ._preparation import Preparation, Setting, Tile
from ._remainder_tree import ROOTS, Tree, evaluate, nodes_above, weighted
from ._schedule import BASE, DIFFERENCE, INNER, NODE, TRIPLES, Place, Schedule
from ._tiles import empty_tape, simulate


class Sums(NamedTuple):
    """Sums over the samples of each increment, divided by their expected number."""

    value: Array  # (increments,)
    size: Array  # of absolute values, (increments,)
    square: Array  # of squares, (increments,)
    pulled: State  # derivatives in the state at the start, (increments, ...)

    @classmethod
    def zero(cls, x: Array) -> "Sums":
        scalar = jnp.zeros(len(NAMES), x.dtype)
        return cls(scalar, scalar, scalar, State.zero(x, len(NAMES)))

    def add(self, at: Array | int, samples: Array) -> "Sums":
        """Add samples, each divided by the expected number, to the increment `at`."""
        value = self.value.at[at].add(jnp.sum(samples))
        size = self.size.at[at].add(jnp.sum(jnp.abs(samples)))
        return self._replace(
            value=value, size=size, square=self.square.at[at].add(samples @ samples)
        )

    def add_slopes(self, at: Array, slopes: State) -> "Sums":
        """Add derivatives to the increment `at`."""
        add = lambda all, one: all.at[at].add(one)
        return self._replace(pulled=jax.tree.map(add, self.pulled, slopes))


class Values(NamedTuple):
    """The results of the paths of a tile, (lanes,) each."""

    time: Array  # time weight times exp(growth) times F(r, x, 0, 0)
    horizon: Array  # exp(growth) g
    carried: Array  # time weight times exp(growth) at r
    x: Array  # state at r, (lanes, d)


def replicate_sums(setting: Setting, expected: Array, key: PRNGKeyArray) -> Sums:
    """Return the sums over the samples of one replicate.

    `expected` (increments,) are the expected samples of each increment. Samples come in clusters of
    `CLUSTER`, and the number of clusters is rounded up or down at random.
    """
    key_count, key = jax.random.split(key)
    uniform = jax.random.uniform(key_count, expected.shape, expected.dtype)
    cluster = jnp.asarray(CLUSTER)
    counts = cluster * jnp.floor(expected / cluster + uniform).astype(jnp.int32)
    schedule = Schedule.of(counts, setting.inner, setting.groups)
    prepare = Preparation(setting, counts, expected, key)
    trees = Trees(setting, schedule, counts, expected)

    def tile(k: Array, carry: Any) -> Any:
        sums, tree, tape = carry
        place = schedule.place(k)
        one = prepare(place, tree)
        at_ends = lambda ends: _at_ends(setting, one, ends)
        values, pulled, tape = simulate(setting.paths, one.lanes, one.job, at_ends, tape)
        sums = _add_first_order(setting, sums, one, values, pulled)
        if tree is not None:
            tree = _grow(setting, tree, one, values, pulled)
            sums = trees.add(sums, tree, place)
        return sums, tree, tape

    tree = None if setting.mean is None else Tree.empty(setting.x, setting.groups)
    first = Sums.zero(setting.x), tree, empty_tape(setting.paths, setting.x)
    sums = jax.lax.fori_loop(0, schedule.tiles, tile, first)[0]
    return sums._replace(square=expected * sums.square)


def _at_ends(setting: Setting, tile: Tile, ends: Ends) -> tuple[Values, Seeds]:
    """Return the results at the ends of the paths, and what of them is differentiated."""
    equation, r = setting.paths.equation, setting.r(tile.lanes)
    log_factor, horizon = setting.paths.log_factor, jnp.asarray(equation.horizon, r.dtype)
    source = lambda x, key, r: jnp.exp(-log_factor(r, x)) * equation.source(r, x, key)
    terminal = lambda x: jnp.exp(-log_factor(horizon, x)) * equation.terminal(x)
    wanted = tile.job.slopes & setting.is_pathwise
    f, f_slope = _evaluated(setting, source, tile.source, wanted, ends.x_time, tile.end_key, r)
    g, g_slope = jnp.zeros_like(f), jnp.zeros_like(f_slope)
    if not equation.zero_terminal:
        g, g_slope = _evaluated(setting, terminal, tile.job.to_horizon, wanted, ends.x_horizon)
    begin = tile.lanes.start.c
    carried = tile.weight * jnp.exp(begin + ends.growth_time)
    end = jnp.exp(begin + ends.growth_horizon)
    at_node = carried * jnp.exp(-jax.vmap(log_factor)(r, ends.x_time))
    values = Values(carried * f, end * g, at_node, ends.x_time)
    time, horizon = tile.factor_time * values.time, tile.factor_horizon * values.horizon
    is_node, zero = (tile.kind == NODE).astype(f.dtype) + jnp.zeros_like(f), jnp.zeros_like(f)
    if setting.is_pathwise:
        f_slope = (tile.factor_time * carried)[:, None] * f_slope
        g_slope = (tile.factor_horizon * end)[:, None] * g_slope
        total = jnp.where(tile.kind == NODE, 1, time + horizon)
        seeded = Ends(f_slope, time, g_slope, horizon)
        return values, Seeds(seeded, is_node, is_node, zero, zero, total)
    time, horizon = jnp.where(tile.kind == NODE, 1, time), jnp.where(tile.kind == NODE, 0, horizon)
    none = Ends(jnp.zeros_like(f_slope), zero, jnp.zeros_like(f_slope), zero)
    return values, Seeds(none, time, time, horizon, horizon, time + horizon)


def _evaluated(
    setting: Setting, f: Any, is_due: Array, slopes: Array, x: Array, *others: Array
) -> tuple[Array, Array]:
    """Return f (lanes,) and its gradient in x (lanes, d), or zeros where they are not due."""
    zero = lambda x, *others: (x[:, 0] * 0, x * 0)
    value = lambda x, *others: (jax.vmap(f)(x, *others), x * 0)
    both = lambda x, *others: jax.vmap(jax.value_and_grad(f))(x, *others)
    if not (setting.paths.slopes and setting.is_pathwise):
        return jax.lax.cond(is_due, value, zero, x, *others)
    if setting.gradient:
        # First-order samples need slopes, so f is compiled with its gradient only.
        return jax.lax.cond(is_due, both, zero, x, *others)
    which = jnp.where(is_due, jnp.where(slopes, 2, 1), 0)
    return jax.lax.switch(which, (zero, value, both), x, *others)


def _add_first_order(
    setting: Setting, sums: Sums, tile: Tile, values: Values, pulled: State
) -> Sums:
    """Add a tile of first-order samples to the sums. Other tiles add zero."""
    time, horizon = tile.factor_time * values.time, tile.factor_horizon * values.horizon
    is_base, is_difference = tile.kind == BASE, tile.kind == DIFFERENCE
    at = jnp.asarray(INCREMENT)[tile.family]
    # A difference is the sum over three neighbouring lanes.
    triples = (time + horizon)[: 3 * TRIPLES].reshape(TRIPLES, 3).sum(1)
    sums = sums.add(at, jnp.where(is_difference, triples, 0))
    sums = sums.add(0, jnp.where(is_base, horizon, 0)).add(SOURCE, jnp.where(is_base, time, 0))
    if not setting.gradient:
        return sums
    total = lambda a: jnp.where(is_base | is_difference, jnp.sum(a, 0), 0)
    return sums.add_slopes(at, jax.tree.map(total, pulled))


def _grow(setting: Setting, tree: Tree, tile: Tile, values: Values, pulled: State) -> Tree:
    """Add the nodes and the inner estimates of a tile to the trees."""
    nodes, r = len(tree.r), setting.r(tile.lanes)
    is_node = tile.kind == NODE
    begin = lambda: jax.vmap(setting.paths.begin)(r, values.x)
    state = jax.lax.cond(is_node, begin, lambda: tile.lanes.start)
    new = jnp.where(is_node, tile.node, nodes)
    tree = tree.add_nodes(new, r, state, values.carried, pulled)
    value = tile.factor_time * values.time + tile.factor_horizon * values.horizon
    inner = jnp.where(tile.kind == INNER, tile.node, nodes)
    return tree.add_estimates(inner, tile.group, value, pulled)


class Trees(NamedTuple):
    """Adds R to the sums once the trees of a batch are complete."""

    setting: Setting
    schedule: Schedule
    counts: Array
    expected: Array

    def add(self, sums: Sums, tree: Tree, place: Place) -> Sums:
        """Return the sums after the tile at `place`."""
        mean = self.setting.mean
        assert mean is not None
        depth, is_paired = place.depth, place.is_paired
        at = jnp.asarray(INCREMENT)[place.family]
        factors = self.setting.factors[place.family]
        # A family of depth k > 0 is the difference of depth k and depth k - 1 in the same trees.
        passes = jnp.where(place.is_last, jnp.where(depth > 0, 2, 1), 0)

        def one(k: Array, total: Array) -> Array:
            count = nodes_above(depth + 1 - k, mean.groups)
            found = evaluate(mean, tree, count, factors)
            return total + jnp.where(k == 0, found, -found)

        values = jax.lax.fori_loop(0, passes, one, jnp.zeros(ROOTS, tree.r.dtype))
        b = jnp.arange(ROOTS)
        exists = place.batch * ROOTS + b < self.counts[at] * jnp.where(is_paired, 2, 1)
        sign = jnp.where(is_paired & is_odd(b), -1, 1)
        factor = jnp.where(place.is_last & exists, sign / self.expected[at], 0)
        values = jnp.where(factor != 0, factor * values, 0)
        # The two trees of a pair are one sample.
        pairs = jnp.where(~is_odd(b), values + jnp.roll(values, -1), 0)
        sums = sums.add(at, jnp.where(is_paired, pairs, values))
        if not self.setting.gradient:
            return sums
        of_roots = jax.tree.map(lambda a: a[:ROOTS], tree.weight)
        total = jax.tree.map(lambda a: jnp.sum(a, 0), weighted(values, of_roots))
        return sums.add_slopes(at, total)
