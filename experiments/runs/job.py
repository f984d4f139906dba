"""One point of a sweep, or the one run that was asked for: in this process, or pickled in a worker of an engine."""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from experiments.plan.plan import RESULTS, BadRequest, RunConfig
from experiments.rows.untrusted import message_of
from experiments.runs import config as _config
from experiments.runs import seeds, summary
from experiments.runs.record import Outcome, Stopped, run
from experiments.training.interruption import ALWAYS, Interrupted
from experiments.training.parallel import Team
from pe_zoo import PluginError

if TYPE_CHECKING:
    from omegaconf import DictConfig

SET_FOR_WORKERS = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # as in every process that computes
    "TQDM_DISABLE": "1",  # bars of several workers write over one another
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DEDUP_LOGS": "0",  # runs say alike things, and each is meant
}


@dataclass
class Report:
    """What a job says to the process that asked for it.

    Args:
        outcomes: of its runs, without their rows.
        error: the traceback of what should not have happened.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    error: str = ""


class Job:
    """One point of a sweep, or the one run that was asked for, as Hydra calls it.

    A copy that was pickled is a worker's: it makes the place it finds itself in like the one it was made in, and
    whatever happens, it reports.

    Args:
        arguments: the command line that asked for it.
        team: the processes that share its runs.
    """

    def __init__(self, arguments: Sequence[str], team: Team) -> None:
        self.arguments = list(arguments)
        self.team: Team | None = team
        self.place = os.getcwd()
        self.elsewhere = False
        self.begun = False
        self.outcomes: list[Outcome] = []
        self._said: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": self.arguments, "place": self.place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["arguments"], None)  # type: ignore[misc]
        self.place, self.elsewhere = state["place"], True

    def __call__(self, composed: DictConfig) -> Report:
        """Do the runs that a composed configuration asks for."""
        self.begun, self.outcomes = True, [] if self.elsewhere else self.outcomes
        report = Report(self.outcomes)
        if not self.elsewhere:
            self._run_all(composed)
            return report
        said = io.StringIO()
        try:
            self._settle()
            with redirect_stdout(said):
                self._run_all(composed)
        except BadRequest as error:
            self.refuse(error)
        except Interrupted as stopped:
            _hand_on(stopped.signum)
        except Exception:
            report.error = traceback.format_exc()
        finally:
            print(said.getvalue(), end="", flush=True)  # at once: other workers write to the same place
        report.outcomes = [replace(outcome, rows=[]) for outcome in report.outcomes]
        return report

    def _settle(self) -> None:
        """Folder, command line, threads and the log are those of the process that asked."""
        for name, value in SET_FOR_WORKERS.items():
            os.environ.setdefault(name, value)
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        sys.argv = ["run.py", *self.arguments]
        try:
            os.chdir(self.place)
        except OSError as error:
            raise BadRequest(
                f"{socket.gethostname()} has no folder {self.place!r} ({error.strerror}): workers need the file system "
                f"that the sweep was started on"
            ) from error
        if threads := _config.cpus_per_task():
            torch.set_num_threads(threads)

    def _run_all(self, composed: DictConfig) -> None:
        try:
            configs = _config.requested(composed)
        except (BadRequest, PluginError) as error:
            self.refuse(error)
            return
        handling = _config.handling(composed)
        alone = self.team is None or self.team.size == 1
        anew = {key: handling[key] for key in ("force", "retry", "checkpoint_seconds")}
        if alone and seeds.pays(configs) and seeds.train_together(configs, **anew):
            handling |= {"force": False, "retry": None}
        for config in configs:
            try:
                outcome = run(config, **handling, team=self.team)
            except Stopped as stopped:
                self.outcomes.append(stopped.outcome)
                summary.show(stopped.outcome)
                raise
            except (BadRequest, PluginError) as error:
                self.refuse(error, config)
                continue
            self.outcomes.append(outcome)
            summary.show(outcome)

    def refuse(self, error: Exception, config: RunConfig | None = None) -> None:
        """Note that something cannot be run; said once, however many runs of a sweep it stops."""
        message = message_of(error)
        folder = RESULTS / config.name / "runs" / config.run_id if config else RESULTS
        self.outcomes.append(Outcome("refused", config.run_id if config else "", folder, message=message))
        if not self.elsewhere:
            self.tell(message)

    def tell(self, message: str) -> None:
        """Print an error, once."""
        if message not in self._said:
            print(f"error: {message}", file=sys.stderr)
        self._said.add(message)


def _hand_on(signum: int) -> None:
    """Give a signal to whom it was meant for before the run listened: Slurm's warning requeues the job."""
    if signum not in ALWAYS and callable(signal.getsignal(signum)):
        signal.raise_signal(signum)
