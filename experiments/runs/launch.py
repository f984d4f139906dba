"""The runs of a command line: started here or in the workers of an engine, and counted here.

Workers write into their runs' folders only; how a run stands whose worker never answered is read from there.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.figures import words
from experiments.plan.request import RESULTS, BadRequest
from experiments.rows import sweeps
from experiments.rows.untrusted import message_of
from experiments.runs import lease, summary
from experiments.runs.arguments import Arguments
from experiments.runs.config import Engine, job_of
from experiments.runs.folder import record_of
from experiments.runs.job import FOR_WORKERS, Job, Parcel, refused, work
from experiments.runs.record import Outcome
from experiments.training import checkpoint
from experiments.training.interruption import Interrupted, Interruption
from experiments.training.parallel import Team
from pe_zoo import PluginError

ROOT = Path(__file__).resolve().parents[2]


class Launch:
    """The jobs of a command line, and how their runs ended.

    Args:
        given: the command line.
        team: the processes that share its runs.
    """

    def __init__(self, given: Arguments, team: Team) -> None:
        self.given = given
        self.team = team
        self.jobs: list[Job] = []
        self.lost = False
        self.outcomes: list[Outcome] = []
        self._before: dict[Path, dict[str, Any] | None] = {}

    def add(self, point: list[str]) -> None:
        """Add the runs of one point of a sweep, or note why it cannot be run."""
        try:
            job = job_of(point, multirun=self.given.multirun)
        except (BadRequest, PluginError) as error:
            self._add(refused(error))
            return
        self.jobs.append(job)
        for config in job.configs:
            folder = RESULTS / config.name / "runs" / config.run_id
            self._before[folder] = record_of(folder)

    def here(self) -> None:
        """Do the jobs one after another in this process."""
        self._note(self._before)
        for job in self.jobs:
            for outcome in job.outcomes(self.team):
                self._add(outcome)
                summary.show(outcome)

    def in_workers(self, engine: Engine) -> None:
        """Do the jobs in the workers of an engine."""
        self._note(self._before)
        for name, value in FOR_WORKERS.items():
            os.environ.setdefault(name, value)
        roots = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, roots)))
        places = ", ".join(f"results/{name}" for name in self._names())
        count = words.count(len(self.jobs), "job")
        print(f"{count} to workers; python report.py {places} --status tells how many runs are done", flush=True)
        parcels = [Parcel(job, self.given.words).packed() for job in self.jobs]
        try:
            with Interruption().listening():
                for outcomes in engine(work, parcels):
                    for outcome in outcomes:
                        self._lose(outcome.message) if outcome.status == "lost" else self._add(outcome)
        except SystemExit as ended:
            raise Interrupted(signal.SIGTERM) from ended  # Ray listens in our place, and makes this of it
        except Exception as error:
            self._lose(f"{type(error).__name__}: {message_of(error)}")
        finally:
            _end_ray()

    def _add(self, outcome: Outcome) -> None:
        """Note an outcome; an error is printed once, however many runs of a sweep it stops."""
        if outcome.status == "refused" and outcome.message not in {other.message for other in self.outcomes}:
            print(f"error: {outcome.message}", file=sys.stderr)
        self.outcomes.append(outcome)

    def _lose(self, reason: str) -> None:
        self.lost = True
        print(f"error: a worker was lost, or could not start: {reason}", file=sys.stderr)

    def _names(self) -> list[str]:
        return list(dict.fromkeys(config.name for job in self.jobs for config in job.configs))

    def _note(self, folders: Iterable[Path]) -> None:
        """Note in each results folder which of its runs a sweep asks for."""
        if self.team.rank or not self.given.multirun:
            return
        command = shlex.join(["python", "run.py", *self.given.words])
        for name in self._names():
            runs = tuple(folder.name for folder in folders if folder.parent.parent == RESULTS / name)
            with suppress(OSError):  # a folder that `run` itself refuses
                sweeps.write(RESULTS / name, sweeps.Sweep(command, 1, 1, runs))

    def close(self) -> None:
        """Drop runs that were refused from the notes: nobody need begin them."""
        if not self.lost:
            self._note([folder for folder in self._before if folder.is_dir()])

    def ended(self) -> list[Outcome]:
        """How every run ended, as its worker reports or as its folder shows."""
        reported = {outcome.folder for outcome in self.outcomes}
        rest = [_from_folder(folder, was) for folder, was in self._before.items() if folder not in reported]
        return self.outcomes + rest

    def exit_code(self) -> int:
        """2 where something was refused, or no worker started; 1 where something failed or was lost; else 0."""
        outcomes = self.ended()
        statuses = {outcome.status for outcome in outcomes}
        if "refused" in statuses or (self.lost and statuses <= {"not begun"}):
            return 2
        return max([int(self.lost), *map(summary.exit_code, outcomes)])


def _end_ray() -> None:
    if ray := sys.modules.get("ray"):
        if hasattr(signal, "alarm"):
            signal.alarm(0)  # which Ray sets on SIGTERM, to abort this process seconds later
        ray.shutdown()  # which prints what its workers still had to say: the tally comes last


def _from_folder(folder: Path, before: dict[str, Any] | None) -> Outcome:
    """How a run stands whose worker has not reported."""
    record, worker = record_of(folder), lease.holder(folder)
    outcome = Outcome("not begun", folder.name, folder)
    if worker is not None:
        return replace(outcome, status="running elsewhere", message=f"is being run by {worker}")
    if record is None:
        if not any(folder.glob(checkpoint.PATTERN)):
            return outcome
        record = {"status": "interrupted"}  # while it was about to resume, which removes its old record
    status, message = str(record.get("status")), str(record.get("message") or "")
    if status in ("running", "interrupted"):
        return replace(outcome, status="interrupted", message=message or "its worker ended without a report")
    if record == before:
        status = {"ok": "finished before"}.get(status, f"{status} before")
    return replace(outcome, status=status, message=message)
