"""The command line: the same words as in Python, with files for arrays. Needs the extra `cli`."""

from .app import app

__all__ = ["app"]
