"""Multilevel Picard iteration, full history or quadrature in time.

U_0 = 0 and, with fresh independent draws for every level, sample and inner call,

    U_n(s, x) = 1/M^n sum_{i <= M^n} g(X_T^i)
              + sum_{l < n} 1/M^(n-l) sum_{i <= M^(n-l)} w_i [F(U_l) - 1{l >= 1} F(U_{l-1})](R_i, X_{R_i}^i)

z is the second half of U = (u, z). With `gradient="pathwise"` it is sigma^T times the derivative of
the estimator itself, same draws, in x. With `gradient="weights"`, the paper's, each term is
multiplied by the Bismut-Elworthy-Li weight of its path.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from ..errors import ArgumentError, ArgumentTypeError, brief, whole
from ..paths import gaussian_jump
from ..problem import AbstractLaw, Solution, diffuse_transposed, undiffuse_transposed
from ..times import AbstractTimeLaw, FullHistory, GaussLegendre
from .base import AbstractEstimator, Evaluations, Replicate

# Samples evaluated side by side: enough to fill the vector units, few enough to stay in cache.
TILE = 128


class Picard(AbstractEstimator):
    """Multilevel Picard of `levels` levels with `samples` as the base of the sample numbers.

    - `time`: "full-history" draws one random time per sample, from density (1 - a) r^-a with
      a = `time_exponent` (0 for path derivatives, 1/2 for weights); "quadrature" takes the `nodes`
      Gauss-Legendre nodes.
    - `gradient`: "pathwise" differentiates the estimator; "weights" is the paper's. Pathwise needs
      a Lipschitz g; and where F depends on z, levels >= 3, or a reported gradient at levels >= 2,
      differentiate z again and need a g with Lipschitz first derivatives.
    - `threshold`: clips every component of every U_l to [-threshold, threshold], as the paper does.
    """

    levels: int = eqx.field(static=True)
    samples: int = eqx.field(static=True)
    time_law: AbstractTimeLaw
    gradient: str = eqx.field(static=True)
    threshold: float | None = eqx.field(static=True)

    def __init__(
        self,
        levels: int = 2,
        samples: int = 10,
        time: Literal["full-history", "quadrature"] = "full-history",
        nodes: int | None = None,
        time_exponent: float | None = None,
        gradient: Literal["pathwise", "weights"] = "pathwise",
        threshold: float | None = None,
    ):
        self.levels = whole("levels", levels, 1, "pass the number of Picard levels")
        self.samples = whole("samples", samples, 1, "pass the base of the sample numbers")
        if not (isinstance(gradient, str) and gradient in ("pathwise", "weights")):
            raise ArgumentError(
                f'gradient must be "pathwise" or "weights", got {brief(gradient)}: pick one of the two.'
            )
        if not (isinstance(time, str) and time in ("full-history", "quadrature")):
            raise ArgumentError(f'time must be "full-history" or "quadrature", got {brief(time)}: pick one of the two.')
        self.gradient = gradient
        self.threshold = None if threshold is None else _number("threshold", threshold, lambda c: c > 0, "above 0")
        if time == "full-history":
            if nodes is not None:
                raise ArgumentError(
                    f'nodes applies to time="quadrature" only, got nodes={brief(nodes)}: leave it out, or change time.'
                )
            default = 0.0 if gradient == "pathwise" else 0.5
            exponent = default if time_exponent is None else time_exponent
            self.time_law = FullHistory(exponent=_number("time_exponent", exponent, lambda a: 0 <= a < 1, "in [0, 1)"))
        else:
            if time_exponent is not None:
                raise ArgumentError(
                    f'time_exponent applies to time="full-history" only, got {brief(time_exponent)}: leave it out, or change time.'
                )
            self.time_law = GaussLegendre(
                nodes=whole("nodes", 3 if nodes is None else nodes, 1, "pass the number of quadrature nodes")
            )
        # Streams are told apart by a 31-bit index of level and sample.
        too_many = self.levels * math.log2(self.samples) > 31  # said before the power is formed: it may fill the memory
        if too_many or 4 * (self.levels + 1) * self.samples**self.levels * self.time_law.nodes >= 2**31:
            raise ArgumentError(
                f"samples must satisfy samples**levels <= about 1e8, got {samples}**{levels}: take fewer, and more replicates instead."
            )

    @property
    def increments(self) -> int:
        return self.levels + 1

    def replicate(self, law: AbstractLaw, key: PRNGKeyArray, t: Array, x: Array, gradient: bool) -> Replicate:
        terms = self._terms(law, self.levels, key, t, x, gradient)
        increments = jnp.stack([term.u for term in terms])
        total = _sum(terms)
        solution = self._solution(law, total)
        if not gradient:
            return Replicate(solution.u, None, increments)
        if self.gradient == "pathwise" and self.threshold is None:
            # The slope itself, and not sigma^-T sigma^T of it, which loses digits if sigma is ill-conditioned.
            return Replicate(solution.u, total.z, increments)
        return Replicate(solution.u, undiffuse_transposed(law.diffusion, solution.z), increments)

    def iterate(self, law: AbstractLaw, n: int, key: PRNGKeyArray, s: Array, x: Array, z: bool) -> Solution:
        """U_n(s, x); its z is zero unless asked for."""
        if n == 0:
            return Solution(jnp.zeros_like(s), jnp.zeros_like(x))
        return self._solution(law, _sum(self._terms(law, n, key, s, x, z)))

    def _solution(self, law: AbstractLaw, total: Solution) -> Solution:
        """(u, z) from the sum of terms, clipped if asked for."""
        z = diffuse_transposed(law.diffusion, total.z) if self.gradient == "pathwise" else total.z
        if (c := self.threshold) is None:
            return Solution(total.u, z)
        return Solution(jnp.clip(total.u, -c, c), jnp.clip(z, -c, c))

    def _terms(self, law: AbstractLaw, n: int, key: PRNGKeyArray, s: Array, x: Array, z: bool) -> list[Solution]:
        """The terminal term of U_n, then its levels l = 0, ..., n - 1; by path derivative each with its slope in place of z."""
        centre = law.terminal(x) if z and self.gradient == "weights" else 0.0

        def terminal(i: Array, x: Array) -> Solution:
            (key_path,) = _streams(key, n, 0, i, 1)
            jump = gaussian_jump(law, key_path, s, x, law.horizon - s)
            g = law.terminal(jump.x)
            return Solution(g, (g - centre) * jump.weight)

        def level(l: int, i: Array, x: Array) -> Solution:
            key_path, key_time, key_new, key_old = _streams(key, n, l + 1, i, 4)
            duration, w = self.time_law.draw(key_time, i % self.time_law.nodes, s, law.horizon)
            jump, r = gaussian_jump(law, key_path, s, x, duration), s + duration
            if l == 0:
                f = law.source(r, jump.x, key_new)
            else:
                new = self.iterate(law, l, key_new, r, jump.x, law.uses_z)
                old = self.iterate(law, l - 1, key_old, r, jump.x, law.uses_z)
                f = law.difference(r, jump.x, new, old)
            return Solution(w * f, w * f * jump.weight)

        mean = lambda f, samples, nodes, width: self._mean(f, x, samples, nodes, width, z)
        terms = [mean(terminal, self.samples**n, 1, 1)]
        for l in self._levels(law, n):
            f = lambda i, x, l=l: level(l, i, x)
            terms.append(mean(f, self.samples ** (n - l), self.time_law.nodes, self._width(l)))
        zero = Solution(jnp.zeros_like(s), jnp.zeros_like(x))
        return terms + [zero] * (n + 1 - len(terms))

    def _mean(
        self,
        f: Callable[[Array, Array], Solution],
        x: Array,
        samples: int,
        nodes: int,
        width: int,
        z: bool,
    ) -> Solution:
        """The mean over samples of the sum over nodes of f(i, x), a tile of samples at a time."""
        count = samples * nodes
        tile = _tile(count, max(1, TILE // width))

        def block(start: Array) -> Solution:
            indices = start + jnp.arange(tile)

            def total(x: Array) -> Solution:
                terms = jax.vmap(f, (0, None))(indices, x)
                return jax.tree.map(
                    lambda a: jnp.sum(jnp.where((indices < count).reshape(-1, *[1] * (a.ndim - 1)), a, 0), 0), terms
                )

            if not z:
                return Solution(total(x).u, jnp.zeros_like(x))
            if self.gradient == "weights":
                return total(x)
            return Solution(*jax.value_and_grad(lambda x: total(x).u)(x))

        if tile >= count:
            sums = block(jnp.asarray(0))
        else:
            # The gradient is taken inside each tile, so nothing of a tile outlives it; `checkpoint`
            # keeps that true when an outer level differentiates through this loop.
            step = jax.checkpoint(lambda acc, start: (jax.tree.map(jnp.add, acc, block(start)), None))
            zero = Solution(jnp.zeros((), x.dtype), jnp.zeros_like(x))
            sums, _ = jax.lax.scan(step, zero, jnp.arange(0, count, tile))
        return jax.tree.map(lambda a: a / samples, sums)

    def _levels(self, law: AbstractLaw, n: int) -> range:
        """The levels of U_n that are not identically zero: for F(t, x) alone every difference is."""
        return range(1 if law.is_linear else n)

    def _width(self, l: int) -> int:
        """How many samples U_l holds side by side."""
        if l == 0:
            return 1
        inner = [self.samples ** (l - k) * self.time_law.nodes * self._width(k) for k in range(l)]
        return min(TILE, max(self.samples**l, *inner))

    def cost(self, law: AbstractLaw) -> Evaluations:
        return self._cost(law, self.levels)

    def _cost(self, law: AbstractLaw, n: int) -> Evaluations:
        """The recursions FE, RV and RN of the paper; a linear law stops at its first level."""
        if n == 0:
            return Evaluations()
        total = Evaluations(terminal=1, normals=law.dim).times(self.samples**n)
        for l in self._levels(law, n):
            one = Evaluations(nonlinearity=1 if l == 0 else 2, normals=law.dim, uniforms=self.time_law.uniforms)
            inner = self._cost(law, l) + (self._cost(law, l - 1) if l >= 1 else Evaluations())
            total += (one + inner).times(self.samples ** (n - l) * self.time_law.nodes)
        return total

    def bias(self, law: AbstractLaw, increments: NDArray[Any], stderr: NDArray[Any]) -> NDArray[Any]:
        """What the levels not taken would add, from those taken.

        The last increment estimates E U_n - E U_{n-1}. If the one before it is larger by 1/q, what is
        left out is about q/(1-q) of the last; with q > 1/2, or two levels only, all of it is reported.
        """
        # Neither the error of a quadrature in time nor that of a clip shows in the increments.
        if self.threshold is not None or not self.time_law.unbiased:
            return np.full(increments.shape[:-1], np.nan)
        if law.is_linear:
            return np.zeros(increments.shape[:-1])
        if self.levels == 1:
            return np.full(increments.shape[:-1], np.nan)
        last = np.abs(increments[..., -1]) + np.nan_to_num(stderr[..., -1])
        if self.levels == 2:
            return last
        before = np.abs(increments[..., -2]) - np.nan_to_num(stderr[..., -2])
        q = np.divide(last, before, out=np.full_like(last, 0.5), where=before > 2 * last)
        return last * q / (1 - q)


def _streams(key: PRNGKeyArray, n: int, level: int, i: Array, count: int) -> Iterator[PRNGKeyArray]:
    """`count` <= 4 streams of one sample of one level of U_n: one hash each, all of them in one call."""
    first = (i * (n + 1) + level) * 4
    return iter(jax.vmap(jax.random.fold_in, (None, 0))(key, (first + jnp.arange(count)).astype(jnp.uint32)))


def _sum(terms: list[Solution]) -> Solution:
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *terms)


def _tile(count: int, most: int) -> int:
    """A tile of at most about `most` samples that divides `count`, or nearly: a last tile that is not full is masked."""
    if count <= most:
        return count
    divisors = [k for k in range(1, most + 1) if count % k == 0]
    return divisors[-1] if 4 * divisors[-1] >= most else math.ceil(count / math.ceil(count / most))


def _number(argument: str, value: Any, allowed: Callable[[float], bool], words: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentTypeError(f"{argument} must be a number, got {brief(value)}: pass a float {words}.")
    if not (math.isfinite(value) and allowed(float(value))):
        raise ArgumentError(f"{argument} must be finite and {words}, got {value}: pass a number {words}.")
    return float(value)
