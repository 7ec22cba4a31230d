"""Surrogates: those of others, wrapped, and our own."""

from ..surrogate import AbstractSurrogate, wrap

__all__ = ["AbstractSurrogate", "wrap"]
