"""Imports point only to the left, optional packages are imported when they are asked for, and their absence is said in one sentence."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import scasml

SOURCE = Path(scasml.__file__).parent

# Data flows to the right, imports point to the left. Rooms on one line may not import one another.
ORDER = [
    ["errors"],
    ["precision", "structure"],
    ["operations"],
    ["coefficients"],
    ["paths", "domain"],
    ["problem"],
    ["problems", "surrogate", "roughness", "ito"],
    ["generator"],
    ["defect", "linearisation"],
    ["times", "sampling"],
    ["estimators"],
    ["statistics", "plots", "tables", "progress", "interruption"],
    ["budget", "safety", "diagnosis", "rounding"],
    ["engine", "surrogates", "allocation"],
    ["correction", "query", "steepness"],
    ["setting"],
    ["pilots"],
    ["plan"],
    ["choice", "tally"],
    ["correct"],
    ["solve"],
    ["cli"],
    ["__main__"],
    ["__init__"],
]
PLACE = {room: place for place, rooms in enumerate(ORDER) for room in rooms}


def module_name(path):
    """`scasml/engine/local.py` is ("engine", "local"), `scasml/engine/__init__.py` is ("engine", "__init__")."""
    return (*path.relative_to(SOURCE).parts[:-1], path.stem)


def imported_rooms(name, text):
    """The rooms of scasml that a module's text imports, anywhere in it, inside functions too."""
    package = ("scasml", *name[:-1])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            # `from . import tables` names a room; `from .tables import write` has named it already.
            targets = (
                [(*base, alias.name) for alias in node.names] if base == ("scasml",) else [base]
            )
        else:
            continue
        for target in targets:
            if target[0] == "scasml":
                yield target[1] if len(target) > 1 and target[1] in PLACE else "__init__"


def rightward(name, text):
    """Imports of a module that do not point to the left; imports within its own room are its own affair."""
    room = name[0]
    return [
        f"{'.'.join(name)} imports {other}"
        for other in imported_rooms(name, text)
        if other != room and PLACE[other] >= PLACE[room]
    ]


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def test_every_room_has_a_place():
    assert {name[0] for name in MODULES} <= set(PLACE)


@pytest.mark.parametrize("name", MODULES, ids=".".join)
def test_imports_point_to_the_left(name):
    assert rightward(name, MODULES[name].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("defect",), "from .estimators import Picard"),
        (("defect",), "from . import errors, estimators"),
        (("defect",), "def f():\n    from .engine.local import Kernel"),
        (("defect",), "import scasml.correct"),
        (("defect",), "from scasml.correct import correct"),
        (("defect",), "from scasml import correct"),
        (("defect",), "import scasml"),
        (("defect",), "from . import Picard"),
        (("estimators", "picard"), "from ..engine import Kernel"),
        (("estimators", "picard"), "from .. import cli"),
        (("tables",), "try:\n    from .statistics import Moments\nexcept ImportError:\n    pass"),
        (("surrogate", "callables"), "if True:\n    from ..problems import hjb"),
    ],
)
def test_a_planted_import_is_seen(name, text):
    assert len(rightward(name, text)) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            ("estimators", "picard"),
            "from ..problem import AbstractLaw\nfrom .base import Replicate\nfrom . import base",
        ),
        (
            ("correction",),
            "from . import plots, tables\nimport numpy.linalg\nfrom .errors import ArgumentError",
        ),
        (("__init__",), "from . import problems\nfrom .cli import app\nfrom .__main__ import main"),
        (("cli",), "from scasml.correct import correct\nimport scasmlish"),
    ],
)
def test_a_proper_import_is_not(name, text):
    assert rightward(name, text) == []


def run(program):
    """A fresh process, warnings as errors; what it prints last is JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().split("\n")[-1])


LAZY = [
    "matplotlib",
    "typer",
    "rich",
    "xarray",
    "pandas",
    "folx",
    "optax",
    "scipy.stats",
    "torch",
    "flax",
    "dask",
]


def test_import_is_light():
    loaded = run(
        f"import json, sys, scasml; print(json.dumps([name for name in {LAZY} if name in sys.modules]))"
    )
    assert loaded == []


WITHOUT = """
import json, runpy, sys
for name in ("rich", "typer", "matplotlib", "xarray"):
    sys.modules[name] = None  # as if it were not installed
import scasml
problem = scasml.Problem(dim=2, horizon=1.0, terminal=lambda x: x[0])
answer = scasml.correct(problem, None, 1.0, [1.0, 2.0])
calls = {
    "plot": answer.plot,
    "io": answer.to_xarray,
    "cli": lambda: scasml.correct(problem, None, 1.0, [1.0, 2.0], progress=True),
    "main": lambda: runpy.run_module("scasml", run_name="__main__"),
}
said = {}
sys.argv = ["scasml", "problems"]
for name, call in calls.items():
    try:
        call()
    except (scasml.ScasmlError, SystemExit) as error:
        said[name] = [type(error).__name__, isinstance(error, ImportError), str(error)]
print(json.dumps(said))
"""


def test_without_the_extras():
    """Everything else works, and what does not names the command that mends it; `python -m scasml` leaves by it."""
    said = run(WITHOUT)
    assert set(said) == {"plot", "io", "cli", "main"}
    for name, (kind, is_import_error, text) in said.items():
        assert (kind, is_import_error) == (
            ("SystemExit", False) if name == "main" else ("MissingExtraError", True)
        )
        assert f"pip install 'scasml[{'cli' if name == 'main' else name}]'" in text
        assert "\n" not in text
        assert text.endswith(".")
        assert ". " not in text
