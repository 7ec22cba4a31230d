"""The examples of `docs/extending.md` on the command line, by `scasml --import MODULE`.

The examples are defined outside of the library, each in less than 30 lines (test_markdown.py). The
method is "auto", except for the scheme, which is an option of the other methods. An estimator and
an executor are objects of Python, which the command line cannot name.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import scasml
from cli_case import check_refused, read, run
from scasml.paths import SCHEMES
from scasml.problems._zoo import REGISTRY
from scasml.surrogates import ADAPTERS, KINDS
from test_markdown import examples

FILES = {
    "model.py": "import numpy as np\nu = np.polynomial.Polynomial([46.0])\n",
    "points.csv": "0,3,3,3,3,3\n",
    "named.py": '''
import decaying_noise, heun
from scasml.problems import zoo

@zoo
def decaying():
    """The problem of the example of a path law."""
    return decaying_noise.problem

@zoo
def relaxing():
    """The problem of the example of a scheme."""
    return heun.problem
''',
}
DECAYING = 45 + 5 * (1 - np.exp(-2.0)) / 2  # the solution of `decaying` at the point
# A step h = 1/2 of Heun's method multiplies the state by 1 - h + h^2/2 and the noise by 1 - h/2.
# This is the mean of |X|^2 after two steps. The solution is 6.3, and Euler's method gives 3.1.
RELAXING = 45 * 0.625**4 + 5 * 0.3**2 * 0.5 * 0.75**2 * (1 + 0.625**2)


@pytest.fixture(scope="module", autouse=True)
def folder(no_disk_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in a folder with the examples, and forget afterwards what they register."""
    here = tmp_path_factory.mktemp("outside")
    for name, code in (examples() | FILES).items():
        (here / name).write_text(code)
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        patch.dict(SCHEMES),
        patch.dict(REGISTRY),
        patch.dict(KINDS),
        patch.dict(ADAPTERS),
    ):
        monkeypatch.chdir(here)
        monkeypatch.setattr(sys, "path", list(sys.path))
        # The examples end with a call of `correct`, which is not to be simulated here.
        monkeypatch.setattr(scasml, "correct", lambda *arguments, **options: None)
        yield
    for file in here.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.mark.parametrize(
    ("command", "value", "surrogate", "steps"),
    [
        ("--import named correct decaying --surrogate none", DECAYING, 0, 0),
        (
            "--import named correct relaxing --surrogate none "
            "--method picard --levels 1 --samples 4096 --scheme heun --steps 2",
            RELAXING,
            0,
            2,
        ),
        ("--import named --import parabola solve decaying --kind parabola", DECAYING, 45, 0),
        (
            "--import named --import use_polynomial correct decaying --surrogate model.py:u",
            DECAYING,
            46,
            0,
        ),
    ],
    ids=["path law and zoo problem", "scheme", "kind", "adapter"],
)
def test_an_extension(command, value, surrogate, steps):
    """The answer is right within 2 %, which is more than 10 standard errors.

    The false-fail rate is below 1e-9. The surrogates are wrong by more than 2.4 %.
    """
    run(f"{command} --points points.csv --replicates 2 -o answer.npz")
    answer = read(Path("answer.npz"))
    assert answer["raw_value"] == pytest.approx(value, rel=0.02)
    assert answer["surrogate"] == pytest.approx(surrogate)
    assert answer["steps"] == steps


def test_a_module_that_does_not_exist(monkeypatch):
    check_refused(monkeypatch, "--import nowhere problems", "import", "'nowhere'")
