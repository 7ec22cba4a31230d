"""The entry of `python -m scasml._bench NAME [ARGUMENT ...]`: runs one benchmark."""

import importlib
import sys

from . import names


def main(*arguments: str) -> None:
    """Run the benchmark that the first argument names, with the other arguments.

    Raises SystemExit, with the names of all benchmarks, if there is no such benchmark.
    """
    if not arguments or arguments[0] not in names():
        raise SystemExit(
            f"usage: python -m scasml._bench NAME [ARGUMENT ...], where NAME is one of "
            f"{', '.join(names())}"
        )
    module = importlib.import_module(f".{arguments[0]}", __package__)
    module.main(*arguments[1:])


if __name__ == "__main__":
    main(*sys.argv[1:])
