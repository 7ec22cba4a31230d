"""Draw the pictures of README.md and docs/elastic.md: `python docs/pictures.py`."""

from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np

import scasml


def main() -> None:
    """Correct a perturbed solution of Burgers' equation, and write both pictures."""
    matplotlib.use("Agg")
    problem = scasml.problems.burgers(dim=20)

    def spoiled(t, x):
        phase = t + jnp.sum(x)
        return 1 / (1 + jnp.exp(-0.95 * phase)) + 0.02 * jnp.sin(3 * x[0])

    rng = np.random.default_rng(0)
    t, x = rng.uniform(0, 0.4, 60), rng.uniform(-0.5, 0.5, (60, 20))
    answer = scasml.correct(problem, spoiled, t, x, replicates=16)
    ax = answer.plot()
    ax.set_title("Burgers, d = 20: a spoiled surrogate, corrected with 16 replicates")
    images = Path(__file__).parent / "images"
    ax.figure.savefig(images / "correct.png", dpi=110)
    *_, answer = scasml.refine(problem, spoiled, t, x, replicates=256)
    ax = answer.plot_convergence()
    ax.set_title("The same, refined up to 256 replicates")
    ax.figure.savefig(images / "convergence.png", dpi=110)


if __name__ == "__main__":
    main()
