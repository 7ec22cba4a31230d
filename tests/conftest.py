"""Strict JAX for every test: rank promotion raises."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _strict_jax():
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
