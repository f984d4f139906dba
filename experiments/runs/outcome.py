"""A run in the making: the pipeline's session that writes run.json, checkpoints, the model, rows and figures."""

import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import yaml

from experiments import pipeline
from experiments.model.transformer import Transformer
from experiments.plan.plan import Plan
from experiments.rows.row import Row, frame, write_json, write_rows, write_whole
from experiments.runs import provenance
from experiments.runs.folder import digest, draw
from experiments.runs.lease import RunLocked
from experiments.runs.tracker import Trackers
from experiments.training import heartbeat
from experiments.training.checkpoint import Checkpoints
from experiments.training.log import TrainLog
from experiments.training.loop import Session
from experiments.training.parallel import Team

logger = logging.getLogger("pe_zoo")


@dataclass
class Outcome:
    """How a request to run ended, with the reason, and the measurements of a run that ended well, or diverged, now.

    ``status`` is ``ok``, ``diverged``, ``failed``, ``interrupted`` or ``unwritten``; one ``… before`` if there was
    nothing to do; ``running elsewhere`` if another worker runs it.
    """

    status: str
    run_id: str
    folder: Path
    rows: list[Row] = field(default_factory=list)
    message: str = ""
    line: str = ""
    """What it has shown, where it ended in a worker."""


def status_before(status: str) -> str:
    """Return the status of an outcome from that of a run which had ended before."""
    return "finished before" if status == "ok" else f"{status} before"


class Unwritten(OSError):
    """Results could not be written; the run itself is unharmed and resumes when started again."""


class Recording(Session):
    """A run being made and written."""

    def __init__(self, plan: Plan, checkpoints: Checkpoints, team: Team, trackers: Trackers) -> None:
        super().__init__(checkpoints, team, trackers.watch)
        self.plan, self.trackers, self.folder = plan, trackers, plan.config.folder
        self.interruption = checkpoints.interruption
        self.training = ExitStack()
        checkpoints.load()
        self.record = provenance.opening(plan) | {"processes": team.size, "resumed": checkpoints.resumed}

    def make(self, log: logging.Handler, figures: bool) -> Outcome:
        """Train, measure and write; record the end, unless another worker has taken the run over (RunLocked)."""
        outcome = Outcome("failed", self.plan.config.run_id, self.folder)
        self.figures = figures
        try:
            with self._writing():
                text = yaml.safe_dump(self.plan.config.identity(), sort_keys=False, allow_unicode=True)
                write_whole(self.folder / "config.yaml", text)
                write_json(self.folder / "run.json", self.record)
            with self.training:
                self.training.enter_context(self.interruption.deferred())
                outcome.rows = pipeline.execute(self.plan, self)
            self.result["measure_seconds"] = round(time.perf_counter() - self.measuring, 3)
            with self.interruption.deferred(), self._writing():
                self._finish(outcome)
        except KeyboardInterrupt as stopped:
            outcome.status = "interrupted"
            self.record |= {"status": "interrupted", "message": str(stopped) or "interrupted from the keyboard"}
            if "trained" in self.checkpoints.parts:  # an interrupted training has written its checkpoint itself
                self.checkpoints.write()
        except RunLocked:
            raise
        except Unwritten as error:
            logger.error("%s", error)
            outcome.status = "unwritten"
            self.record |= {"status": "interrupted", "message": str(error)}
        except Exception as error:
            log.emit(logging.makeLogRecord({"msg": traceback.format_exc(), "levelname": "ERROR"}))
            outcome.status = "failed"
            self.record |= {"status": "failed", "message": f"{type(error).__name__}: {error}"}
        if outcome.status in ("interrupted", "unwritten", "failed"):
            outcome.rows = []
            try:
                with self.interruption.deferred(), self._writing():
                    self._close()
            except Unwritten as error:
                logger.error("the end of %s cannot be recorded: %s", outcome.run_id, error)
        outcome.message = self.record["message"]
        return outcome

    def trained(self, model: Transformer, log: TrainLog) -> None:
        """Save the trained model; from here on a signal stops the run at once."""
        trains = self.plan.config.trains
        if trains:
            super().trained(model, log)
        self.trackers.trained(log)
        self.training.close()
        self.interruption.check()
        if trains:
            with self._writing():
                write_whole(self.folder / "model.safetensors", safetensors.torch.save(model.state_dict()))
        self.result = provenance.result(self.plan, model, log)
        self.measuring = time.perf_counter()

    def _finish(self, outcome: Outcome) -> None:
        write_rows(self.folder / "rows.csv", outcome.rows)
        if self.figures:
            with heartbeat.doing(f"{outcome.run_id}: drawing figures"):
                draw(self.folder, frame(outcome.rows))
        self.record |= self.result | {"unsupported": self.refusals, "rows_sha256": digest(self.folder)}
        outcome.status = self.record["status"]
        self._close()
        self.checkpoints.clear()
        self.trackers.results(outcome.rows, self.record["steps"] or 0)

    def _close(self) -> None:
        self.checkpoints.check_lease()  # drawing figures may have taken a while
        self.record["finished"] = provenance.now()
        write_json(self.folder / "run.json", self.record)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Report an error within as the disk's (Unwritten), not the run's; RunLocked if the lease is lost."""
        self.checkpoints.check_lease()
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise Unwritten(f"results cannot be written: {str(self.folder)!r}: {reason}") from error
