"""One point of a sweep: its runs one after another, in this process or in a worker of an engine."""

import io
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pe_zoo
from experiments.plan.refusal import BadRequest
from experiments.plan.request import RESULTS, RunConfig
from experiments.rows.untrusted import message_of
from experiments.runs import summary
from experiments.runs.options import PARCEL
from experiments.runs.outcome import Outcome
from experiments.runs.pool import FOR_ALL
from experiments.runs.record import Stopped, run
from experiments.training import heartbeat
from experiments.training.interruption import ALWAYS, Interrupted
from experiments.training.parallel import Team

FOR_WORKERS = FOR_ALL | {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DEDUP_LOGS": "0",  # runs print similar lines, and each is meant
    "RAY_raylet_start_wait_time_s": "600",  # a busy machine takes longer than its 30 to start a node
}
"""Environment variables of workers, unless the user has set them."""


@dataclass(frozen=True)
class Job:
    """One point of a sweep, or the one request of a command line: its runs, one per seed."""

    configs: list[RunConfig]
    handling: dict[str, Any]
    """What `run` takes besides the configuration."""
    plugins: list[str] = field(default_factory=list)
    """The files of encoders, tasks and measures that are not ours."""

    def outcomes(self, team: Team | None = None) -> Iterator[Outcome]:
        """Do the runs in turn; Interrupted if one was told to stop, after its outcome."""
        for config in self.configs:
            try:
                yield run(config, **self.handling, team=team)
            except Stopped as stopped:
                yield stopped.outcome
                raise
            except (BadRequest, pe_zoo.PluginError) as error:
                yield refused(error, config)


def refused(error: Exception, config: RunConfig | None = None) -> Outcome:
    """Return the outcome of a request that cannot be run."""
    run_id, folder = (config.run_id, config.folder) if config else ("", RESULTS)
    return Outcome("refused", run_id, folder, message=message_of(error))


@dataclass(frozen=True)
class Parcel:
    """A job on its way to a worker, and the place that the worker is to work in."""

    job: Job
    words: list[str]
    runs: list[Path] = field(default_factory=list)
    """Folders of the job's runs, known before a plug-in is loaded."""
    folder: str = field(default_factory=os.getcwd)
    sender: tuple[str, int] = field(default_factory=lambda: (socket.gethostname(), os.getpid()))

    def packed(self) -> str:
        return pickle.dumps(self).hex()


def work(composed: Mapping[str, Any]) -> list[Outcome]:
    """Do a job in a worker and return the outcomes of its runs, whatever happens; ``lost`` is a mistake of ours."""
    parcel: Parcel = pickle.loads(bytes.fromhex(composed[PARCEL]))
    outcomes, printed = list[Outcome](), io.StringIO()
    try:
        _settle(parcel)
        with redirect_stdout(printed), heartbeat.beating():
            for outcome in parcel.job.outcomes():
                line = summary.headline(outcome) + " (finished before)" * (outcome.status == "finished before")
                outcomes.append(replace(outcome, rows=[], line=line))
                if multiprocessing.parent_process() is None:  # workers of a pool have one place to print to
                    summary.show(outcome, brief=True)
    except (BadRequest, pe_zoo.PluginError) as error:
        whole, told = refused(error), {outcome.folder for outcome in outcomes}
        left = [folder for folder in parcel.runs if folder not in told]
        outcomes += [replace(whole, run_id=folder.name, folder=folder) for folder in left] or [whole]
    except Interrupted as stopped:
        if parcel.sender == (socket.gethostname(), os.getpid()):  # one worker may be the process that asked
            raise
        if stopped.signum not in ALWAYS and callable(signal.getsignal(stopped.signum)):
            signal.raise_signal(stopped.signum)  # on Slurm's warning submitit, which listened before, requeues the job
    except Exception:
        outcomes.append(Outcome("lost", "", RESULTS, message=traceback.format_exc().strip()))
    finally:
        print(printed.getvalue(), end="", flush=True)  # at once: other workers write to the same place
    return outcomes


def _settle(parcel: Parcel) -> None:
    os.environ.update(FOR_WORKERS | os.environ)
    heartbeat.listen(quiet=True)
    sys.argv = ["run.py", *parcel.words]
    try:
        os.chdir(parcel.folder)
    except OSError as error:
        missing = f"{socket.gethostname()} has no folder {parcel.folder!r} ({error.strerror})"
        raise BadRequest(f"{missing}: workers need the file system that the sweep was started on") from error
    pe_zoo.load_files(parcel.job.plugins)
