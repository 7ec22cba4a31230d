"""The command `scasml`, and `python -m scasml`."""

import sys

from ._support.errors import ScasmlError, missing_extra


def main() -> None:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.exit(f"error: {missing_extra('typer and rich', 'cli', 'The command line')}")
    from ._cli import app

    try:
        app()
    except ScasmlError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
