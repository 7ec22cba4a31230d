"""Programs: traced and compiled once for all data, kept in a bounded cache, the same bits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from correct_case import PROBLEM, T, X, answer, check_same_bits, correct
from helpers import rough
from scasml import Picard
from scasml.estimators import Variant
from scasml.execution import LocalExecutor, Program, Rows, compute, forget_programs
from scasml.execution.compilation import MOST_PROGRAMS, Compiled, _CompiledPrograms
from scasml.execution.points import Points
from scasml.execution.row_numbers import RowNumbers, rows_at
from scasml.surrogates import wrap


class TestTraces:
    """Python calls F, g and the surrogate to trace them, and never again for other data."""

    calls = dict.fromkeys("uFg", 0)

    @classmethod
    def counted(cls, name, value):
        cls.calls[name] += 1
        return value

    @classmethod
    @functools.cache
    def traced(cls):
        """Return `correct` for one problem and one surrogate, after a first call."""
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
    def compiled(self):
        """Compile the programs again if other tests have replaced them."""
        self.OTHERS["the same"](self.traced())

    def count(self, name):
        """Return how often each function is called for other data."""
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
        """JAX itself reports its compilations."""
        run, events = self.traced(), []
        listen = lambda event, duration, **_: events.append(event)
        jax.monitoring.register_event_duration_secs_listener(listen)
        try:
            for other in self.OTHERS.values():
                other(run)
            assert not [event for event in events if "backend_compile" in event]
            jax.jit(lambda x: x * 3)(1.0)
            assert [event for event in events if "backend_compile" in event]  # it does listen
        finally:
            jax.monitoring.unregister_event_duration_listener(listen)


class TestForgetting:
    def test_a_program_that_is_compiled_again_gives_the_same_bits(self):
        want = correct()
        forget_programs()
        check_same_bits(want, correct())

    def test_the_programs_of_the_user_are_not_forgotten(self):
        """JAX's own caches are never cleared."""
        traces = []
        function = jax.jit(lambda x: (traces.append(x), x * 5)[1])
        function(1.0)
        forget_programs()
        correct()
        function(2.0)
        assert len(traces) == 1

    def test_the_least_recently_used_program_is_dropped(self):
        """A cache for two programs drops the one that was not used again."""
        programs, made = _CompiledPrograms(2), []

        def use(name):
            def make():
                made.append(name)
                return Compiled(lambda: name, False, {})

            assert programs.get(name, make).call() == name

        for name in "abacab":
            use(name)
        assert made == ["a", "b", "c", "b"]
        assert MOST_PROGRAMS >= 32  # one call of method="auto" uses about ten programs


class TestRows:
    """A program maps rows to replicates, and each row is computed by itself."""

    METHOD = Picard(2, 2)

    def program(self, **options):
        tuning = self.METHOD.default_tuning(PROBLEM, True)
        return Program(PROBLEM, self.METHOD, tuning, **options)

    def rows(self, replicates=3):
        points = Points.of(np.arange(9), T, X, seed=0)
        point = np.tile(np.arange(9), replicates)
        number = np.repeat(np.arange(replicates), 9)
        variant = np.full(len(point), int(Variant.MAIN))
        tuning = self.METHOD.default_tuning(PROBLEM, True)
        return rows_at(points, tuning, RowNumbers(point, number, variant))

    def test_the_executor_and_compute_give_the_same_bits(self):
        program, rows = self.program(), self.rows()
        whole = compute(program, rows)
        for part in LocalExecutor(chunk=4).run(program, rows):
            jax.tree.map(np.testing.assert_array_equal, part.replicates, whole.at(part.rows))
        one = compute(program, rows.at(slice(7, 8)))
        jax.tree.map(np.testing.assert_array_equal, one, whole.at(slice(7, 8)))

    def test_replicates_are_relative_to_the_surrogate(self):
        """u = start + estimate = surrogate + replicate."""
        rows, surrogate = self.rows(), wrap(rough, PROBLEM)
        plain, relative = (
            compute(self.program(surrogate=model, start=None), rows) for model in (None, surrogate)
        )
        assert plain.surrogate is None
        value, slope = relative.surrogate
        np.testing.assert_allclose(value + relative.value, plain.value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(slope + relative.gradient, plain.gradient, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(np.sum(relative.increments, 1), relative.value, atol=1e-5)

    def test_rows_have_a_length_and_subsets(self):
        rows = self.rows()
        assert len(rows) == 27
        some = rows.at(np.array([3, 5]))
        assert isinstance(some, Rows)
        np.testing.assert_array_equal(some.t, rows.t[[3, 5]])
        assert some.samples is None


def test_the_same_bits_for_every_chunk():
    for chunk in (1, 4, 7):
        check_same_bits(answer(), correct(chunk=chunk))
