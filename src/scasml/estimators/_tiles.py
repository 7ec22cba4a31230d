"""The simulation of a tile of paths on grids of any level, and its derivatives.

The level of the grid is data of the program, so one compiled loop serves all levels. JAX cannot
differentiate such a loop in reverse mode. So the loop writes a `Tape`, and a second loop reads it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support.tracing import prevent_fusion
from ..paths.coefficients import undiffuse_transposed
from ._integers import is_odd, quotient
from ._level_paths import LANES, Ends, Job, Lanes, LevelPaths, Seeds, State
from ._step_grids import INCREMENTS, Bridge, Grid, changes_of, step_of, which_increment

# Iterations of a path that a tape holds. Longer paths are simulated a second time, one segment of
# that many iterations after the other.
SEGMENT = 66


class Progress(NamedTuple):
    """The paths of a tile between two iterations."""

    state: State
    growth: Array
    bridge: Bridge
    time: tuple[Array, Array]  # x and growth at r


class Tape(NamedTuple):
    """What derivatives need: the iterations of one segment, and the beginning of every segment.

    One tape serves all tiles of a replicate, because it takes long to clear.
    """

    x: Array  # (iterations, lanes, d)
    v: Array
    dw: Array
    states: State  # (segments, lanes, ...)
    bridges: Bridge


class Pass(NamedTuple):
    """What the tasks of a tile hand on."""

    progress: Progress
    tape: Tape | None
    pulled: State  # derivatives in the present state
    seeds: Seeds
    result: Any


def empty_tape(paths: LevelPaths, x: Array) -> Tape | None:
    """Return a tape for all tiles of a replicate at x, or None without slopes."""
    if not paths.slopes or paths.is_exact:
        return None
    iterations = 2**paths.most_levels + 2
    zeros = lambda count: jnp.zeros((count, LANES, len(x)), x.dtype)
    length, segments = min(SEGMENT, iterations), -(-iterations // SEGMENT)
    begin = State.zero(x, segments, LANES), Bridge(zeros(segments), zeros(segments))
    return Tape(zeros(length), zeros(length), zeros(length), *begin)


def simulate(
    paths: LevelPaths,
    lanes: Lanes,
    job: Job,
    at_ends: Callable[[Ends], tuple[Any, Seeds]],
    tape: Tape | None,
) -> tuple[Any, State, Tape | None]:
    """Simulate the paths of a tile, and differentiate what `at_ends` computes.

    `at_ends` takes the `Ends` of all lanes. It returns a result, and `Seeds` for all lanes.
    Returns the result, and the derivatives of the seeded quantity of each lane in its start.
    The derivatives are zero without `job.slopes`.

    Tasks follow each other in one loop, so that every part is compiled once. The tasks are the
    segments of the paths, the ends, and for each segment, from the last one, its derivatives.
    The tape has the iterations of one segment, so earlier segments are simulated again before
    they are differentiated.
    """
    if paths.is_exact:
        return *paths.run_exact(lanes, job, at_ends), tape
    walk = Walk.of(paths, lanes, job)
    segments = quotient(walk.iterations + SEGMENT - 1, SEGMENT)

    def task(k: Array, now: Pass) -> Pass:
        back = k - segments - 1
        is_end = k == segments
        is_forward = (k < segments) | ((back >= 0) & is_odd(back))
        segment = jnp.where(k < segments, k, segments - 1 - quotient(jnp.maximum(back + 1, 0), 2))
        # A part that is not due runs zero iterations. A conditional would copy the tape.
        now = walk.forward(segment, is_forward, k < segments, now)
        finish = lambda: walk.finish(now.progress, at_ends)
        keep = lambda: (now.result, now.seeds, now.pulled)
        result, seeds, pulled = jax.lax.cond(is_end, finish, keep)
        now = now._replace(result=result, seeds=seeds, pulled=pulled)
        if now.tape is None:
            return now
        is_backward = ~is_forward & ~is_end
        return now._replace(pulled=walk.backward(segment, is_backward, now))

    tasks = segments + 1 + jnp.where(job.slopes, 2 * segments - 1, 0)
    last = jax.lax.fori_loop(0, tasks, task, _before(walk, at_ends, tape))
    return last.result, last.pulled, last.tape


class Walk(NamedTuple):
    """The loops over the iterations of one tile."""

    paths: LevelPaths
    lanes: Lanes
    job: Job
    grid: Grid
    changes: Array  # of W from s to r and from r to T, (lanes, 2, d)
    iterations: Array  # of the paths

    @classmethod
    def of(cls, paths: LevelPaths, lanes: Lanes, job: Job) -> "Walk":
        span = paths.span(lanes.s)
        grid = jax.vmap(Grid.of, (0, 0, None, None))(lanes.rho, span, job.level, job.paired)
        changes = jax.vmap(changes_of, (0, 0, 0, None))(
            lanes.changes, lanes.rho, span, job.to_horizon
        )
        all_steps = grid.steps[0] + jnp.where(job.paired, 2, 1)
        count = jnp.where(job.to_horizon, all_steps, jnp.max(grid.arrival) + 1)
        return cls(paths, lanes, job, grid, changes, count)

    def _bounds(self, segment: Array, is_due: Array) -> tuple[Array, Array]:
        """Return the iterations of a segment; none if it is not due."""
        begin = segment * SEGMENT
        end = jnp.minimum(begin + SEGMENT, self.iterations)
        return begin, jnp.where(is_due, end, begin)

    def forward(self, segment: Array, is_due: Array, is_first: Array, now: Pass) -> Pass:
        """Simulate one segment of the paths, and write it to the tape.

        Without `is_first` the segment is simulated again, from what the tape says.
        """
        lanes, job, grid, changes = self.lanes, self.job, self.grid, self.changes
        draws = [prevent_fusion(jax.vmap(f, (None, 0, 0, 0)), self.paths.true) for f in INCREMENTS]
        progress, tape = now.progress, now.tape
        if tape is not None:
            place = jnp.clip(segment, 0, len(tape.bridges.rest) - 1)
            again = is_due & ~is_first
            pick = lambda one, all: jnp.where(again, all[place], one)
            state = jax.tree.map(pick, progress.state, tape.states)
            bridge = jax.tree.map(pick, progress.bridge, tape.bridges)
            write = lambda all, one: all.at[place].set(jnp.where(is_due, one, all[place]))
            states = jax.tree.map(write, tape.states, state)
            tape = tape._replace(states=states, bridges=jax.tree.map(write, tape.bridges, bridge))
            progress = progress._replace(state=state, bridge=bridge)

        def iteration(i: Array, carry: tuple[Progress, Any]) -> tuple[Progress, Any]:
            (state, growth, bridge, time), tape = carry
            which = which_increment(i, job.level, job.paired)
            dw, bridge = jax.lax.switch(which, draws, i, grid, lanes.noise, bridge)
            if tape is not None:
                write = lambda all, one: all.at[i - segment * SEGMENT].set(one)
                tape = tape._replace(
                    x=write(tape.x, state.x), v=write(tape.v, state.v), dw=write(tape.dw, dw)
                )
            steps = jax.vmap(self._step_of, (None, 0, 0))(i, lanes, grid)
            state, grown = jax.vmap(self.paths.step)(state, *steps, dw)
            growth = growth + grown
            arrives = i == grid.arrival
            at_time = jnp.where(arrives[:, None], state.x, time[0])
            time = at_time, jnp.where(arrives, growth, time[1])
            rest = jnp.where(arrives[:, None], changes[:, 1], bridge.rest)
            return Progress(state, growth, bridge._replace(rest=rest), time), tape

        bounds = self._bounds(segment, is_due)
        progress, tape = jax.lax.fori_loop(*bounds, iteration, (progress, tape))
        return now._replace(progress=progress, tape=tape)

    def finish(
        self, progress: Progress, at_ends: Callable[[Ends], tuple[Any, Seeds]]
    ) -> tuple[Any, Seeds, State]:
        """Return the result at the ends, its seeds, and the derivatives at the last iteration."""
        state, growth, _, time = progress
        result, seeds = at_ends(Ends(*time, state.x, growth))
        zero = jax.tree.map(jnp.zeros_like, state)
        pulled = zero._replace(x=seeds.ends.x_horizon, c=seeds.total)
        return result, seeds, pulled

    def _step_of(self, i: Array, lane: Lanes, grid: Grid) -> tuple[Array, Array]:
        t, h = step_of(i, grid, self.job.paired, lane.noise.coarse)
        return lane.s + t, h

    def backward(self, segment: Array, is_due: Array, now: Pass) -> State:
        """Return the derivatives at the beginning of a segment, from those at its end."""
        begin, end = self._bounds(segment, is_due)
        seeds, tape = now.seeds, now.tape
        assert tape is not None

        def iteration(k: Array, pulled: State) -> State:
            i = end - 1 - k
            place = i - segment * SEGMENT
            past = tape.x[place], tape.v[place], tape.dw[place]
            one = jax.vmap(self._pull, (None, 0, 0, 0, 0, 0))
            return one(i, self.lanes, self.grid, seeds, past, pulled)

        return jax.lax.fori_loop(0, end - begin, iteration, now.pulled)

    def _pull(
        self, i: Array, lane: Lanes, grid: Grid, seeds: Seeds, past: Any, pulled: State
    ) -> State:
        """Return the derivatives of one path before iteration i, from those after it."""
        x, v, dw = past
        t, h = self._step_of(i, lane, grid)
        span = self.paths.span(lane.s)
        duration, middle = lane.rho * span, t - lane.s + h / 2
        arrives = (i == grid.arrival).astype(x.dtype)
        is_before = (i <= grid.arrival).astype(x.dtype)
        pulled = pulled._replace(x=pulled.x + arrives * seeds.ends.x_time)
        growth = seeds.ends.growth_horizon + is_before * seeds.ends.growth_time
        growth += seeds.lift_horizon * (1 - middle / span)
        growth += seeds.lift_time * is_before * (1 - middle / duration)
        # The growth is linear in the potential at the beginning, whose value does not matter.
        before = State(x, v, jnp.zeros_like(t), jnp.zeros_like(t))
        (pulled,) = jax.vjp(lambda state: self.paths.step(state, t, h, dw), before)[1](
            (pulled, growth)
        )
        weight = seeds.weight_horizon / span + is_before * seeds.weight_time / duration
        dual = undiffuse_transposed(self.paths.equation.diffusion(t, x), dw)
        return pulled._replace(x=pulled.x + jnp.where(h > 0, weight, 0) * dual)


def _before(walk: Walk, at_ends: Callable[[Ends], Any], tape: Tape | None) -> Pass:
    """Return what the first task begins with."""
    lanes = walk.lanes
    x, zero = lanes.start.x, jnp.zeros_like(lanes.s)
    bridge = Bridge(walk.changes[:, 0], jnp.zeros_like(x))
    progress = Progress(lanes.start, zero, bridge, (x, zero))
    shapes = jax.eval_shape(at_ends, Ends(x, zero, x, zero))
    result, seeds = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    pulled = jax.tree.map(jnp.zeros_like, lanes.start)
    return Pass(progress, tape, pulled, seeds, result)
