"""How long `correct(seconds=10)` takes, compilation included, on every problem of the zoo.

Every problem is simulated from zero and from an untrained network.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import correct, problems, surrogates

ALLOWED_SECONDS = 10.0


def main(*names: str) -> None:
    """Print two lines for every problem, or for the problems with these names."""
    print(
        f"{f'seconds={ALLOWED_SECONDS:g}':24} {'surrogate':>10} {'took':>8} {'replicates':>11}  "
        "status"
    )
    for name, make in problems.catalogue().items():
        if names and name not in names:
            continue
        problem = make()
        network = eqx.nn.MLP(problem.dim + 1, 1, 50, 4, activation=jnp.tanh, key=jax.random.key(0))
        wrapped = surrogates.wrap(network, problem, inputs="tx")
        for label, model in (("none", None), ("network", wrapped)):
            began = time.monotonic()
            answer = correct(
                problem, model, 0.0, np.asarray(problem.x0), seconds=ALLOWED_SECONDS, safe=False
            )
            took = time.monotonic() - began
            detail = f" ({answer.stopped})" if answer.status == "over time" else ""
            print(
                f"{name:24} {label:>10} {took:>6.1f} s {answer.replicates:>11,}  "
                f"{answer.status}{detail}",
                flush=True,
            )
