"""Imports point upward in the tree, optional packages are imported where they are used.

The absence of an optional package is reported in one sentence with the pip command that helps.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import scasml

SOURCE = Path(scasml.__file__).parent

# A module may import from its own package and from the packages before it in this list.
ORDER = [
    "_support",
    "_io",
    "_sampling",
    "paths",
    "_equations",
    "problems",
    "estimators",
    "execution",
    "surrogates",
    "_planning",
    "_request",
    "_answer",
    "_session",
    "_api",
    "__init__",
    "_bench",
    "_cli",
    "__main__",
]
PLACE = {package: place for place, package in enumerate(ORDER)}


def module_name(path):
    """`scasml/execution/local.py` is ("execution", "local")."""
    return (*path.relative_to(SOURCE).parts[:-1], path.stem)


def imported_packages(name, text):
    """The packages of scasml that the text of a module imports, also inside functions."""
    package = ("scasml", *name[:-1])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            # `from . import problems` names a package; `from .problems import hjb` did so already.
            is_root = base == ("scasml",)
            targets = [(*base, alias.name) for alias in node.names] if is_root else [base]
        else:
            continue
        for target in targets:
            if target[0] == "scasml":
                yield target[1] if len(target) > 1 and target[1] in PLACE else "__init__"


def downward(name, text):
    """Imports of a module that do not point upward; imports within its package are allowed."""
    package = name[0]
    return [
        f"{'.'.join(name)} imports {other}"
        for other in imported_packages(name, text)
        if other != package and PLACE[other] >= PLACE[package]
    ]


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def test_every_package_has_a_place():
    assert {name[0] for name in MODULES} == set(PLACE)


@pytest.mark.parametrize("name", MODULES, ids=".".join)
def test_imports_point_upward(name):
    assert downward(name, MODULES[name].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("_equations", "defect"), "from ..estimators import Picard"),
        (("_equations", "defect"), "from .. import problems"),
        (("_equations", "defect"), "def f():\n    from ..execution.local import LocalExecutor"),
        (("_equations", "defect"), "import scasml._api"),
        (("_equations", "defect"), "from scasml._api import correct"),
        (("_equations", "defect"), "from scasml import correct"),
        (("_equations", "defect"), "import scasml"),
        (("estimators", "picard"), "from ..execution import Program"),
        (
            ("_io", "tables"),
            "try:\n    from ..execution import Rows\nexcept ImportError:\n    pass",
        ),
        (("problems", "_hjb"), "if True:\n    from ..surrogates import wrap"),
    ],
)
def test_a_planted_import_is_seen(name, text):
    assert len(downward(name, text)) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("estimators", "picard"), "from .._equations.base import Solution\nfrom . import base"),
        (("_answer", "correction"), "from .._io import plots, tables\nimport numpy.linalg"),
        (("__init__",), "from . import problems\nfrom ._api import correct"),
        (("_cli", "app"), "from scasml._api import correct\nimport scasmlish"),
    ],
)
def test_a_proper_import_is_not(name, text):
    assert downward(name, text) == []


def functions_named_like_their_module(name, text):
    """Public functions of a module that have its name: they would hide the module."""
    functions = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return [function for function in functions if function == name[-1]]


@pytest.mark.parametrize("name", MODULES, ids=".".join)
def test_no_module_is_named_after_its_function(name):
    assert functions_named_like_their_module(name, MODULES[name].read_text("utf-8")) == []


def test_a_planted_function_is_seen():
    assert functions_named_like_their_module(("_equations", "ito"), "def ito():\n    pass")


# The docstring of a module says what it contains, what comes in and what goes out. The rest belongs
# to the class or function that it explains.
MOST_DOCSTRING_LINES = 5


def has_short_docstring(text):
    """Whether a module has a docstring, of at most `MOST_DOCSTRING_LINES` lines."""
    docstring = ast.get_docstring(ast.parse(text))
    return bool(docstring) and len(docstring.split("\n")) <= MOST_DOCSTRING_LINES


@pytest.mark.parametrize("name", MODULES, ids=".".join)
def test_a_module_has_a_short_docstring(name):
    assert has_short_docstring(MODULES[name].read_text("utf-8"))


def test_a_planted_docstring_is_seen():
    assert not has_short_docstring("x = 1")
    assert has_short_docstring('"""1\n\n3\n4\n5\n"""')
    assert not has_short_docstring('"""1\n\n3\n4\n5\n6\n"""')


def run(program):
    """Run a program in a fresh process, with warnings as errors; its last line is JSON."""
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
        f"import json, sys, scasml; print(json.dumps([name for name in {LAZY} if name in "
        "sys.modules]))"
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
    """Everything else works. What does not work names the pip command that helps."""
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
