"""Fixtures of all tests. JAX is strict in every test and thread: rank promotion raises an error."""

import signal

import jax
import pytest

from scasml.execution import forget_programs

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    """Compute in float64 by default."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def programs_anew():
    """Forget all compiled programs before and after a test that plants a fault.

    A program compiled without the fault would hide it. A program compiled with it would break
    other tests.
    """
    forget_programs()
    jax.clear_caches()
    yield
    forget_programs()
    jax.clear_caches()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a new, empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def no_disk_cache(tmp_path_factory):
    """Keep the command line from giving this process a disk cache of compiled programs.

    The command leaves the setting alone if a folder is named. The folder stays empty here, unless
    the user named one for the tests.
    """
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("cache")),
        "jax_enable_compilation_cache": False,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    if before["jax_compilation_cache_dir"] is None:
        for name, value in settings.items():
            jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture
def pythons_handler():
    """Install Python's own handler of SIGINT, which a background shell may have disabled."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)
