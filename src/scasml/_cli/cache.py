"""The disk cache of compiled programs, which every command uses."""

import os
import sys
from pathlib import Path

# Programs that compile in fewer seconds than this are not kept.
SHORTEST_COMPILATION = 0.3


def cache_folder() -> Path:
    """Return the folder for compiled programs, in the usual place of each operating system."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "scasml" / "jax"


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs in `cache_folder`, unless the user configured a folder."""
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None:
        folder = cache_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return  # without a writable home, programs are compiled again at every start
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION)
