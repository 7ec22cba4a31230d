"""One replicate of `Linearised` by its formulas in plain Python loops, the oracle of its tests.

It takes keys of paths, random words and points of nets from the library. Grids, Brownian bridges,
steps, gradient weights, the linearised equation and R are written anew.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scasml._sampling.designs import design
from scasml._sampling.normals import normal_of
from scasml._sampling.sobol import reflect
from scasml.estimators._families import CLUSTER, FAMILIES, NAMES
from scasml.estimators._streams import normals, path_keys, uniform_of, words

# The library numbers the inner paths of a node of a tree with multiples of this number.
NODES = 16
# A mean over subsets of D groups of inner paths, by their size, for a polynomial R of degree D.
COMBINATIONS = {2: (-1.0, 2.0), 3: (0.5, -4.0, 4.5)}


class Path(NamedTuple):
    """The steps of one path from (s, x): their beginnings, lengths and Brownian increments."""

    s: float
    x: np.ndarray
    rho: float
    duration: float
    weight: float  # of the random time
    steps: list
    arrival: int  # index of the step that ends at r


class End(NamedTuple):
    """A path at r or at T, and derivatives in its start, each with a leading axis for it."""

    x: np.ndarray
    growth: float
    x_slope: np.ndarray
    growth_slope: np.ndarray
    weight: np.ndarray  # gradient weight


class LiteralLinearised:
    """One replicate for the defect of a surrogate, in float64.

    sigma(t, x) must be a diagonal whose entry i depends on t and x_i alone. `tuning` has the
    expected samples and the base level. `names` are the increments of R to compute, of depth 0
    or 1.
    """

    def __init__(self, problem, surrogate, method, tuning, groups):
        self.method, self.groups, self.horizon = method, groups, problem.horizon
        self.samples, self.level = np.asarray(tuning.samples, float), int(tuning.level)
        self.is_pathwise = tuning.gradient == "pathwise"
        self.inner = method.remainder // 2
        F, mu = problem.nonlinearity_fn, problem.drift
        sigma = lambda t, x: problem.diffusion(t, x)

        def at(t, x):
            """Return u and z of the surrogate."""
            u, slope = jax.value_and_grad(surrogate, 1)(t, x)
            return u, sigma(t, x) * slope

        def tilt(t, x):
            a, b = jax.grad(lambda v: F(t, x, *v))(at(t, x))
            return sigma(t, x) * b, a

        def residual(t, x):
            time, space = jax.grad(surrogate, (0, 1))(t, x)
            hessian = jax.hessian(surrogate, 1)(t, x)
            second = 0.5 * jnp.sum(sigma(t, x) ** 2 * jnp.diag(hessian))
            return time + mu(t, x) @ space + second + F(t, x, *at(t, x))

        def terminal(x):
            return problem.terminal(x) - surrogate(jnp.asarray(problem.horizon), x)

        def rest(t, x, v, w):
            """Return R = F(u + v, z + w) - F(u, z) - a v - <b, w>."""
            u, z = at(t, x)
            a, b = jax.grad(lambda v: F(t, x, *v))((u, z))
            return F(t, x, u + v, z + w) - F(t, x, u, z) - a * v - b @ w

        def step(t, h, dw, x, v, a):
            y = x + h / 2 * v
            s, slope = jax.jvp(lambda y: sigma(t, y), (y,), (jnp.ones_like(y),))
            y = y + h * mu(t, y) + s * dw + 0.5 * s * slope * (dw**2 - h)
            v_next, a_next = tilt(t + h, y + h / 2 * v)
            return y + h / 2 * v_next, v_next, a_next, h / 2 * (a + a_next)

        def begin(t, x):
            return x, *tilt(t, x)

        def pushed(t, h, dw, state, slopes):
            """Return the state after a step, and its derivatives in the start of the path."""
            one = lambda slope: jax.jvp(lambda *state: step(t, h, dw, *state), state, slope)
            return jax.vmap(one, out_axes=(None, 0))(slopes)

        self.sigma, self.heading, self.rest = map(jax.jit, (sigma, at, rest))
        self.begin = jax.jit(lambda t, x: (begin(t, x), jax.jacfwd(begin, 1)(t, x)))
        self.pushed = jax.jit(pushed)
        self.residual = jax.jit(jax.value_and_grad(residual, 1))
        self.terminal = jax.jit(jax.value_and_grad(terminal))

    def replicate(self, key, t, x):
        """Return the increments by name, and the gradient of their sum."""
        key_count, self.key = jax.random.split(key)
        uniform = np.asarray(jax.random.uniform(key_count, (len(NAMES),), float))
        clusters = np.floor(self.samples / CLUSTER + uniform)
        self.counts = dict(zip(NAMES, (CLUSTER * clusters).astype(int), strict=True))
        found, gradient = {}, np.zeros(len(x))
        for number, family in enumerate(FAMILIES):
            if not any(self.counts[name] for name in self._names(family)):
                continue
            if family.is_remainder:
                values, slope = self.remainders(number, family, t, x)
            elif family.level:
                values, slope = self.differences(number, family, t, x)
            else:
                values, slope = self.base(t, x)
            found.update(values)
            gradient = gradient + slope
        return found, gradient

    @staticmethod
    def _names(family):
        return ("terminal", "source") if family.name == "terminal" else (family.name,)

    def base(self, t, x):
        """Return g and the residual on the grid of the base level."""
        expected = dict(zip(NAMES, self.samples, strict=True))
        found, gradient = {"terminal": 0.0, "source": 0.0}, 0.0
        most = max(self.counts["terminal"], self.counts["source"])
        for i in range(most):
            # Paths go to the horizon together, in tiles of 32.
            to_horizon = 32 * (i // 32) < self.counts["terminal"]
            factors = [(i < self.counts[k]) / expected[k] for k in ("terminal", "source")]
            is_antithetic = self.method.sampling == "antithetic"
            path = self.path(
                (i // 2 if is_antithetic else i, 0),
                (t, x),
                self.level,
                flip=-1 if is_antithetic and i % 2 else 1,
                to_horizon=to_horizon,
                weighted=not self.is_pathwise,
                net=most if self.method.sampling == "rqmc" else 0,
            )
            (at_horizon, at_time), slope = self.sampled(path, *factors)
            found["terminal"] += at_horizon
            found["source"] += at_time
            gradient += slope
        return found, gradient

    def differences(self, number, family, t, x):
        """Return the mean of a path and its reflection, less the path of the coarse grid."""
        (name,) = self._names(family)
        total, gradient = 0.0, 0.0
        members = (("fine", 1, 0.5), ("fine", -1, 0.5), ("coarse", 1, -1.0))
        for i in range(self.counts[name]):
            for grid, mirror, sign in members:
                path = self.path(
                    (i, number),
                    (t, x),
                    family.level,
                    grid=grid,
                    mirror=mirror,
                    weighted=not self.is_pathwise,
                )
                factor = sign / self.samples[NAMES.index(name)]
                values, slope = self.sampled(path, factor, factor)
                total += sum(values)
                gradient += slope
        return {name: total}, gradient

    def remainders(self, number, family, t, x):
        """Return R at the roots of trees, as differences between two grids or two depths."""
        assert not family.doublings
        (name,) = self._names(family)
        total, gradient = 0.0, 0.0
        for i in range(self.counts[name]):
            for grid, sign in (("fine", 1), ("coarse", -1)) if family.level else (("single", 1),):
                root = lambda deep, grid=grid, i=i: self.node(
                    (i, number), 0, (t, x), family.level or self.level, grid, deep
                )
                value, slope = root(family.depth)
                if family.depth:
                    less = root(family.depth - 1)
                    value, slope = value - less[0], slope - less[1]
                factor = sign / self.samples[NAMES.index(name)]
                total += factor * value
                gradient += factor * slope
        return {name: total}, gradient

    def node(self, numbers, h, start, level, grid, deep):
        """Return R at node h of a tree, weighted by the path to it, and its slope in `start`."""
        tree, family = numbers
        path = self.path(
            (tree, family + 32 * h), start, level, grid=grid, to_horizon=False, weighted=True
        )
        end = self.ends(path)[0]
        r, x = path.s + path.rho * path.duration, end.x
        u, z = [], []
        for group in range(self.groups):
            value, slope = 0.0, np.zeros(len(x))
            for k in range(self.inner):
                inside = 1 + k // 2 * self.groups + group
                inner = self.path(
                    (tree, family + 32 * (h + inside * NODES)),
                    (r, x),
                    level,
                    grid=grid,
                    flip=-1 if k % 2 else 1,
                    weighted=not self.is_pathwise,
                )
                factor = 1 / self.inner
                values, one = self.sampled(inner, factor, factor)
                value, slope = value + sum(values), slope + one
            if deep:
                child = self.groups * h + 1 + group
                below = self.node(numbers, child, (r, x), level, grid, deep - 1)
                value, slope = value + below[0], slope + below[1]
            u.append(value)
            z.append(self.sigma(r, x) * slope)
        total = 0.0
        for size, factor in enumerate(COMBINATIONS[self.groups], 1):
            for chosen in _subsets(self.groups, size):
                v, w = sum(u[k] for k in chosen) / size, sum(z[k] for k in chosen) / size
                number = math.comb(self.groups, size)
                total += factor / number * self.rest(r, x, v, w)
        value = path.weight * np.exp(end.growth) * float(total)
        return value, value * np.asarray(end.weight)

    def path(
        self,
        numbers,
        start,
        level,
        *,
        grid="single",
        flip=1,
        mirror=1,
        to_horizon=True,
        weighted=False,
        net=0,
    ):
        """Return a path from `start` = (s, x)."""
        (s, x), (first, second) = start, numbers
        s, dim = float(s), len(x)
        numbers = jnp.asarray([first]), jnp.asarray([second])
        key = path_keys(jax.random.key_data(self.key), *numbers)[0]
        if net:
            streams = lambda k: (self.key, jax.random.fold_in(self.key, 0))
            uniform, noise = design("rqmc", streams, jnp.asarray(net), (1, 2 * dim), x, None)(first)
            z = self.heading(s, x)[1]
            noise = np.asarray(reflect(noise.reshape(dim, 2).T, z))
        else:
            drawn = words(key, 0, 2 * dim + 1)
            uniform = uniform_of(drawn[0], x.dtype)
            noise = flip * np.asarray(normal_of(drawn[1:].reshape(2, dim), x.dtype))
        uniform, duration = float(uniform), self.horizon - s
        rho, weight = (uniform**2, 2 * duration * uniform) if weighted else (uniform, duration)
        whole, bridge = noise
        to_time = np.sqrt(rho * duration) * whole
        if to_horizon:
            mixed = np.sqrt(rho) * whole + np.sqrt(1 - rho) * bridge
            to_time = np.sqrt(rho * duration) * mixed
        changes = [to_time, np.sqrt(duration) * whole - to_time]
        draw = lambda i, count: flip * np.asarray(normals(key, 1 + i, (count, dim), x.dtype))
        pieces = (_single_steps if grid == "single" else _steps_in_pairs)(
            rho, duration, level, changes, draw, mirror, grid == "coarse"
        )
        steps, arrival, now = [], None, 0.0
        for length, dw, is_arrival in pieces:
            if length > 0:
                steps.append((s + now, length, dw))
            now += length
            if is_arrival:
                arrival = len(steps) - 1
        steps = steps if to_horizon else steps[: arrival + 1]
        return Path(s, x, rho, duration, weight, steps, arrival)

    def ends(self, path):
        """Return the `End` at r and at T.

        A gradient weight is the sum of <sigma^-1 dW, dX> over the steps, divided by the duration,
        plus the derivatives of the growth of each step times the fraction of the time that is left.
        """
        state, jacobian = self.begin(path.s, path.x)
        slopes = jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), jacobian)
        durations = path.rho * path.duration, path.duration
        growth, growth_slope, weights = 0.0, 0.0, [0.0, 0.0]
        for k, (t, h, dw) in enumerate(path.steps):
            product = np.asarray(slopes[0]) @ (dw / np.asarray(self.sigma(t, state[0])))
            (*state, grown), (*slopes, grown_slope) = self.pushed(t, h, dw, state, slopes)
            growth, growth_slope = growth + float(grown), growth_slope + np.asarray(grown_slope)
            for which, duration in enumerate(durations):
                left = 1 - (t - path.s + h / 2) / duration
                weights[which] = weights[which] + product / duration + left * grown_slope
            if k == path.arrival:
                at_time = End(state[0], growth, np.asarray(slopes[0]), growth_slope, weights[0])
        return at_time, End(state[0], growth, np.asarray(slopes[0]), growth_slope, weights[1])

    def sampled(self, path, of_horizon, of_time):
        """Return the samples at T and at r, times their factors, and the slope of their sum."""
        at_time, at_horizon = self.ends(path)
        r = path.s + path.rho * path.duration
        found, slope = [], np.zeros(len(path.x))
        for end, factor, (f, f_slope) in (
            (at_horizon, of_horizon, self.terminal(at_horizon.x)),
            (at_time, of_time * path.weight, self.residual(r, at_time.x)),
        ):
            value = factor * np.exp(end.growth) * float(f)
            by_path = value * end.growth_slope
            by_path = by_path + factor * np.exp(end.growth) * end.x_slope @ np.asarray(f_slope)
            slope = slope + (by_path if self.is_pathwise else value * end.weight)
            found.append(value)
        return found, np.asarray(slope)


def _grid(rho, level):
    """Return the lengths of the steps, in units of a whole step, and which of them ends at r."""
    position = rho * 2**level
    before = math.ceil(position) - 1
    first = position - before
    return [first, *[1.0] * (2**level - 1), 1 - first], before


def _increment(rest, remaining, length, unit, xi):
    """Return the increment of a Brownian motion whose change over the remaining time is known."""
    variance = unit * length * max(remaining - length, 0) / remaining
    return length / remaining * rest + np.sqrt(variance) * xi


def _single_steps(rho, duration, level, changes, draw, mirror, coarse):
    """Yield the length, the increment, and whether the path is then at r, of each step."""
    (lengths, before), unit = _grid(rho, level), duration / 2**level
    rest, changes = changes[0], changes[1]
    for k, length in enumerate(lengths):
        remaining = sum(lengths[k : before + 1]) if k <= before else sum(lengths[k:])
        if level == 0:
            dw = rest
        elif length > 0:
            dw = _increment(rest, remaining, length, unit, draw(k, 1)[0])
        rest = changes if k == before else rest - dw
        yield unit * length, dw, k == before


def _steps_in_pairs(rho, duration, level, changes, draw, mirror, coarse):
    """Yield what `_single_steps` yields, for a fine path, its reflection, or a coarse path."""
    (lengths, before), unit = _grid(rho, level), duration / 2**level
    # The second step of a pair ends at r, so the first or the last pair may have one step only.
    padded = [0.0, *lengths] if before % 2 == 0 else [*lengths, 0.0]
    at = before + (before % 2 == 0)
    rest, after = changes
    for i in range(0, len(padded), 2):
        a, b = padded[i : i + 2]
        remaining = sum(padded[i : at + 1]) if i <= at else sum(padded[i:])
        xi, dw, first = draw(i, 2), np.zeros_like(rest), np.zeros_like(rest)
        if a + b > 0:
            dw = _increment(rest, remaining, a + b, unit, xi[0])
            bend = np.sqrt(unit * a * b / (a + b)) * xi[1]
            first = a / (a + b) * dw + mirror * bend
        if coarse:
            yield unit * (a + b), dw, i + 1 == at
        else:
            yield unit * a, first, False
            yield unit * b, dw - first, i + 1 == at
        rest = after if i + 1 == at else rest - dw


def _subsets(groups, size):
    """Return the subsets of the groups that have this size."""
    every = [[k for k in range(groups) if number >> k & 1] for number in range(2**groups)]
    return [chosen for chosen in every if len(chosen) == size]
