"""The registry of benchmarks lists the modules that can be run, and no others."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from scasml import _bench


def test_every_module_with_a_main_is_registered():
    folder = Path(_bench.__file__).parent
    runnable = {
        path.stem
        for path in folder.glob("[!_]*.py")
        if "def main(" in path.read_text(encoding="utf-8")
    }
    assert runnable == set(_bench.names())


@pytest.mark.parametrize("name", _bench.names())
def test_main_takes_arguments_if_the_registry_says_so(name):
    main = importlib.import_module(f"scasml._bench.{name}").main
    assert bool(inspect.signature(main).parameters) == bool(_bench.BENCHMARKS[name].arguments)


def test_an_unknown_name_is_refused():
    command = [sys.executable, "-m", "scasml._bench", "speed"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert ", ".join(_bench.names()) in refused.stderr
