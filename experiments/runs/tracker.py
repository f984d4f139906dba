"""Trackers (TensorBoard, Weights & Biases, MLflow, …): they get a run's curve and results, and can never break it.

All of them are reached through ``accelerate.tracking``; a run's own files hold everything that they get, and more.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.plan.plan import Plan
from experiments.rows.row import Row, slice_name
from experiments.training.log import TrainLog
from experiments.training.progress import Training
from experiments.training.tune import rates
from pe_zoo._knobs import hint

logger = logging.getLogger("pe_zoo")

RUN_NAME = {"wandb": "name", "trackio": "name", "mlflow": "run_name", "swanlab": "experiment_name"}
RUN_NAME["clearml"] = "task_name"
"""Tracker that sorts runs into projects -> its argument for the name of a run; the others have one name only."""
PLACES = {
    "wandb": ("WANDB_DIR", "{}"),
    "trackio": ("TRACKIO_DIR", "{}/trackio"),
    "mlflow": ("MLFLOW_TRACKING_URI", "sqlite:///{}/mlflow.db"),
    "swanlab": ("SWANLAB_LOG_DIR", "{}/swanlab"),
}
"""Tracker -> the variable that sets where its files go, and its value unless the user has set one."""


def known_trackers(given: object) -> tuple[str, ...]:
    """Return the trackers of ``tracker=``: a name, a list of them, or null; ValueError for one that is not there."""
    names: object = [given] if isinstance(given, str) else () if given is None else given
    if not isinstance(names, Iterable):
        raise ValueError(f"tracker={given!r} must be a name or a list of names, or null")
    chosen = tuple(dict.fromkeys(map(str, names)))
    if not chosen:
        return ()
    try:
        from accelerate import tracking, utils  # an extra, which takes seconds to import
    except ImportError:
        needs = "needs the package accelerate: pip install 'pe-zoo[trackers]'"
        raise ValueError(f"tracker={','.join(chosen)} {needs}") from None
    known = sorted(tracking.LOGGER_TYPE_TO_CLASS)
    available = {str(name) for name in tracking.get_available_trackers()} | ({*known} - {*utils.LoggerType.list()})
    for name in chosen:
        if name not in known:
            raise ValueError(f"no tracker named {name!r}.{hint(name, known)}")
        if name not in available:
            raise ValueError(f"tracker={name} needs the package {name}, which is not installed: pip install {name}")
    return chosen


class Trackers:
    """The trackers of a run. One that fails is dropped with a single warning."""

    def __init__(self, names: Iterable[str], plan: Plan) -> None:
        self._plan = plan
        self._working: dict[str, Any] = {}
        self._run: Training | None = None
        self._points = 0
        for name in names:
            self._try(name, partial(self._start, name))

    def _start(self, name: str) -> None:
        from accelerate import PartialState, tracking  # see `known_trackers`

        PartialState()  # trackers ask it whether this process may write
        config, place = self._plan.config, place_of(self._plan)
        place.mkdir(parents=True, exist_ok=True)
        project = {RUN_NAME[name]: config.run_id} if name in RUN_NAME else {}
        kind = tracking.LOGGER_TYPE_TO_CLASS[name]
        where = [str(place)] if kind.requires_logging_directory else []
        self._working[name] = tracker = kind(config.name if project else config.run_id, *where, **project)
        tracker.start()
        options = pd.json_normalize({**config.labels(), **config.identity()}, sep=".").to_dict("records")[0]
        plain = {key: value if isinstance(value, str | int | float) else str(value) for key, value in options.items()}
        tracker.store_init_configuration(plain)

    def watch(self, run: Training) -> None:
        """Log the new points of a training; all of them at once where it was resumed."""
        config, rate = self._plan.config, run.step.config.learning_rate
        if run is not self._run:
            self._run, self._points = run, 0
        current = float(run.step.optimizer.param_groups[0]["lr"])
        now = {"learning_rate": current, "tokens_per_second": run.log.tokens / run.seconds}
        before = rates(config.train).index(rate) * config.train.last_step if config.tune else 0  # steps must rise
        self._curve(run.log, now, f"learning_rate_{rate:g}/" if config.tune else "", before)

    def trained(self, log: TrainLog) -> None:
        """Log a training that `watch` never saw: one that ended before."""
        if self._run is None and not self._plan.config.tune:
            self._curve(log, {})

    def _curve(self, log: TrainLog, now: dict[str, float], prefix: str = "", before: int = 0) -> None:
        for step, loss, quality, _ in log.points[self._points :]:
            values = {"loss": loss, **{f"in_range_{metric}": value for metric, value in quality.items()}}
            values |= now if step == log.steps else {}
            self._log({f"{prefix}{name}": value for name, value in values.items()}, before + step)
        self._points = len(log.points)

    def results(self, rows: Iterable[Row], step: int) -> None:
        """Log every experiment's main metric, for every length and condition."""
        main = {name: measure.main or self._plan.task.metrics[0] for name, measure in self._plan.experiments.items()}
        measured = [row for row in rows if main.get(row.experiment) == row.metric and row.status == "ok"]
        if measured:
            self._log({_name(row): row.value for row in measured}, step)

    def finish(self) -> None:
        for name, tracker in list(self._working.items()):
            self._try(name, tracker.finish)

    def _log(self, values: dict[str, float], step: int) -> None:
        for name, tracker in list(self._working.items()):
            self._try(name, partial(tracker.log, values, step=step))

    def _try(self, name: str, do: Callable[[], object]) -> None:
        try:
            do()
        except Exception as error:
            self._working.pop(name, None)
            logger.warning("tracker %s failed and is dropped: %s: %s", name, type(error).__name__, error)


@contextmanager
def tracking(names: Iterable[str], plan: Plan) -> Iterator[Trackers]:
    """Let trackers follow a run within the block."""
    place = place_of(plan).absolute()
    places = dict(PLACES[name] for name in names if name in PLACES)
    added = {variable: where.format(place) for variable, where in places.items() if variable not in os.environ}
    os.environ.update(added)
    trackers = Trackers(names, plan)
    try:
        yield trackers
    finally:
        trackers.finish()
        for variable in added:
            os.environ.pop(variable, None)


def place_of(plan: Plan) -> Path:
    """Return where trackers keep their files, if that can be set: beside the runs."""
    return plan.config.folder.parent.parent / "trackers"


def _name(row: Row) -> str:
    parts = (row.experiment, row.metric, slice_name(row), f"length_{row.eval_length}")
    return "/".join(re.sub(r"[^\w.-]+", "_", part) for part in parts if part)
