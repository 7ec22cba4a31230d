"""The naive simulation against published values that were re-verified: |estimate - value| <= 3 stderr + bias, relative stderr <= 0.5 %."""

from typing import NamedTuple

import numpy as np

import scasml
from scasml import Correction, Picard, Problem


class Row(NamedTuple):
    name: str
    problem: Problem
    value: float  # at t = 0, x = 0, as PUBLISHED.md prints it
    method: Picard
    replicates: int


def rows() -> list[Row]:
    zoo = scasml.problems
    three = Picard(3, 8)
    table = [
        Row("HJB 100d", zoo.hjb(100), 4.5901617246, Picard(2, 32), 64),
        Row("Allen-Cahn 100d, T = .3", zoo.allen_cahn(100), 0.052781357, three, 128),
        Row("Allen-Cahn 20d, sigma = 1", zoo.allen_cahn(20, sigma=1.0), 0.308698546, three, 128),
    ]
    long = {
        "Allen-Cahn": (zoo.allen_cahn, (0.295695603, 0.033775572, 0.003396120)),
        "sine-Gordon": (zoo.sine_gordon, (0.306192991, 0.033789615, 0.003396134)),
    }
    for name, (make, values) in long.items():
        for dim, value in zip((10, 100, 1000), values, strict=True):
            replicates = 32 if dim == 1000 else 128
            table.append(Row(f"{name} {dim}d, T = 1", make(dim, horizon=1.0), value, Picard(4, 6), replicates))
    for dim, value in ((10, 0.322926385), (100, 0.052809435), (1000, 0.005588916), (10_000, 0.00056209)):
        table.append(
            Row(f"sine-Gordon {dim}d, T = .3", zoo.sine_gordon(dim), value, three, {1000: 32, 10_000: 16}.get(dim, 128))
        )
    return table


def simulate(row: Row) -> Correction:
    origin = np.zeros(row.problem.dim)
    return scasml.correct(
        row.problem, None, 0.0, origin, method=row.method, replicates=row.replicates, with_gradient=False
    )


def main() -> None:
    for row in rows():
        answer = simulate(row)
        miss = answer.value - row.value
        print(
            f"{row.name}: {answer.value:.7f} +- {answer.stderr:.1e} (relative {answer.stderr / row.value:.1e}), bias {answer.bias:.0e}; "
            f"published {row.value:.9g}, off by {miss:+.1e} = {miss / answer.stderr:+.1f} stderr; {answer.cost.seconds:.0f} s"
        )
