"""Randomness: one stream for each purpose, all drawn from the run's seed and nothing else."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator


def number_for(seed: int, purpose: str) -> int:
    """Return a seed for one purpose, whose stream does not depend on how much another was used."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:7], "big")


def stream(seed: int, purpose: str) -> Generator:
    """Return a generator of its own, on the CPU: data are the same on every device."""
    return Generator().manual_seed(number_for(seed, purpose))


@contextmanager
def initialising(seed: int, purpose: str) -> Iterator[None]:
    """Initialise parameters from a stream within; ``nn.init`` and constructors know only the global state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number_for(seed, purpose))
        yield
