"""The runs of a command line: asked for here, done here or in the workers of an engine, and counted here.

An engine (joblib, Slurm, Ray) takes a pickled `Job` to its workers. They write into their runs' folders alone; what has
become of a run whose worker never answered is read from there.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.figures import words
from experiments.plan.plan import RESULTS, BadRequest, RunConfig
from experiments.rows import sweeps
from experiments.rows.untrusted import message_of
from experiments.runs import config as _config
from experiments.runs import lease, summary
from experiments.runs.folder import record_of
from experiments.runs.job import SET_FOR_WORKERS, Job
from experiments.runs.record import Outcome
from experiments.training import checkpoint
from experiments.training.interruption import Interrupted, Interruption
from experiments.training.parallel import Team
from pe_zoo import PluginError


class Launch:
    """A command line at work: what it asks for, which engine does it, and how all of it ended.

    Args:
        arguments: of the command line.
        parts: how many command lines it stands for.
        team: the processes that share its runs.
    """

    def __init__(self, arguments: Sequence[str], parts: int, team: Team) -> None:
        self.job = Job(arguments, team)
        self.command = shlex.join(["python", "run.py", *arguments])
        self.parts = parts
        self.part = 0
        self.lost = False
        self._asked: list[list[RunConfig]] = [[] for _ in range(parts + 1)]
        self._before: dict[Path, dict[str, Any] | None] = {}
        self._waiting: list[list[str]] = []

    def next(self) -> Job:
        """What is called for every point of the next part."""
        self.part += 1
        self.job.begun = False
        return self.job

    @property
    def begun(self) -> bool:
        """Whether composing the part is over."""
        return self.job.begun

    def hear(self, sweeper: Any, batch: Sequence[Sequence[str]]) -> None:
        """Before an engine gets a batch: refuse what cannot be run, note the rest in the results folder."""
        kept = []
        for overrides in batch:
            try:
                self._asked[self.part] += _config.runs_of(sweeper, overrides)
            except (BadRequest, PluginError) as error:
                self.job.refuse(error)
                continue
            kept.append(list(overrides))
        for config in self._asked[self.part]:
            folder = RESULTS / config.name / "runs" / config.run_id
            self._before.setdefault(folder, record_of(folder))
        if not isinstance(sweeper.launcher, _Engine):
            sweeper.launcher = _Engine(sweeper.launcher, self)
        sweeper.launcher.kept = kept

    def start(self, launcher: Any, jobs: list[list[str]], initial_job_idx: int) -> Sequence[Any]:
        """Give jobs to the launcher; parts of a sweep go to an engine of workers all together."""
        if _config.is_basic(launcher):
            self._note(self.part)
            return launcher.launch(jobs, initial_job_idx=initial_job_idx) if jobs else []
        self._waiting += jobs
        if self.part < self.parts or not self._waiting:
            return []
        for part in range(1, self.parts + 1):
            self._note(part)
        jobs, self._waiting = self._waiting, []
        for number in range(0, len(jobs), _config.batch_size(launcher) or len(jobs)):
            self._hand_over(launcher, jobs[number : number + (_config.batch_size(launcher) or len(jobs))], number)
        return []

    def _hand_over(self, launcher: Any, jobs: list[list[str]], initial_job_idx: int) -> None:
        self.job.begun = True
        for name, value in SET_FOR_WORKERS.items():
            os.environ.setdefault(name, value)
        roots = [str(Path(__file__).resolve().parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, roots)))
        places = ", ".join(f"results/{name}" for name in dict.fromkeys(c.name for part in self._asked for c in part))
        print(f"{words.count(len(jobs), 'job')} to workers; python report.py {places} --status says how far they are")
        sys.stdout.flush()
        try:
            with Interruption().listening():
                returns = launcher.launch(jobs, initial_job_idx=initial_job_idx)
        except SystemExit as ended:
            raise Interrupted(signal.SIGTERM) from ended  # as Ray, which listens in our place, takes it
        except Exception as error:
            self._lose(f"{type(error).__name__}: {message_of(error)}")
            return
        finally:
            if ray := sys.modules.get("ray"):
                if hasattr(signal, "alarm"):
                    signal.alarm(0)  # which Ray sets on SIGTERM, to abort this process seconds later
                ray.shutdown()  # which shows what its workers still had to say: the tally comes last
        for job in returns:
            report = job.return_value
            if report.outcomes is self.job.outcomes:
                continue  # one worker is this process
            self.job.outcomes += report.outcomes
            for outcome in report.outcomes:
                if outcome.status == "refused":
                    self.job.tell(outcome.message)
            if report.error:
                self._lose(report.error.strip())

    def _lose(self, why: str) -> None:
        self.lost = True
        print(f"error: a worker was lost, or could not start: {why}", file=sys.stderr)

    def _note(self, part: int, *, begun: bool = False) -> None:
        """Note what a part asks for, see `_sweeps`; at the end, of those alone that were begun and not refused."""
        if self.job.team and self.job.team.rank:
            return
        asked = self._asked[part]
        for name in dict.fromkeys(config.name for config in asked):
            mine = dict.fromkeys(c.run_id for c in asked if c.name == name)
            runs = tuple(run for run in mine if not begun or (RESULTS / name / "runs" / run).is_dir())
            with suppress(OSError):  # a folder that the job itself refuses
                sweeps.write(RESULTS / name, sweeps.Sweep(self.command, part, self.parts, runs))

    def close(self) -> None:
        """All was asked for, and what could be has been run."""
        if not self.lost:
            for part in range(1, self.parts + 1):
                self._note(part, begun=True)

    def outcomes(self) -> list[Outcome]:
        """How every run ended, by its own word or by what lies in its folder."""
        told = {outcome.folder for outcome in self.job.outcomes}
        return self.job.outcomes + [_found(folder, was) for folder, was in self._before.items() if folder not in told]

    def exit_code(self) -> int:
        """2 where something was refused, or no worker started; 1 where something failed or was lost; else 0."""
        outcomes = self.outcomes()
        statuses = {outcome.status for outcome in outcomes}
        if "refused" in statuses or (self.lost and statuses <= {"not begun"}):
            return 2
        return max([int(self.lost), *map(summary.exit_code, outcomes)])


class _Engine:
    """A Hydra launcher whose work is watched."""

    def __init__(self, launcher: Any, launch: Launch) -> None:
        self.launcher = launcher
        self.watching = launch
        self.kept: list[list[str]] = []

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[Any]:
        """As a launcher does; jobs that were refused are not among them."""
        return self.watching.start(self.launcher, self.kept, initial_job_idx)


def _found(folder: Path, before: dict[str, Any] | None) -> Outcome:
    """How a run stands whose worker has not said."""
    record, worker = record_of(folder), lease.holder(folder)
    outcome = Outcome("not begun", folder.name, folder)
    if worker is not None:
        return replace(outcome, status="running elsewhere", message=f"is being run by {worker}")
    if record is None:
        if not any(folder.glob(checkpoint.PATTERN)):
            return outcome
        record = {"status": "interrupted"}  # while it was about to go on, when its old record is taken away
    outcome.status, outcome.message = str(record.get("status")), str(record.get("message") or "")
    if outcome.status in ("running", "interrupted"):
        return replace(outcome, status="interrupted", message=outcome.message or "its worker ended without a word")
    if record == before:
        outcome.status = {"ok": "finished before"}.get(outcome.status, f"{outcome.status} before")
    return outcome
