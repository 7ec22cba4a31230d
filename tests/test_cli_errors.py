"""The command line refuses bad input in one line, before a model is run or a path is simulated."""

from pathlib import Path

import pytest

from bad_input_case import fail_if_reached
from cli_case import ZOO, check_refused
from scasml.execution import LocalExecutor

pytestmark = pytest.mark.usefixtures("no_disk_cache")
FILES = {
    "model.py": "from helpers import rough as u\n",
    "raises.py": "raise RuntimeError('No weights here. Look elsewhere.')\n",
    "leaves.py": "import sys\nsys.exit(0)\n",
    "broken.py": "def u(t, x) return 0\n",
    "number.py": "u = 3\n",
    "vector.py": "def u(t, x):\n    return x\n",
    "net.py": "import equinox as eqx, jax\nu = eqx.nn.MLP(4, 1, 5, 1, key=jax.random.key(0))\n",
    "marks.py": "open('mark', 'w').close()\ndef u(t, x):\n    return t\n",
    "points.csv": "t,x1,x2,x3\n0,0,0,0\n",
    "text.csv": "t,x1,x2,x3\n0,zero,0,0\n",
    "narrow.csv": "0,0,0\n",
    "nan.csv": "0,0,0,0\n0,nan,0,0\n",
    "late.csv": "0,0,0,0\n0.75,0,0,0\n",
}
MODEL = "--surrogate model.py:u"
HESTON = "correct heston --surrogate none"
ERRORS = {
    "unknown-problem": (f"correct burger {MODEL}", ("problem", "'burger'", "burgers")),
    "dim-of-a-fixed-one": (f"{HESTON} --dim 3", ("dim", "heston", "got 3")),
    "steps": (f"{HESTON} --steps -2", ("steps", "got -2")),
    "steps-a-word": (f"{HESTON} --steps few", ("steps", "got 'few'")),
    "scheme": (f"{HESTON} --scheme heun", ("scheme", "got 'heun'")),
    "param-without-value": (f"correct burgers {MODEL} --param sigma0", ("param", "'sigma0'")),
    "param-unknown": (
        f"correct burgers {MODEL} --param sigma=1",
        ("param", "'sigma=1'", "sigma0"),
    ),
    "param-not-a-number": (
        f"correct burgers {MODEL} --param sigma0=big",
        ("param sigma0", "float", "'big'"),
    ),
    "param-not-whole": (
        f"correct lqg {MODEL} --param seed=1.5",
        ("param seed", "int", "'1.5'"),
    ),
    "param-out-of-range": (f"correct burgers {MODEL} --param sigma0=-1", ("sigma0", "-1.0")),
    "dim-0": (f"correct hjb --dim 0 {MODEL}", ("dim", "got 0")),
    "model-missing": (f"{ZOO} --surrogate nowhere.py:u", ("surrogate", "'nowhere.py'")),
    "model-is-a-folder": (f"{ZOO} --surrogate folder.py:u", ("surrogate", "'folder.py'")),
    "model-without-name": (f"{ZOO} --surrogate model.py", ("surrogate", "'model.py'")),
    "model-not-python": (f"{ZOO} --surrogate points.csv:u", ("surrogate", "'points.csv:u'")),
    "model-raises": (
        f"{ZOO} --surrogate raises.py:u",
        ("surrogate", "'raises.py'", "RuntimeError: No weights here"),
    ),
    "model-leaves": (
        f"{ZOO} --surrogate leaves.py:u",
        ("surrogate", "'leaves.py'", "SystemExit"),
    ),
    "model-broken": (
        f"{ZOO} --surrogate broken.py:u",
        ("surrogate", "'broken.py'", "SyntaxError"),
    ),
    "name-undefined": (f"{ZOO} --surrogate model.py:v", ("surrogate", "'model.py'", "'v'")),
    "name-not-callable": (f"{ZOO} --surrogate number.py:u", ("surrogate", "got int")),
    "vector": (f"{ZOO} --surrogate vector.py:u", ("surrogate", "shape (3,)")),
    "network-without-inputs": (f"{ZOO} --surrogate net.py:u", ("inputs", "got None")),
    "inputs-unknown": (f"{ZOO} {MODEL} --inputs both", ("inputs", "'both'")),
    "points-missing": (f"{ZOO} {MODEL} --points nowhere.csv", ("points", "'nowhere.csv'")),
    "points-text": (f"{ZOO} {MODEL} --points text.csv", ("points", "line 2", "'zero'")),
    "points-width": (f"{ZOO} {MODEL} --points narrow.csv", ("points", "shape (1, 3)", "--t")),
    "points-nan": (f"{ZOO} {MODEL} --points nan.csv", ("x", "point 1")),
    "points-late": (f"{ZOO} {MODEL} --points late.csv", ("t", "[0, 0.5]", "0.75 at point 1")),
    "t-outside": (f"{ZOO} {MODEL} --t 2", ("t", "[0, 0.5]", "got 2.0 at point 0")),
    "t-nan": (f"{ZOO} {MODEL} --t nan", ("t", "got nan at point 0")),
    "output-ending": (
        f"{ZOO} --surrogate marks.py:u -o answers.xlsx",
        ("output", "'.xlsx'"),
    ),
    "output-folder": (
        f"{ZOO} --surrogate marks.py:u -o nowhere/answers.csv",
        ("output", "nowhere'"),
    ),
    "levels": (f"{ZOO} {MODEL} --levels 0", ("levels", "got 0")),
    "method": (f"{ZOO} {MODEL} --method euler", ("method", "euler", "linearised")),
    "option-of-another-method": (
        f"{ZOO} {MODEL} --method linearised --levels 3",
        ("levels", "Linearised", "got 3"),
    ),
    "samples": (f"{ZOO} {MODEL} --samples -3", ("samples", "got -3")),
    "time": (f"{ZOO} {MODEL} --time later", ("time", "'later'")),
    "nodes": (f"{ZOO} {MODEL} --nodes 3", ("nodes", "3")),
    "gradient": (f"{ZOO} {MODEL} --gradient none", ("gradient", "'none'")),
    "threshold": (f"{ZOO} {MODEL} --threshold -1", ("threshold", "-1.0")),
    "hutchinson": (f"{ZOO} {MODEL} --hutchinson 9", ("laplacian", "9 of only 3")),
    "replicates": (f"{ZOO} {MODEL} --replicates 0", ("replicates", "got 0")),
    "seed": (f"{ZOO} {MODEL} --seed -1", ("seed", "got -1")),
    "dtype": (f"{ZOO} {MODEL} --dtype float16", ("dtype", "'float16'")),
    "bench": ("bench speed", ("bench", "'speed'")),
}


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    """Work in a new folder with models and files of points, most of them bad."""
    for name, text in FILES.items():
        (here / name).write_text(text)
    (here / "folder.py").mkdir()
    return here


@pytest.fixture(autouse=True)
def no_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the default executor, which the command line uses, is asked for anything."""
    for name in ("run", "map"):
        monkeypatch.setattr(LocalExecutor, name, fail_if_reached)


@pytest.mark.parametrize(("command", "fragments"), ERRORS.values(), ids=ERRORS)
def test_one_line(folder, monkeypatch, capsys, command, fragments):
    check_refused(monkeypatch, command, *fragments)
    assert capsys.readouterr() == ("", "")
    assert not (folder / "mark").exists(), "the model ran before the output was checked"


def test_good_input_is_not_refused(monkeypatch):
    """Good input reaches the executor, so the tests above would notice a simulation."""
    with pytest.raises(pytest.fail.Exception, match="reached the simulation"):
        check_refused(monkeypatch, f"{ZOO} {MODEL} --replicates 2")
