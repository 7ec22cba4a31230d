"""The order of the tiles of one replicate: which family a tile serves, and which of its paths."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ._families import INCREMENT, MOST_DEPTH, column
from ._integers import quotient
from ._level_paths import LANES
from ._remainder_tree import ROOTS, nodes_above, nodes_at

# Paths of a difference between two levels: one on the fine grid, its reflection, and one on the
# coarse grid. A tile has TRIPLES differences.
TRIPLES = LANES // 3
# Kinds of tiles: first-order samples at the base level, differences between two levels, paths to
# nodes of trees, and inner paths that start from nodes.
BASE, DIFFERENCE, NODE, INNER = range(4)


class Place(NamedTuple):
    """Where a tile stands: its family, and its number inside of it. Scalars."""

    family: Array
    level: Array  # of the family, as are the next three
    is_paired: Array
    depth: Array
    doublings: Array
    kind: Array
    number: Array  # of the tile among those of its kind and batch, or of its layer of nodes
    batch: Array  # of trees
    layer: Array  # of nodes
    trees: Array  # trees of this batch
    is_last: Array  # whether the trees of the batch are complete after this tile


class Schedule(NamedTuple):
    """The tiles of all families, in order."""

    before: Array  # number of tiles before each family, (families + 1,)
    trees: Array  # trees of a batch, (families,)
    layers: Array  # tiles of each layer of nodes in a batch, (families, MOST_DEPTH + 1)
    inner: Array  # tiles of inner paths in a batch, (families,)

    @classmethod
    def of(cls, counts: Array, inner: int, groups: int) -> "Schedule":
        """Return the schedule for the samples of each increment."""
        up = lambda a, b: quotient(a + b - 1, b)
        at = jnp.asarray(INCREMENT)
        samples = counts[at].at[0].set(jnp.maximum(counts[0], counts[1]))
        is_remainder, is_paired = column("is_remainder"), column("is_paired")
        roots = samples * jnp.where(is_paired, 2, 1)
        trees = jnp.minimum(roots, ROOTS)
        layer = jnp.arange(MOST_DEPTH + 1)
        depth = column("depth")
        paths = trees[:, None] * nodes_at(layer, groups)[None]
        layers = up(paths, LANES) * (layer[None] <= depth[:, None])
        nodes = nodes_above(depth + 1, groups)
        of_node = inner * groups * jnp.left_shift(1, column("doublings"))
        inner_tiles = up(trees * nodes * of_node, LANES)
        of_batch = jnp.sum(layers, 1) + inner_tiles
        of_first = jnp.where(is_paired, up(samples, TRIPLES), up(samples, LANES))
        tiles = jnp.where(is_remainder, up(roots, ROOTS) * of_batch, of_first)
        if groups == 1:  # without R
            tiles = jnp.where(is_remainder, 0, tiles)
        before = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(tiles)])
        return cls(before, trees, layers, inner_tiles)

    @property
    def tiles(self) -> Array:
        return self.before[-1]

    def place(self, k: Array) -> Place:
        """Return the place of tile k."""
        family = jnp.sum(k >= self.before[1:])
        index = k - self.before[family]
        names = ("is_remainder", "is_paired", "level", "depth", "doublings")
        facts = jnp.stack([column(name) for name in names], 1)[family]
        is_remainder, is_paired = facts[0] > 0, facts[1] > 0
        layers = self.layers[family]
        ends = jnp.cumsum(layers)
        in_batch = jnp.maximum(ends[-1] + self.inner[family], 1)
        batch = jnp.where(is_remainder, quotient(index, in_batch), 0)
        within = index - batch * in_batch
        layer = jnp.sum(within >= ends)
        is_node = within < ends[-1]
        of_layer = within - (ends - layers)[jnp.minimum(layer, MOST_DEPTH)]
        position = jnp.where(is_node, of_layer, within - ends[-1])
        first = jnp.where(is_paired, DIFFERENCE, BASE)
        kind = jnp.where(is_remainder, jnp.where(is_node, NODE, INNER), first)
        return Place(
            family,
            facts[2],
            is_paired,
            facts[3],
            facts[4],
            kind,
            jnp.where(is_remainder, position, index),
            batch,
            layer,
            self.trees[family],
            is_remainder & (within == in_batch - 1),
        )
