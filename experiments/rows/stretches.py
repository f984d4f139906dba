"""How a text is cut: the pieces of every length come from the same stretches, as far as they fit into one."""

import math

ENOUGH = 50
"""Pieces of a length below which they are few."""
STRETCH = 8
"""Training lengths of a stretch: as far as quality is compared."""


def stretch_for(multiple: float) -> int:
    """Return the training lengths of a stretch from which pieces of a multiple are cut.

    >>> [stretch_for(multiple) for multiple in (1, 8, 9, 32.5)]
    [8, 8, 16, 64]
    """
    return STRETCH * 2 ** max(0, math.ceil(math.log2(multiple / STRETCH)))


def samples_for(multiple: float) -> int:
    """Return the fewest ``samples``, pieces of the training length, that give enough pieces of a multiple of it.

    >>> [samples_for(multiple) for multiple in (1, 4, 6, 8, 16)]
    [50, 200, 398, 400, 800]
    """
    stretch = stretch_for(multiple)
    each = int(stretch // multiple)  # the rest of a stretch is left out
    whole = (ENOUGH - 1) // each
    return math.ceil(whole * stretch + (ENOUGH - whole * each) * multiple)
