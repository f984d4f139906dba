"""What took long to make of a text, kept in the user's cache folder for later runs."""

import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import safetensors
import safetensors.torch
from torch import Tensor

from experiments.rows.row import write_whole

logger = logging.getLogger("pe_zoo")

T = TypeVar("T")
Packed = tuple[dict[str, Tensor], dict[str, str]]
"""Tensors and texts, by name."""
KEPT_FROM_SECONDS = 5.0
"""What took longer than this is kept."""


def cached(key: str, make: Callable[[], T], pack: Callable[[T], Packed], unpack: Callable[[Packed], T]) -> T:
    """Return what was made under this key before, or make it; damaged files are made again."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pe_zoo"
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.safetensors"
    if path.is_file():
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                return unpack(({name: file.get_tensor(name) for name in file.keys()}, file.metadata()))  # noqa: SIM118
        except (safetensors.SafetensorError, KeyError, ValueError, OSError):
            logger.warning("%s is damaged and is made again", path)
    started = time.perf_counter()
    made = make()
    if time.perf_counter() - started >= KEPT_FROM_SECONDS:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, safetensors.torch.save(*pack(made)))
        except OSError as error:  # a home that cannot be written to is no reason not to train
            logger.warning("the text is not cached for the next run: %s", error)
    return made
