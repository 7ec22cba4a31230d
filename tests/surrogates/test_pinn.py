"""PINNs: the smoothed g that is built in, the residual during training, and resumed runs."""

import contextlib
import os
import signal
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import problems, surrogates
from scasml._equations.defect import Defect
from scasml._equations.domain import Ball, Box, Queries
from scasml._equations.generator import Generator
from scasml._support.errors import ScasmlError
from scasml.surrogates import adam
from scasml.surrogates._pinn import Layer, untrained_pinn
from scasml.surrogates._pinn_settings import PAPER_SETTINGS, resolve_settings
from scasml.surrogates.adam import STALL_WINDOW, STEPS_PER_CALL, Schedule, train
from scasml.surrogates.adapters.functions import Function
from scasml.surrogates.collocation import boundary, collocation_points, domain_of
from scasml.surrogates.terminal import SmoothedTerminal, choose_draws, directions

SMALL = {"iterations": 100, "interior": 32, "width": 8, "depth": 2}


def settings(problem, preset="default", terminal="auto"):
    return resolve_settings(problem, preset, terminal, None, None, None, None, None)


def perturbed(model, seed=0):
    """Return the same network with other weights, none of them zero."""
    leaves, tree = jax.tree.flatten(model.layers)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    moved = [a + 0.3 * jax.random.normal(k, a.shape) for a, k in zip(leaves, keys, strict=True)]
    return eqx.tree_at(lambda m: m.layers, model, jax.tree.unflatten(tree, moved))


@pytest.fixture(scope="module")
def small():
    """A network of 8 units for HJB in 12 dimensions; its residual is taken along 8 directions."""
    return surrogates.pinn(problems.hjb(12), **SMALL)


class TestResidual:
    t, x = jnp.asarray(0.3), jnp.asarray(np.random.default_rng(0).normal(size=12), jnp.float32)

    @pytest.mark.parametrize("hutchinson", [None, scasml.Hutchinson(12)])
    def test_offset_and_first_layer(self, small, hutchinson):
        """The residual equals that of the same network as a plain function, without a form."""
        model = perturbed(small)
        both = (
            Generator(model.problem, model, hutchinson),
            Generator(model.problem, Function(model, "t, x")),
        )
        got, want = jax.jit(
            lambda t, x: [generator(t, x, jax.random.key(0)) for generator in both]
        )(self.t, self.x)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)

    @pytest.mark.parametrize("part", [1, 2])
    def test_derivative_in_the_weights(self, small, part):
        """The derivative in the weights equals that of the plain function.

        While W is trained, part of its directions is treated as constant.
        """
        model = perturbed(small)
        weights = jnp.asarray(np.random.default_rng(1).normal(size=12), jnp.float32)

        def value(layers, plain):
            changed = eqx.tree_at(lambda m: m.layers, model, layers)
            generator = Generator(model.problem, Function(changed, "t, x") if plain else changed)
            out = generator(self.t, self.x, jax.random.key(0))[part]
            return out @ weights if part == 1 else out

        got, want = (
            jax.jit(jax.grad(lambda l, p=p: value(l, p)))(model.layers) for p in (False, True)
        )
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.max(np.abs(b)))


class TestTerminal:
    def test_the_smoothed_g_is_g_at_the_horizon(self, small):
        x = jnp.asarray(np.random.default_rng(2).normal(size=(20, 12)), jnp.float32)
        smoothed = SmoothedTerminal(small.problem, small.draws)
        end = jnp.asarray(small.problem.horizon)
        np.testing.assert_allclose(
            jax.vmap(lambda x: smoothed(end, x))(x), jax.vmap(small.problem.terminal)(x), rtol=3e-7
        )

    def test_the_smoothed_g_is_closer_than_g(self):
        """The case is HJB in 100 dimensions, in the ball of its domain, at time 0."""
        problem = problems.hjb(100)
        x = np.asarray(
            jax.vmap(lambda key: problem.domain.draw(key, 100, 1.0)[1])(
                jax.random.split(jax.random.key(0), 50)
            )
        )
        smoothed = SmoothedTerminal(problem, directions(100, 4, 0))
        exact = problem.exact(np.zeros(50), x)
        error = lambda u: np.linalg.norm(np.asarray(u) - exact) / np.linalg.norm(exact)
        assert error(jax.vmap(problem.terminal)(x)) > 0.9
        assert error(jax.jit(jax.vmap(lambda x: smoothed(jnp.zeros(()), x)))(x)) < 0.04

    @pytest.mark.parametrize(
        ("problem", "count"),
        [
            (problems.hjb(100), 4),
            (problems.burgers(20, problems.BURGERS_PAPER), 0),
            (problems.black_scholes_basket(3), None),
        ],
    )
    def test_the_residual_chooses_the_draws(self, problem, count):
        draws = choose_draws(problem, domain_of(problem), 0)
        assert (None if draws is None else len(draws)) == count

    def test_the_terminal_defect_is_zero(self, small):
        x = jnp.asarray(np.random.default_rng(2).normal(size=(20, 12)), jnp.float32)
        defect = Defect(small.problem, perturbed(small))
        np.testing.assert_allclose(jax.vmap(defect.terminal)(x), np.zeros(20), atol=1e-6)

    def test_the_residual_is_continuous_up_to_the_horizon(self, small):
        """float32 rounds one time in a million to T; the residual there is that just before T."""
        generator = Generator(small.problem, small)
        x = 0.1 * jnp.ones(12)
        times = (
            np.float32(1 - 1e-4),
            np.float32(1 - 1e-5),
            np.nextafter(np.float32(1), np.float32(0)),
            np.float32(1),
        )
        generated = jax.jit(jax.vmap(lambda t: generator(t, x, jax.random.key(0))[2]))(
            jnp.asarray(times)
        )
        laplacian = 2 * 12 / (1 + 0.12)
        assert np.ptp(generated) < 0.02 * laplacian

    @pytest.mark.parametrize(("dim", "count"), [(5, 4), (3, 4), (1, 4)])
    def test_directions(self, dim, count):
        xi = directions(dim, count, 0).astype(float)
        np.testing.assert_allclose(xi @ xi.T, dim * np.eye(min(dim, count)), atol=1e-5)

    def test_a_terminal_condition_with_kinks_is_learned(self):
        assert not settings(problems.black_scholes_basket(3)).hard
        with pytest.raises(ScasmlError, match='terminal="hard" needs a smooth g'):
            surrogates.pinn(problems.black_scholes_basket(3), terminal="hard", **SMALL)

    def test_a_learned_terminal_condition_has_points(self):
        got = settings(problems.hjb(3), terminal="soft")
        assert (got.hard, got.terminal) == (False, got.interior)
        assert settings(problems.hjb(3)).terminal == 0


class TestCollocation:
    @pytest.mark.parametrize(
        "domain", [Box(-0.5, 0.5), Ball(0.7), Queries(np.zeros(1), np.full((1, 4), 0.2))]
    )
    def test_inside_and_along_paths(self, domain):
        """Half of the points lie in the domain, the others on paths that start there.

        Along paths the second moment grows by E sigma^2 (r - s), within 6 standard errors (2e-9).
        """
        problem = problems.hjb(4)
        t, x = (
            np.asarray(a) for a in collocation_points(problem, domain, jax.random.key(0), 4000, 0.5)
        )
        assert np.all((t >= 0) & (t <= problem.horizon))
        on_paths, inside = x[:2000], x[2000:]
        if isinstance(domain, Box):
            assert np.all(np.abs(inside) <= 0.5)
        elif isinstance(domain, Ball):
            assert np.all(np.linalg.norm(inside, axis=1) <= 0.7001)
        else:
            assert np.all(inside == np.float32(0.2))
        mean_duration = 0.5 if isinstance(domain, Queries) else 0.25
        growth = np.mean(on_paths**2) - np.mean(inside**2)
        tolerance = 6 * np.std(on_paths**2) / np.sqrt(2000)
        assert abs(growth - 2 * mean_duration) < tolerance

    def test_boundary(self):
        problem = problems.burgers(3)
        t, x = boundary(problem, problem.domain, 200, 0)
        assert t.shape == (200,)
        assert np.all(np.isclose(np.abs(x), 0.5).any(1))
        assert len(np.unique(np.argmax(np.abs(x) == 0.5, axis=1))) == 3
        assert len(boundary(problem, Ball(1.0), 200, 0)[0]) == 0


class TestRun:
    @pytest.mark.slow
    def test_the_residual_falls(self):
        model = surrogates.pinn(problems.burgers(3), iterations=300, interior=64, width=16, depth=2)
        residuals = model.record["residuals"]
        assert residuals[-1] < 0.3 * residuals[0]
        assert "burgers 3d" in repr(model)

    def test_same_seed_same_bits(self, small, tmp_path):
        """A checkpoint does not change the result, and one of another run is refused."""
        path = tmp_path / "run.safetensors"
        again = surrogates.pinn(small.problem, checkpoint=path, **SMALL)
        for name, array in small.arrays().items():
            np.testing.assert_array_equal(again.arrays()[name], array)
        for change in ({"seed": 1}, {"rate": 1e-3}, {"domain": Box(0.0, 1.0)}):
            with pytest.raises(ScasmlError, match="is of another run"):
                surrogates.pinn(small.problem, checkpoint=path, **{**SMALL, **change})

    def test_a_checkpoint_is_refused_if_one_number_differs(self, tmp_path):
        """NumPy's repr omits the middle of a long array, and digits after the eighth."""
        x = np.random.default_rng(0).normal(size=(500, 3))
        options = {"iterations": 50, "interior": 8, "width": 4, "depth": 1}
        options |= {"checkpoint": tmp_path / "run.safetensors"}

        def run(x, last_drift=0.1):
            problem = scasml.Problem(
                dim=3,
                horizon=1.0,
                drift=np.array([0.1, 0.1, last_drift]),
                terminal=lambda x: jnp.sum(x**2),
            )
            return surrogates.pinn(problem, domain=Queries(np.zeros(500), x), **options)

        first = run(x)
        np.testing.assert_array_equal(run(x.copy()).layers[0].weight, first.layers[0].weight)
        for change in (1.0, 1e-12):
            other = x.copy()
            other[250, 1] += change
            with pytest.raises(ScasmlError, match="is of another run"):
                run(other)
        with pytest.raises(ScasmlError, match="is of another run"):
            run(x, last_drift=0.1 + 1e-7)

    def test_another_seed_gives_another_network(self, small):
        one, other = (
            untrained_pinn(small.problem, settings(small.problem), Ball(1.0), seed)
            for seed in (0, 1)
        )
        assert not np.array_equal(one.layers[0].weight, other.layers[0].weight)
        assert not np.array_equal(one.draws, other.draws)

    def test_an_interruption_before_the_first_step(self, tmp_path, monkeypatch):
        """There is nothing to return or to save."""
        heard = lambda: contextlib.nullcontext(SimpleNamespace(heard=True))
        monkeypatch.setattr(adam, "Interruption", heard)
        with pytest.raises(KeyboardInterrupt):
            surrogates.pinn(problems.hjb(3), **SMALL, checkpoint=tmp_path / "run.safetensors")
        assert not any(tmp_path.iterdir())

    @pytest.mark.usefixtures("pythons_handler")
    @pytest.mark.parametrize(("decay", "after"), [(False, 2), (True, 2), (True, 5)])
    def test_an_interrupted_run_resumes_to_the_same_bits(self, tmp_path, decay, after):
        """Ctrl-C comes after the second call of six, or after the fifth, during the decay."""
        loss = lambda p, key: (jnp.sum((p - jax.random.normal(key, (3,))) ** 2), jnp.sum(p**2) + 1)
        schedule = Schedule(6 * STEPS_PER_CALL, 1e-2, (0.9, 0.99), decay)
        run = lambda path, report=False: train(
            jnp.ones(3), loss, schedule, 5, path, {"of": 1}, report
        )
        whole = run(None)
        path = tmp_path / "run.safetensors"
        stop = lambda now: (
            os.kill(os.getpid(), signal.SIGINT) if now.step == after * STEPS_PER_CALL else None
        )
        first = run(path, stop)
        assert first.stopped == "interrupted"
        assert first.step < whole.step
        second = run(path)
        assert (second.step, second.losses, second.residuals) == (
            whole.step,
            whole.losses,
            whole.residuals,
        )
        assert second.stopped == whole.stopped
        for a, b in zip(
            jax.tree.leaves(second.moments), jax.tree.leaves(whole.moments), strict=True
        ):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(second.parameters, whole.parameters)
        assert not np.array_equal(first.parameters, whole.parameters)
        third = run(path)  # the checkpoint is that of the finished run
        np.testing.assert_array_equal(third.parameters, whole.parameters)

    def test_it_stops_when_the_residual_stops_falling(self):
        """The learning rate then goes to 0; this takes 40 % of all steps."""
        loss = lambda p, key: (jnp.sum(p**2), jnp.ones(()))
        run = train(
            jnp.ones(3), loss, Schedule(10_000, 1e-2, (0.9, 0.99), True), 0, None, {}, False
        )
        assert run.stopped == "the residual stopped falling"
        assert run.decay_from == 2 * STALL_WINDOW * STEPS_PER_CALL
        assert run.step == run.end == pytest.approx(run.decay_from / 0.6, abs=STEPS_PER_CALL)
        assert run.rates(Schedule(10_000, 1e-2, (0.9, 0.99), True)).max() == 0

    def test_a_run_whose_residual_falls_is_not_stopped(self):
        loss = lambda p, key: (jnp.sum(p), jnp.exp(jnp.sum(p) / 50))
        schedule = Schedule(40 * STEPS_PER_CALL, 1.0, (0.9, 0.99), True)
        run = train(jnp.ones(1), loss, schedule, 0, None, {}, False)
        assert (run.step, run.stopped) == (40 * STEPS_PER_CALL, "")

    def test_a_time_limit_ends_the_run(self):
        loss = lambda p, key: (jnp.sum(p), jnp.exp(jnp.sum(p) / 500))
        run = train(
            jnp.ones(1), loss, Schedule(10**7, 0.1, (0.9, 0.99), True, 0.5), 0, None, {}, False
        )
        assert run.stopped == "time"
        assert run.step < 10**7

    def test_a_loss_that_is_not_finite_ends_the_run(self):
        loss = lambda p, key: (jnp.sum(p) * jnp.nan, jnp.ones(()))
        run = train(jnp.ones(1), loss, Schedule(1000, 1e-3, (0.9, 0.99), True), 0, None, {}, False)
        assert (run.step, run.stopped) == (STEPS_PER_CALL, "the loss is not finite")


class TestPaper:
    """The settings of sections 5.1 to 5.4 of the paper."""

    @pytest.mark.parametrize(
        ("name", "iterations", "interior", "boundary", "terminal", "rate", "hutchinson"),
        [
            ("convection_diffusion", 10_000, 2500, 100, 160, 7e-4, 0),
            ("burgers", 10_000, 2500, 100, 160, 7e-4, 0),
            ("lqg", 2500, 100, 0, 1000, 1e-3, 0.25),
            ("diffusion_reaction", 2500, 1000, 0, 1000, 1e-3, 0),
        ],
    )
    def test_settings(self, name, iterations, interior, boundary, terminal, rate, hutchinson):
        got = PAPER_SETTINGS[name]
        assert (got.iterations, got.interior, got.boundary, got.terminal) == (
            iterations,
            interior,
            boundary,
            terminal,
        )
        assert (got.rate, got.betas, got.hutchinson) == (rate, (0.9, 0.99), hutchinson)
        assert (got.width, got.depth, got.hard, got.along_paths, got.decay) == (
            50,
            5,
            False,
            0,
            False,
        )

    @pytest.mark.parametrize("name", ["burgers", "lqg"])
    @pytest.mark.slow
    def test_training_runs(self, name):
        model = surrogates.pinn(
            getattr(problems, name)(4), preset="paper", iterations=50, interior=8
        )
        assert [layer.weight.shape for layer in model.layers] == [(50, 5), *[(50, 50)] * 4, (1, 50)]
        assert np.isfinite(model.record["loss"])


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"preset": "best"}, "preset must be one of default, paper, got 'best'"),
            ({"preset": 3}, "preset must be one of"),
            ({"terminal": "firm"}, "terminal must be one of auto, hard, soft, got 'firm'"),
            ({"iterations": 0}, "iterations must be at least 1, got 0"),
            ({"iterations": 10.5}, "iterations must be a whole number, got 10.5"),
            ({"interior": -1}, "interior must be at least 1"),
            ({"width": "wide"}, "width must be a whole number"),
            ({"depth": True}, "depth must be a whole number"),
            ({"rate": 0}, "rate must be positive, got 0"),
            ({"rate": float("nan")}, "rate must be finite"),
            ({"seconds": -1}, "seconds must be positive, got -1"),
            ({"domain": 0}, "domain must be a scasml.Box or a scasml.Ball, got 0"),
            ({"domain": 3}, "domain must be a scasml.Box or a scasml.Ball, got 3"),
            ({"domain": Box((0.0, 0.0), (1.0, 1.0))}, "domain must have 1 or 3 bounds, got 2"),
            ({"seed": -1}, "seed must be at least 0"),
        ],
    )
    def test_the_refusal_is_one_sentence(self, change, words):
        with pytest.raises(ScasmlError) as caught:
            surrogates.pinn(problems.hjb(3), **change)
        assert words in str(caught.value)
        assert str(caught.value).count("\n") == 0

    def test_what_is_no_problem_is_refused(self):
        with pytest.raises(ScasmlError, match=r"problem must be a scasml.Problem, got 'hjb'"):
            surrogates.pinn("hjb")

    def test_the_paper_has_no_preset_for_the_problem(self):
        with pytest.raises(ScasmlError, match='preset "paper" is for'):
            surrogates.pinn(problems.hjb(3), preset="paper")

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: Box(1.0, 0.0), "high must be above low"),
            (lambda: Box("a", 0.0), "low must be a number, or one for each coordinate, got 'a'"),
            (lambda: Box("1", "2"), "low must be a number, or one for each coordinate, got '1'"),
            (lambda: Box(False, True), "low must be a number, or .*, got False"),
            (lambda: Box(np.zeros((2, 2)), 1.0), r"low must be .*, got shape \(2, 2\)"),
            (lambda: Ball("1"), "radius must be a number, got '1'"),
            (lambda: Box(0.0, np.inf), "high must be finite"),
            (lambda: Ball(0.0), "radius must be one positive number"),
            (lambda: Ball((1.0, 2.0)), "radius must be one positive number"),
            (
                lambda: scasml.Problem(dim=2, horizon=1.0, terminal=jnp.sum, domain="box"),
                "domain must be",
            ),
        ],
    )
    def test_domains(self, make, words):
        with pytest.raises(ScasmlError, match=words):
            make()


def test_layer():
    layer = Layer(jnp.array([[1.0, 2.0]]), jnp.array([3.0]))
    np.testing.assert_array_equal(layer(jnp.array([4.0, 5.0])), [17.0])
