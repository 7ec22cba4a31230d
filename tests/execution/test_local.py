"""The engine: compiled once, for whatever data; from several threads; and never more programs than there is room for."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from correct_case import T, X, check_same_bits, correct
from scasml import Picard
from scasml.execution import local


class TestTraces:
    """Python runs F, g and the surrogate to trace them, and never again for other data."""

    calls = dict.fromkeys("uFg", 0)

    @classmethod
    def counted(cls, name, value):
        cls.calls[name] += 1
        return value

    @classmethod
    @functools.cache
    def traced(cls):
        """The problem and the surrogate, after a first call."""
        problem = scasml.Problem(
            dim=2,
            horizon=1.0,
            nonlinearity=lambda t, x, u, z: cls.counted("F", u * z[0]),
            terminal=lambda x: cls.counted("g", jnp.sum(x**2)),
        )
        surrogate = lambda t, x: cls.counted("u", t * jnp.sum(jnp.sin(x)))
        run = functools.partial(scasml.correct, problem, surrogate, method=Picard(1, 3))
        run(np.array([0.1, 1.0]), np.zeros((2, 2)), replicates=2)
        assert min(cls.calls.values()) > 0
        return run

    OTHERS = {  # noqa: RUF012
        "the same": lambda run: run(np.array([0.1, 1.0]), np.zeros((2, 2)), replicates=2),
        "points": lambda run: run(0.2, np.ones((5, 2)), replicates=2),
        "a scalar": lambda run: run(0.2, np.ones(2), replicates=2),
        "replicates": lambda run: run(0.1, np.zeros((2, 2)), replicates=7),
        "seed": lambda run: run(0.1, np.zeros((2, 2)), replicates=2, seed=9),
        "chunk": lambda run: run(0.1, np.zeros((2, 2)), replicates=3, chunk=2),
    }

    @pytest.fixture(autouse=True)
    def compiled(self, monkeypatch):
        """And not forgotten, by the engine or by others."""
        monkeypatch.setattr(local, "_mappings", lambda: (0, np.inf))
        self.OTHERS["the same"](self.traced())

    def count(self, name):
        run = self.traced()
        before = dict(self.calls)
        self.OTHERS[name](run)
        return {key: self.calls[key] - before[key] for key in self.calls}

    @pytest.mark.parametrize("name", OTHERS)
    def test_the_problem(self, name):
        count = self.count(name)
        assert count["F"] == count["g"] == 0

    @pytest.mark.parametrize("name", OTHERS)
    def test_the_surrogate(self, name):
        assert self.count(name)["u"] == 0

    def test_nothing_is_compiled_again(self):
        """By JAX's own count of its compilations."""
        run, events = self.traced(), []
        listen = lambda event, duration, **_: events.append(event)
        jax.monitoring.register_event_duration_secs_listener(listen)
        try:
            for other in self.OTHERS.values():
                other(run)
            assert not [event for event in events if "backend_compile" in event]
            jax.jit(lambda x: x * 3)(1.0)
            assert [event for event in events if "backend_compile" in event]  # the listener hears
        finally:
            jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize(
    "code",
    [
        """
F = lambda t, x, u, z: jnp.linalg.solve(jnp.eye(40) * (1 + x[0] ** 2) + 0.1, z)[0]
problem = scasml.Problem(dim=40, horizon=1.0, nonlinearity=F, terminal=jnp.sum)
print(scasml.correct(problem, None, 0.0, np.ones(40), replicates=16, with_gradient=False, method=scasml.Picard(2, 10)))
""",
        """
sigma = lambda t, x: jnp.eye(40) * (2 + jnp.tanh(x[0])) + 0.1
problem = scasml.Problem(dim=40, horizon=1.0, diffusion=sigma, terminal=jnp.sum)
print(scasml.correct(problem, None, 0.0, np.ones(40), replicates=16, method=scasml.Picard(1, 10, gradient="weights")))
""",
    ],
    ids=["in F", "in the weights"],
)
def test_a_factorisation_does_not_hang(code):
    """XLA's calls of LAPACK from two threads wait for each other: such programs run one at a time."""
    code = "import jax.numpy as jnp, numpy as np, scasml" + code
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.startswith("u = ")


class TestRoom:
    """Compiled programs are forgotten before there is no room for more, and made again: the bits are the same."""

    @pytest.mark.parametrize(("used", "forgets"), [(400, False), (600, True)])
    def test_it_is_made_in_time(self, used, forgets, monkeypatch):
        forgotten, clear = [], jax.clear_caches
        monkeypatch.setattr(jax, "clear_caches", lambda: (forgotten.append(True), clear()))
        monkeypatch.setattr(local, "_mappings", lambda: (used, 1000))
        monkeypatch.setattr(local, "KERNELS", 2**30)
        want = correct(T, X)
        assert not forgotten  # not every kernel looks
        monkeypatch.setattr(local, "KERNELS", 1)
        got = correct(T, X)
        assert bool(forgotten) == forgets
        check_same_bits(want, got)

    def test_mappings(self):
        used, allowed = local._mappings()
        assert 0 <= used < allowed
        assert (used > 0) == (sys.platform == "linux")
