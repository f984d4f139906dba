"""What happened in training, and in the search for a learning rate: saved, restored, and turned into rows."""

import math
from dataclasses import dataclass, field
from typing import Any, Self

from experiments.model.transformer import Transformer
from experiments.rows.row import Row
from experiments.training.checkpoint import State
from experiments.training.evaluate import Subject


@dataclass(frozen=True)
class Tuning:
    """The search for a learning rate: the peaks that were tried, and the loss of each on held-out data in range.

    A loss is in nats per counted token, a mean over ``tokens`` of them, and infinite if training diverged; ``seconds``
    are those of the whole search. Of each rate, ``beyond`` has rows of quality at the lengths measured, as plain data,
    empty where the task was not learned in range; they never decide what is chosen.
    """

    rates: list[float]
    losses: list[float]
    tokens: int
    seconds: float
    beyond: list[list[dict[str, Any]]] = field(default_factory=list)

    @property
    def chosen(self) -> float | None:
        """The rate of the lowest loss, the lower one of two; None if all diverged."""
        loss, rate = min(zip(self.losses, self.rates, strict=True))
        return rate if math.isfinite(loss) else None

    @property
    def at_edge(self) -> bool:
        """Whether the chosen rate is the lowest or the highest tried, so that a better one may lie beyond."""
        return self.chosen in (min(self.rates), max(self.rates))

    def record(self) -> dict[str, Any]:
        """Return what ``run.json`` holds; a diverged training has the loss null."""
        return {
            "grid": self.rates,
            "losses": [loss if math.isfinite(loss) else None for loss in self.losses],
            "chosen": self.chosen,
            "seconds": round(self.seconds, 3),
            "at_edge": self.at_edge,
        }


@dataclass
class TrainLog:
    """What happened in training; ``diverged`` if the loss stopped being finite.

    A point is (step, mean loss since the last point in nats per counted token, in-range quality, n). ``seconds`` are
    those of the loop, in-range checks included. ``stopped`` says what ended it: ``steps``, ``max_steps`` or
    ``converged``; None if it diverged, or trained nothing. ``during`` has the rows measured on the way, as plain data.
    """

    status: str = "ok"
    points: list[tuple[int, float, dict[str, float], int]] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0
    steps: int = 0
    stopped: str | None = None
    tuning: Tuning | None = None
    during: list[dict[str, Any]] = field(default_factory=list)

    @property
    def final_loss(self) -> float:
        return self.points[-1][1] if self.points else math.nan

    @property
    def quality(self) -> dict[str, float]:
        """In-range quality at the last check; empty without training."""
        return self.points[-1][2] if self.points else {}

    @property
    def divergence(self) -> str:
        if self.tuning is not None:
            return f"no learning rate of {', '.join(map(str, self.tuning.rates))} reached a finite loss"
        return f"the loss was {self.final_loss} by step {self.points[-1][0]}"

    @classmethod
    def load(cls, facts: dict[str, Any]) -> Self:
        """Rebuild a log from plain data, as ``asdict`` and JSON give it."""
        tuning = facts["tuning"] and Tuning(**facts["tuning"])
        known = {key: facts[key] for key in cls.__dataclass_fields__ if key in facts}  # others are another release's
        return cls(**{**known, "points": list(map(tuple, facts["points"])), "tuning": tuning})

    @classmethod
    def restore(cls, saved: State, model: Transformer) -> Self:
        """Bring a model to the end of a saved training; return its log."""
        model.load_state_dict(saved.tensors)
        if saved.facts["encoder_dropped"]:
            model.drop_encoder()
        return cls.load(saved.facts["log"])

    def rows(self, subject: Subject) -> list[Row]:
        """Return the training curve, and the loss of every learning rate that was tried."""
        main = dict.fromkeys((subject.task.metrics[0], "token_accuracy"))
        guess = {metric: subject.best_guess(metric, subject.task.train_length) for metric in main}
        rows = []
        for step, loss, quality, n in self.points:
            rows.append(subject.row("training", "loss", step=step, value=loss, n=n))
            for metric in filter(quality.__contains__, main):
                point = {"value": quality[metric], "chance": guess[metric], "n": n}
                rows.append(subject.row("training", metric, step=step, **point))
        tuning = self.tuning or Tuning([], [], 0, 0.0)
        for rate, loss in zip(tuning.rates, tuning.losses, strict=True):
            judged = {"value": loss} if math.isfinite(loss) else {"status": "diverged"}
            rows.append(subject.row("tuning", "validation_loss", learning_rate=rate, n=tuning.tokens, **judged))
        for rate, measured in zip(tuning.rates, tuning.beyond, strict=False):
            rows += [Row(**{**row, "experiment": "tuning", "learning_rate": rate}) for row in measured]
        return rows + [Row(**row) for row in self.during]
