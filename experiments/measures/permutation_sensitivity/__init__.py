"""Does a model see the order of its input, which changes of order hurt it most, and in which layers do they show?"""

from typing import NamedTuple


class Change(NamedTuple):
    """A change of order, as the columns of a row: what is done, the size of its pieces, the share of its places."""

    condition: str
    size: int | None = None
    share: float | None = None

    @property
    def name(self) -> str:
        """In words: ``2-gram shuffle``, ``shuffle within 4``, ``adjacent swaps 25%``."""
        if self.size is not None and "n-gram" in self.condition:
            return self.condition.replace("n-gram", f"{self.size}-gram")
        size = "" if self.size is None else f" {self.size}"
        return self.condition + size + ("" if self.share is None else f" {100 * self.share:g}%")
