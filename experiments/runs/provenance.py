"""What a run was made with: versions of packages, and the commit of this code."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("pe-zoo", "numpy", "pandas", "scipy", "hydra-core", "omegaconf", "safetensors", "tokenizers", "datasets")
"""Beside torch and Python: what computes, composes, or makes data."""


def provenance() -> dict[str, object]:
    """Return ``python``, ``packages`` (name -> version, of those installed), ``commit`` and ``command``."""
    return {
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": commit(),
        "command": shlex.join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """Return the commit of this code, ``-dirty`` if it was changed; None outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe"]
    command += ["--always", "--dirty", "--exclude=*", "--abbrev=12"]
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10, env=env).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
