"""Strict JAX for every test and every thread: rank promotion raises."""

import signal

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def programs_anew():
    """For a planted fault: a program that was compiled without it would hide it, and one that was compiled with it would fail others."""
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.fixture
def pythons_handler():
    """A background shell may have left SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)
