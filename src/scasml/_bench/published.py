"""The simulation from zero against published values that were verified again.

`rows` returns the problems with their published values, and `simulate` simulates one of them.
`noisy_z` shows how the published value of one problem became wrong.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import Correction, Picard, Problem, correct, problems


class Row(NamedTuple):
    """A problem with its published value, and how it is simulated.

    The tests require |estimate - value| <= 3 e + bias, with the standard error e of the estimate.
    """

    name: str
    problem: Problem
    value: float  # at t = 0 and x = x0: as published, or as corrected since
    method: Picard
    replicates: int
    gradient: tuple[float, ...] = ()  # its first components, if they are published
    stderr: float = 0.005  # largest relative standard error that the tests allow
    # Largest difference of `value` from `problem.exact` that the tests allow; 0 skips the check.
    reference_error: float = 1e-8


def rows() -> list[Row]:
    """Return the rows of the table."""
    zoo = problems
    three = Picard(3, 8)
    table = [
        Row("HJB 100d", zoo.hjb(100), 4.5901617246, Picard(2, 32), 64),
        Row("Allen-Cahn 100d, T = .3", zoo.allen_cahn(100), 0.052781357, three, 128),
        Row("Allen-Cahn 20d, sigma = 1", zoo.allen_cahn(20, sigma=1.0), 0.308698546, three, 128),
    ]
    long_horizon = {
        "Allen-Cahn": (zoo.allen_cahn, (0.295695603, 0.033775572, 0.003396120)),
        "sine-Gordon": (zoo.sine_gordon, (0.306192991, 0.033789615, 0.003396134)),
    }
    for name, (make, values) in long_horizon.items():
        for dim, value in zip((10, 100, 1000), values, strict=True):
            problem, replicates = make(dim, horizon=1.0), 32 if dim == 1000 else 128
            table.append(Row(f"{name} {dim}d, T = 1", problem, value, Picard(4, 6), replicates))
    sine_gordon = {10: 0.322926385, 100: 0.052809435, 1000: 0.005588916, 10_000: 0.00056209}
    for dim, value in sine_gordon.items():
        replicates = {1000: 32, 10_000: 16}.get(dim, 128)
        problem = zoo.sine_gordon(dim)
        table.append(Row(f"sine-Gordon {dim}d, T = .3", problem, value, three, replicates))
    barenblatt = zoo.black_scholes_barenblatt(100)
    slopes = tuple(2 * np.exp(0.21) * barenblatt.x0)  # z_i = .4 x_i d_i u = .8 x_i^2 e^.21
    varying: dict[str, Any] = {"stderr": 0.002}  # where mu or sigma depends on the state
    return [
        *table,
        Row(
            "Black-Scholes-Barenblatt 100d",
            barenblatt,
            77.1048787473,
            Picard(3, 16),
            128,
            slopes,
            **varying,
        ),
        Row(
            "default risk 100d",
            zoo.default_risk(100),
            57.2975,
            Picard(4, 6),
            64,
            reference_error=0.0,
            **varying,
        ),
        Row(
            "different rates 100d",
            zoo.different_rates(100),
            21.1714,
            Picard(3, 16),
            64,
            reference_error=0.0,
            **varying,
        ),
        Row(
            "different rates 1d",
            zoo.different_rates(1),
            7.155896,
            Picard(3, 32),
            64,
            reference_error=1e-7,
            **varying,
        ),
        Row(
            "Heston call",
            zoo.heston(),
            16.070154917,
            Picard(3, 16, steps=64),
            256,
            (0.59947133,),
            **varying,
        ),
    ]


def simulate(row: Row) -> Correction:
    """Simulate the problem of a row from zero, at t = 0 and x = x0."""
    return correct(
        row.problem,
        None,
        0.0,
        row.problem.x0,
        method=row.method,
        replicates=row.replicates,
        with_gradient=bool(row.gradient),
    )


# Replicates by the samples of z. They give all of these about the same standard error.
REPLICATES_BY_SAMPLES = {1: 200_000, 2: 50_000, 4: 12_000, 8: 3000, 16: 800, 64: 64}


def different_rates(samples: int, gradient: Any = "pathwise") -> Correction:
    """Simulate the problem of different rates by two levels, with `samples` samples of z inside F.

    F is convex in z, so the statistical error of z causes a positive bias.
    """
    problem, method = problems.different_rates(100), Picard(2, samples, gradient=gradient)
    replicates = REPLICATES_BY_SAMPLES[samples]
    return correct(
        problem, None, 0.0, problem.x0, method=method, replicates=replicates, with_gradient=False
    )


def noisy_z() -> None:
    """Print the bias E F(noisy z) - F(E z): 21.299 was published for a value of 21.1714."""
    for gradient in ("pathwise", "weights"):
        for samples in REPLICATES_BY_SAMPLES:
            answer = different_rates(samples, gradient)
            print(
                f"different rates 100d, z from {samples:>2} samples ({gradient}): "
                f"{answer.value:.3f} +- {answer.stderr:.3f}; published 21.299, right 21.1714",
                flush=True,
            )


def print_row(row: Row) -> None:
    """Simulate a row and print its error, and that of its gradient if one is published."""
    answer = simulate(row)
    error = answer.value - row.value
    print(
        f"{row.name}: {answer.value:.7f} +- {answer.stderr:.1e} "
        f"(relative {answer.stderr / row.value:.1e}), bias {answer.bias:.0e}; "
        f"published {row.value:.9g}, error {error:+.1e} = {error / answer.stderr:+.1f} stderr; "
        f"{answer.cost.seconds:.0f} s",
        flush=True,
    )
    if row.gradient:
        count = len(row.gradient)
        gradient, stderr = (
            np.asarray(a)[:count] for a in (answer.gradient, answer.gradient_stderr)
        )
        errors = (gradient - row.gradient) / stderr
        relative = stderr / np.abs(row.gradient)
        print(
            f"    gradient, {count} of {row.problem.dim} components: error at most "
            f"{np.max(np.abs(errors)):.1f} stderr, root mean square "
            f"{np.sqrt(np.mean(errors**2)):.2f}; relative stderr {relative.max():.1e}"
        )


def main() -> None:
    """Print the bias of a noisy z, then all rows."""
    noisy_z()
    for row in rows():
        print_row(row)
