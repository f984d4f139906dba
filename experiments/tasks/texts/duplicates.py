"""Remove from the test text what stands verbatim in the training text, so that no score is one of memory."""

from dataclasses import replace
from itertools import accumulate

import numpy as np

from experiments.tasks.texts.corpus import Corpus

WINDOW = 50
"""Bytes that must stand in the training text in one piece; Lee et al. (2022, arXiv:2107.06499) take 50 tokens."""
CHUNK = 1 << 18
TABLE_BITS = 24
MIX, BASE = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
"""Odd constants of SplitMix64 and of Steele and Vigna (2022), arXiv:2001.05304."""
Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def without_duplicates(corpus: Corpus, *, joined: bool) -> Corpus:
    """Cut every window of `WINDOW` bytes that stands in the training split out of the test split; the rest closes up.

    ``joined``: a window may span several documents. The provenance gains ``test_bytes_removed``.
    """
    test, train = corpus.splits["test"], corpus.splits["train"]
    # The marks are not in UTF-8, and one for each side: a window across the end of a document equals no other.
    gap = 0 if joined else 1
    keep = ~_repeated((gap * b"\xfe").join(test), (gap * b"\xff").join(train))
    kept = []
    for document, end in zip(test, accumulate(len(document) + gap for document in test), strict=True):
        here = keep[end - gap - len(document) : end - gap]
        kept.append(document if here.all() else np.frombuffer(document, np.uint8)[here].tobytes())
    removed = sum(map(len, test)) - sum(map(len, kept))
    splits = corpus.splits | {"test": [text for text, whole in zip(kept, test, strict=True) if text or not whole]}
    return replace(corpus, splits=splits, provenance=corpus.provenance | {"test_bytes_removed": removed})


def _repeated(test: bytes, train: bytes) -> Mask:
    """Return which bytes of ``test`` are in a window that stands in ``train``, ``(len(test),)``."""
    known, place = np.unique(_hashes(test), return_inverse=True)
    table = np.zeros(1 << TABLE_BITS, dtype=bool)  # most windows are in none of it, which spares them the search
    table[known >> np.uint64(64 - TABLE_BITS)] = True
    found = np.zeros(len(known) + 1, dtype=bool)
    for start in range(0, len(train), CHUNK):
        hashes = _hashes(train[start : start + CHUNK + WINDOW - 1])
        likely = hashes[table[hashes >> np.uint64(64 - TABLE_BITS)]]
        at = np.searchsorted(known, likely)
        found[at[known[np.minimum(at, len(known) - 1)] == likely]] = True
    begins = np.flatnonzero(found[place])
    depth = np.zeros(len(test) + 1, dtype=np.int32)
    depth[begins] += 1
    depth[begins + WINDOW] -= 1
    return depth[:-1].cumsum() > 0


def _hashes(text: bytes) -> Hashes:
    """Return a hash of each window of `WINDOW` bytes: a polynomial modulo 2^64, by doubling."""
    values = (np.frombuffer(text, np.uint8).astype(np.uint64) + np.uint64(1)) * np.uint64(MIX)
    hashes, done, size = np.zeros(max(0, len(text) - WINDOW + 1), dtype=np.uint64), 0, 1
    while done < WINDOW:
        if WINDOW & size:
            hashes = hashes * _power(size) + values[done : done + len(hashes)]
            done += size
        values = values[:-size] * _power(size) + values[size:]
        size *= 2
    return hashes


def _power(exponent: int) -> np.uint64:
    return np.uint64(pow(BASE, exponent, 1 << 64))
