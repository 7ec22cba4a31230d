"""`seconds=10` on every problem of the zoo, compilation included, with no surrogate and with a network."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import scasml

SECONDS = 10.0


def main() -> None:
    print(f"{'seconds=10':24} {'surrogate':>10} {'took':>8} {'replicates':>11}  status")
    for name, make in scasml.problems.catalogue().items():
        problem = make()
        network = eqx.nn.MLP(problem.dim + 1, 1, 50, 4, activation=jnp.tanh, key=jax.random.key(0))
        for kind, model in (
            ("none", None),
            ("network", scasml.surrogates.wrap(network, problem, inputs="tx")),
        ):
            began = time.monotonic()
            answer = scasml.correct(
                problem, model, 0.0, np.asarray(problem.x0), seconds=SECONDS, safe=False
            )
            took = time.monotonic() - began
            said = f" ({answer.stopped})" if answer.status == "over time" else ""
            print(
                f"{name:24} {kind:>10} {took:>6.1f} s {answer.replicates:>11,}  {answer.status}{said}",
                flush=True,
            )
