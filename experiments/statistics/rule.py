"""The rule by which seeds are added, as it is declared before the first run; see `sequential`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

BEST, STATEMENTS = "best", "statements"
NEEDS_LENGTHS = "seeds=until_decided needs experiment=length_extrapolation: that is what is decided"
FEWEST = 3
"""Seeds that an interval needs."""


@dataclass(frozen=True)
class Rule:
    """How many seeds are run, and what ends it.

    Args:
        question: ``best`` (which series may be the best), ``statements`` (what is published, see `statements`), or the
            series that each other is compared with.
        looks: numbers of seeds after which is tested, ascending.
        weights: share of the level that each look spends; they sum to 1 at most.
        delta: difference in quality kept below which two series count as equal; None: never.
        paired: whether runs of one seed are compared with one another (they have the same data and weights at first).

    Raises:
        ValueError: looks, weights, delta or paired cannot be used.
    """

    question: str
    looks: tuple[int, ...] = (5, 8, 12, 20)
    weights: tuple[float, ...] = (0.25, 0.20, 0.25, 0.30)
    delta: float | None = None
    paired: bool = False

    def __post_init__(self) -> None:
        if not self.looks or self.looks[0] < FEWEST or list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"looks={self.looks}: use ascending numbers of seeds, {FEWEST} or more")
        if len(self.weights) != len(self.looks) or min(self.weights) <= 0 or sum(self.weights) > 1 + 1e-9:
            raise ValueError(f"weights={self.weights}: use one positive weight for each of {self.looks}, sum at most 1")
        if self.delta is not None and not self.delta > 0:
            raise ValueError(f"delta={self.delta}: use a difference above 0")
        if self.paired and self.question == STATEMENTS:
            raise ValueError("paired=true is for against=<series> or best: a statement may compare runs of other seeds")

    @property
    def of_one_series(self) -> bool:
        """Whether comparisons with one series alone are tested, so that the others have no places."""
        return self.question not in (BEST, STATEMENTS)


def in_words(rule: Rule, first_seed: int) -> str:
    """Return a rule as options that can be typed, the ``question`` first."""
    options = {"looks": list(rule.looks), "weights": list(rule.weights), "delta": rule.delta, "seed": first_seed}
    options |= {"paired": "true"} if rule.paired else {}
    told = (f"{name}={str(value).replace(' ', '')}" for name, value in options.items() if value is not None)
    return " ".join([f"against={rule.question}", *told])


def declared_rule(noted: Iterable[Mapping[str, Any] | None]) -> tuple[Rule, int] | None:
    """Return the rule, and the first seed, of the first sweep that declared one (see `experiments.rows.sweeps`)."""
    for note in filter(None, noted):
        try:
            looks, weights = (tuple(note[name]) for name in ("looks", "weights"))
            rule = Rule(str(note["question"]), looks, weights, note["delta"], note.get("paired") is True)
            return rule, int(note["first_seed"])
        except (KeyError, TypeError, ValueError):
            continue
    return None
