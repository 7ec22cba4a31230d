"""Probe paths use the seed of the user."""

import jax
import jax.numpy as jnp
import numpy as np

import scasml
from scasml.execution import LocalExecutor
from scasml.execution.points import PROBES, stream


class RecordingExecutor(LocalExecutor):
    """The default executor, which also records the columns of every `map`."""

    def __init__(self):
        super().__init__()
        self.columns = []

    def map(self, function, *columns):
        self.columns.append(columns)
        return super().map(function, *columns)


def test_probe_paths_depend_on_the_seed():
    problem = scasml.Problem(
        dim=1,
        horizon=1.0,
        diffusion=lambda t, x: 0.5 + 0.1 * jnp.sin(x),
        terminal=lambda x: x[0],
    )

    def keys(seed):
        executor = RecordingExecutor()
        method = scasml.Picard(1, 4, steps=2)
        scasml.correct(
            problem, None, 0.0, [0.0], method=method, replicates=2, seed=seed, executor=executor
        )
        return [columns[2] for columns in executor.columns if len(columns) == 3]

    assert keys(0)
    assert all(np.array_equal(a, b) for a, b in zip(keys(0), keys(0), strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(keys(0), keys(1), strict=True))


def test_probe_paths_share_no_random_numbers_with_replicates():
    """`split` of the key of a point gives the streams of its first replicates."""
    key = np.array([1, 2], np.uint32)
    probes = jax.random.key_data(jax.random.split(stream(key, PROBES), 64))
    replicates = [jax.random.key_data(stream(key, number)) for number in range(64)]
    assert not {tuple(map(int, a)) for a in probes} & {tuple(map(int, a)) for a in replicates}
