"""Does a model see the order of its input, which changes of order hurt it most, and in which layers do they show?

The order of the input is changed in ways that differ in how far things move and in how many neighbours they lose.
The answer asked for remains the one to the untouched input. Measured is how much of the quality goes, how many
answers change, how much the outputs change, before training and after, and how much the representation of the input
changes from layer to layer.

Order is changed in two ways. Either tokens change places and each takes the position of its new place, or tokens stay
and their positions are permuted. Both give each token the same position. So a bidirectional model gives the same
answer to both; outputs at the input merely stand at other places. A causal model does not: what a token
may see goes by its place, which permuted positions leave alone. An encoder that reads no positions, but goes by
the order of the sequence or adds nothing, does not react to permuted positions: the change is exactly 0.

Sensitivity is the quality lost per unit of distance from the untouched order, the slope of a line through the
origin over all changes of order. There are two distances: how far tokens moved, and the share of
neighbours that were parted (Clouatre et al. 2021).
"""

from typing import NamedTuple

NAME = "permutation_sensitivity"
NEEDS_TRAINING = True
MAIN = "quality_loss"
DISTANCES = ("index_displacement", "neighbours_lost")
SLOPES = {"index_displacement": "displacement_sensitivity", "neighbours_lost": "neighbour_sensitivity"}
TOKENS, POSITIONS = "tokens", "positions"
LAYERED = ("shuffle", "reversal")


class Change(NamedTuple):
    """A change of order, as the columns of a row: what is done, the size of its pieces, the share of its places."""

    condition: str
    size: int | None = None
    share: float | None = None

    @property
    def key(self) -> str:
        """Return ``2-gram shuffle``, ``shuffle within 4``, ``adjacent swaps 25%``: as random streams are named."""
        if self.size is not None and "n-gram" in self.condition:
            return self.condition.replace("n-gram", f"{self.size}-gram")
        size = "" if self.size is None else f" {self.size}"
        return self.condition + size + ("" if self.share is None else f" {100 * self.share:g}%")

    @property
    def name(self) -> str:
        """Return the key as a reader meets it: a 1-gram shuffle is a shuffle."""
        return self.key.replace("1-gram shuffle", "shuffle") if self.size == 1 else self.key
