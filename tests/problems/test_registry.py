"""Tests of the registry of the zoo: its own problems, and a problem defined outside the library."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from test_problems import assert_one_sentence
from typer.testing import CliRunner

import scasml
from scasml import _cli as cli
from scasml import problems, surrogates
from scasml._support.errors import ArgumentError
from scasml.problems import zoo
from scasml.problems._zoo import REGISTRY

ZOO = problems.catalogue()

# The dimension and the horizon of each problem by default, in the order of `scasml problems`.
DEFAULTS = {
    "convection_diffusion": (10, 0.5),
    "burgers": (20, 0.5),
    "lqg": (100, 0.5),
    "diffusion_reaction": (100, 1.0),
    "hjb": (100, 1.0),
    "allen_cahn": (100, 0.3),
    "sine_gordon": (100, 0.3),
    "burgers_type": (50, 0.2),
    "quadratic_gradient": (100, 1.0),
    "hjb_lin": (100, 1.0),
    "black_scholes_barenblatt": (100, 1.0),
    "default_risk": (100, 1.0),
    "different_rates": (100, 0.5),
    "heston": (2, 1.0),
    "ornstein_uhlenbeck": (10, 1.0),
    "allen_cahn_variable": (20, 0.5),
    "black_scholes_basket": (100, 1.0),
}


def test_catalogue_is_complete_and_in_order() -> None:
    assert list(ZOO) == list(DEFAULTS)
    assert set(ZOO) <= set(problems.__all__)


@pytest.mark.parametrize("name", ZOO)
def test_constructor_conforms(name: str) -> None:
    make = ZOO[name]
    assert make is getattr(problems, name)
    parameters = inspect.signature(make).parameters
    assert all(p.default is not p.empty for p in parameters.values())
    headline, *rest = (inspect.getdoc(make) or "").splitlines()
    assert headline.endswith(".")
    assert "reference" in headline or "exact" in headline
    assert not rest or rest[0] == ""
    problem = make()
    assert problem is make()
    assert problem.name == inspect.unwrap(make)().name == name
    assert problem.parameters == tuple((p.name, p.default) for p in parameters.values())
    assert ("dim" in parameters) == (name != "heston")
    assert (problem.dim, problem.horizon) == DEFAULTS[name]
    assert problem.x0.shape == (problem.dim,)
    assert np.isfinite(problem.exact(0.0, problem.x0))


@pytest.fixture
def registry(no_disk_cache: None) -> Iterator[None]:
    """Remove the problems that a test registers; the command line caches no programs."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def define_heat():
    """Register a problem as a user of the library would."""

    @zoo
    def heat(dim: int = 2, horizon: float = 0.5):
        """Heat equation with a source, exact solution u = |x|^2 + (d - 1) (T - t)."""
        return scasml.Problem(
            dim=dim,
            horizon=horizon,
            terminal=lambda x: x @ x,
            nonlinearity=lambda t, x, u, z: -jnp.ones_like(u),
            reference=scasml.Reference(
                lambda t, x: np.sum(x**2, axis=-1) + (x.shape[-1] - 1) * (horizon - t),
                1e-12,
                "exact",
            ),
        )

    return heat


METHOD = scasml.Picard(1, 8)
OPTIONS = ("--levels", "1", "--samples", "8", "--replicates", "32")


def command(*arguments: str) -> str:
    """Run the command line in this process and return what it prints."""
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.usefixtures("registry")
def test_problem_from_outside_the_library(tmp_path: Path) -> None:
    """`correct` and the command line take a problem that `zoo` registered.

    The answer agrees with the exact solution within 6 standard errors: a false-fail rate of 2e-9.
    """
    heat = define_heat()
    problem = heat(horizon=0.25)
    assert problem is heat(2, 0.25)
    assert (problem.name, problem.parameters) == ("heat", (("dim", 2), ("horizon", 0.25)))
    assert list(problems.catalogue()) == [*ZOO, "heat"]
    answer = scasml.correct(problem, None, 0.0, problem.x0, method=METHOD, replicates=32)
    assert abs(answer.raw_value - 0.25) <= 6 * answer.stderr + answer.bias
    assert "\nheat " in command("problems")
    file = str(tmp_path / "answers.npz")
    arguments = ("correct", "heat", "--param", "horizon=0.25", "--surrogate", "none", "-o", file)
    command(*arguments, *OPTIONS)
    with np.load(file) as saved:
        assert saved["value"] == answer.value


@pytest.mark.usefixtures("registry")
def test_surrogate_of_a_problem_from_outside_the_library(tmp_path: Path) -> None:
    """`solve`, `surrogates.load` and `scasml correct` take a trained surrogate of such a problem.

    The answer agrees with the exact solution within 6 standard errors: a false-fail rate of 2e-9.
    """
    problem = define_heat()(horizon=0.25)
    training = {"iterations": 2, "width": 4, "depth": 1, "interior": 8, "terminal": "soft"}
    options = {"training": training, "method": METHOD, "replicates": 32}
    answer = scasml.solve(problem, 0.0, problem.x0, **options)
    assert abs(answer.raw_value - 0.25) <= 6 * answer.stderr + answer.bias
    path, file = str(tmp_path / "heat.safetensors"), str(tmp_path / "answers.npz")
    answer.preparation.surrogate.save(path)
    assert surrogates.load(path).problem is problem
    command("correct", path, "-o", file, *OPTIONS)
    with np.load(file) as saved:
        assert saved["value"] == answer.value


@pytest.mark.usefixtures("registry")
def test_problem_built_by_another_constructor() -> None:
    """The cached problem of the other constructor keeps its name and its parameters."""

    @zoo
    def long_hjb(dim: int = 5):
        """HJB with a long horizon."""
        return problems.hjb(dim, horizon=4.0)

    assert (long_hjb().name, long_hjb().parameters) == ("long_hjb", (("dim", 5),))
    assert problems.hjb(5, 4.0).name == "hjb"
    assert problems.hjb(5, 4.0).parameters == (("dim", 5), ("horizon", 4.0))


@pytest.mark.usefixtures("registry")
def test_registration_is_refused() -> None:
    with pytest.raises(ArgumentError) as taken:

        @zoo
        def hjb(dim: int = 5):
            """Another problem with the name of one of the zoo."""

    assert_one_sentence(str(taken.value), "constructor hjb", "scasml.problems._hjb.hjb")
    with pytest.raises(ArgumentError) as undocumented:
        zoo(lambda dim=5: problems.hjb(dim))
    assert_one_sentence(str(undocumented.value), "constructor <lambda>", "got none")
    with pytest.raises(ArgumentError) as required:

        @zoo
        def sized(dim: int):
            """A problem without a default dimension."""

    assert_one_sentence(str(required.value), "constructor sized", "got none for dim")
    assert problems.catalogue() == ZOO


@pytest.mark.usefixtures("registry")
def test_the_same_function_may_be_defined_again() -> None:
    """A notebook cell or a reloaded module registers its function again."""
    first, second = define_heat(), define_heat()
    assert first is not second
    assert problems.catalogue()["heat"] is second
