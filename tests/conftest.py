"""Strict JAX for every test and every thread: rank promotion raises."""

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
