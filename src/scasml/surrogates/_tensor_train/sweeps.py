"""Alternating least squares for the cores of a tensor train.

`sweep` takes cores and a `Batch` of states, and returns new cores. Core k has the shape (a, m, b),
where m counts the basis functions of variable k, and a and b are ranks. Variable 0 is time. All
arrays are NumPy's, in float64.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ..._support.types import Floats
from .features import TIME_DEGREE, Batch

# Size of the random entries of the initial cores relative to the identity, times sqrt(dim rank).
INITIAL_CORE_SIZE = 0.3


def residual(batch: Batch, cores: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    """Return eps = (d/dt + L) u + F at every state (n,), and F_u (n,) and F_z (n, d) there."""
    right = _right_products(batch.values, batch.generated, cores)
    # The product of the matrices left of core k as a row, and the same with the generator applied.
    u, generated = _empty_product(len(batch.t))
    z = np.empty((len(batch.t), len(cores)))
    for k, core in enumerate(cores):
        value = _matrices(batch.values[k], core)
        z[:, k] = np.sum(_row_times(u, _matrices(batch.slopes[k], core)) * right[k][0], 1)
        generated = _row_times(generated, value) + _row_times(
            u, _matrices(batch.generated[k], core)
        )
        u = _row_times(u, value)
    u, z, generated = (
        a + b for a, b in zip((u[:, 0], z[:, 1:], generated[:, 0]), batch.offset, strict=True)
    )
    f, (f_u, f_z) = batch.reaction(batch.t, batch.x, u, z)
    return generated + np.asarray(f), np.asarray(f_u), np.asarray(f_z)


def residual_rms(batch: Batch, cores: Sequence[Floats]) -> float:
    """Return the root mean square of the residual over the states."""
    return float(np.sqrt(np.mean(np.square(residual(batch, cores)[0]))))


def sweep(batch: Batch, cores: Sequence[Floats], forward: bool, ridge: float) -> list[Floats]:
    """Solve for every core in turn, and return the new cores.

    Each solve minimises the mean square of the residual, which Newton's method linearises once, at
    the given cores. With `forward` the sweep goes from the core of time to the core of the last
    coordinate, otherwise in the opposite direction. `ridge` times the mean eigenvalue of the normal
    equations of a core is added to their diagonal, which damps the change of the core.
    """
    eps, f_u, f_z = residual(batch, cores)
    # A change v of the train changes eps by (d/dt + L + f_z . sigma^T grad + f_u) v. The term in
    # f_z obeys the same product rule as the generator, so it is added to `generated`.
    f_z = np.concatenate([np.zeros((len(eps), 1)), f_z], 1)
    generated = [
        g + f_z[:, k, None] * s
        for k, (g, s) in enumerate(zip(batch.generated, batch.slopes, strict=True))
    ]
    if forward:
        return _sweep_forward(list(cores), batch.values, generated, f_u, eps, ridge)
    return _reversed_train(
        _sweep_forward(_reversed_train(cores), batch.values[::-1], generated[::-1], f_u, eps, ridge)
    )


def _sweep_forward(
    cores: list[Floats],
    values: Sequence[Floats],
    generated: Sequence[Floats],
    f_u: Floats,
    eps: Floats,
    ridge: float,
) -> list[Floats]:
    """Solve for the cores from the first to the last; `cores` is overwritten and returned.

    `eps` (n,) is the residual and `f_u` (n,) its derivative in u. At a state, let l (a,) and r (b,)
    be the products of the matrices left and right of a core, and let phi (m,) be the basis
    functions of its variable. Let l', phi' and r' be the same with the generator plus
    F_z . sigma^T grad applied; `sweep` adds that term to `generated`. The change of eps at the
    state is linear in the change (a, m, b) of the core. Its coefficients are the outer products

        l' phi r + l phi' r + l phi r' + f_u l phi r

    which are one row of the matrix of the least-squares problem. After the solve, a QR
    decomposition makes the columns of the core orthonormal, and the factor R is multiplied into the
    next core. This does not change the train, and keeps the next system well conditioned.
    """
    right = _right_products(values, generated, cores)
    left, left_generated = _empty_product(len(eps))
    for k, (value, generated_k) in enumerate(zip(values, generated, strict=True)):
        r, r_generated = right[k]
        rows = _outer(
            _outer(left_generated + f_u[:, None] * left, value) + _outer(left, generated_k), r
        )
        rows += _outer(_outer(left, value), r_generated)
        normal = rows.T @ rows
        normal[np.diag_indices_from(normal)] += ridge * max(
            np.trace(normal) / len(normal), np.finfo(float).tiny
        )
        change = np.linalg.solve(normal, -(rows.T @ eps))
        eps = eps + rows @ change
        core = cores[k] + change.reshape(cores[k].shape)
        if k + 1 < len(cores):
            core, cores[k + 1] = _orthogonalised(core, cores[k + 1])
        cores[k] = core
        matrices = _matrices(value, core)
        left_generated = _row_times(left_generated, matrices) + _row_times(
            left, _matrices(generated_k, core)
        )
        left = _row_times(left, matrices)
    return cores


def _right_products(
    values: Sequence[Floats], generated: Sequence[Floats], cores: Sequence[Floats]
) -> list[tuple[Floats, Floats]]:
    """Return two columns (n, b) for every core (a, m, b).

    The first one is the product of all matrices to the right of the core at every state. The second
    one is the same product with the generator applied.
    """
    found = [_empty_product(len(values[0]))]
    for value, generated_k, core in zip(values[:0:-1], generated[:0:-1], cores[:0:-1], strict=True):
        r, r_generated = found[-1]
        matrices = _matrices(value, core)
        found.append(
            (
                _times_column(matrices, r),
                _times_column(matrices, r_generated)
                + _times_column(_matrices(generated_k, core), r),
            )
        )
    return found[::-1]


def _empty_product(count: int) -> tuple[Floats, Floats]:
    """Return, as (count, 1), the product of no matrices, which is 1, and its generator, 0."""
    return np.ones((count, 1)), np.zeros((count, 1))


def _matrices(features: Floats, core: Floats) -> Floats:
    """Return the matrices C[phi] (n, a, b) of a core (a, m, b), for basis functions phi (n, m).

    At a state where the basis functions have the values phi (m,), core k defines the matrix
    C_k[phi] = sum_m phi_m C_k[:, m, :] of shape (a, b). The train is the product of these matrices
    for all k. The ranks a and b differ between the cores, with a = 1 for the first core and b = 1
    for the last one.
    """
    a, m, b = core.shape
    return (features @ core.transpose(1, 0, 2).reshape(m, -1)).reshape(-1, a, b)


def _row_times(left: Floats, matrices: Floats) -> Floats:
    """Multiply a row (n, a) by a matrix (n, a, b) at every state."""
    return np.einsum("na,nab->nb", left, matrices)


def _times_column(matrices: Floats, right: Floats) -> Floats:
    """Multiply a matrix (n, a, b) by a column (n, b) at every state."""
    return np.einsum("nab,nb->na", matrices, right)


def _outer(a: Floats, b: Floats) -> Floats:
    """Return the flattened outer product (n, i j) of two vectors (n, i), (n, j) at every state."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


def _reversed_train(cores: Sequence[Floats]) -> list[Floats]:
    """Return the cores of the same train with its variables in reverse order."""
    return [core.transpose(2, 1, 0) for core in reversed(cores)]


def _orthogonalised(core: Floats, following: Floats) -> tuple[Floats, Floats]:
    """Make the columns of a core orthonormal, and multiply the factor R into the core after it.

    The columns are those of the core (a, m, b) as a matrix (a m, b). The ranks of `initial_cores`
    ensure a m >= b, so the shape of the core does not change.
    """
    q, r = np.linalg.qr(core.reshape(-1, core.shape[2]))
    return q.reshape(core.shape), np.einsum("ab,bmc->amc", r, following)


def initial_cores(dim: int, rank: int, degree: int, seed: int) -> list[Floats]:
    """Return the cores of a train that is zero, from which a forward sweep can begin.

    The core of time is zero. The matrices of the coordinates are the identity times the constant
    polynomial, plus small random multiples of the other polynomials. To first order in the random
    part their product is a sum of functions of one coordinate each. Finally the cores of the
    coordinates are orthogonalised, from the last to the first.
    """
    p, q, random = degree + 1, TIME_DEGREE + 1, np.random.default_rng(seed)
    # The rank between two variables need not exceed the number of products of basis functions on
    # either side of it. Logarithms are compared because p^d overflows.
    log_bound = lambda k: min(math.log(q) + (k - 1) * math.log(p), (dim - k + 1) * math.log(p))
    ranks = [
        1,
        *(
            rank if math.log(rank) <= log_bound(k) else round(math.exp(log_bound(k)))
            for k in range(1, dim + 1)
        ),
        1,
    ]
    cores = [np.zeros((1, q, ranks[1]))]
    for a, b in itertools.pairwise(ranks[1:]):
        core = random.standard_normal((a, p, b))
        # The matrices of the last core have one column. If they have several rows, all their
        # entries stay random and of order 1.
        if b > 1 or a == 1:
            core *= INITIAL_CORE_SIZE / math.sqrt(dim * rank)
            core[:, 0] = np.eye(a, b)
        cores.append(core)
    cores = _reversed_train(cores)
    for k in range(len(cores) - 1):
        cores[k], cores[k + 1] = _orthogonalised(cores[k], cores[k + 1])
    return _reversed_train(cores)


def pad_rank(core: Floats, rank: int) -> Floats:
    """Fill a core (a, m, b) up with zeros to (rank, m, rank), or to (1, m, rank) if a is 1."""
    a, _, b = core.shape
    return np.pad(core, ((0, 0 if a == 1 else rank - a), (0, 0), (0, rank - b)))
