"""Counts of function evaluations and of random numbers, which are the cost of a replicate."""

from typing import NamedTuple


class Evaluations(NamedTuple):
    """Numbers of function evaluations and of random numbers.

    `terminal` counts evaluations of g, and `nonlinearity` those of F or of its slopes. `normals`
    and `uniforms` count scalar normal and uniform random numbers.
    """

    terminal: float = 0
    nonlinearity: float = 0
    normals: float = 0
    uniforms: float = 0

    def __add__(self, other: "Evaluations") -> "Evaluations":  # type: ignore[override]
        return Evaluations(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, count: float) -> "Evaluations":
        """Return all numbers multiplied by `count`."""
        return Evaluations(*(count * a for a in self))

    @property
    def functions(self) -> int:
        """Evaluations of F and g: FE (function evaluations) of the SCaSML paper."""
        return round(self.terminal + self.nonlinearity)

    @property
    def random_numbers(self) -> int:
        """Scalar random numbers: RV (realization variables) or RN of the SCaSML paper.

        RV is that of full history, and RN that of quadrature in time.
        """
        return round(self.normals + self.uniforms)
