"""What ``python run.py`` does: read a command line, compose its runs, do them here or in workers, count them.

Workers write into their runs' folders only; if a worker never answered, the state of its run is read from there.
"""

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.figures import words
from experiments.plan.refusal import BadRequest
from experiments.plan.request import RunConfig
from experiments.rows import sweeps
from experiments.rows.read import unpack
from experiments.rows.untrusted import message_of
from experiments.runs import arguments, budget, checks, config, forecast, lease, pool, rerun, summary
from experiments.runs.folder import LOG, ending, record_of
from experiments.runs.job import FOR_WORKERS, Job, Parcel, refused, work
from experiments.runs.outcome import Outcome, status_before
from experiments.statistics.rule import Rule
from experiments.training import checkpoint, evaluate
from experiments.training.heartbeat import ahead, doing, span
from experiments.training.interruption import Interrupted, Interruption
from experiments.training.parallel import Team, joined
from pe_zoo import PluginError, load_files

Point = tuple[str, ...]


def run(words: list[str], configs: Path) -> int:
    """Do what a command line asks for; return the exit code of ``run.py``."""
    with joined() as team:
        try:
            if arguments.RERUN in words:
                return _rerun(words, team)
            if arguments.VERIFY in words:
                from experiments.runs.verify import verify  # with scipy, which no run waits for

                return verify(words)
            given = arguments.read(words)
            load_files(config.plugins_in(given.overrides))
            config.publish()
            own = [Path(given.config_dir)] if given.config_dir else []
            lines = arguments.expand(given.overrides, *own, configs, multirun=given.multirun)
            if given.shows:
                config.show(given, configs)
                return 0
            config.check_launcher(given, team.size)
            with config.initialized(configs, given.config_dir), budget.within(minutes := config.budget(lines[0])):
                points = config.points(lines, multirun=given.multirun)
                engine = config.engine(lines[0]) if given.multirun and team.size == 1 else None
                rule = config.rule(lines[0], multirun=given.multirun)
                if given.plans:
                    return _plan(given, team, points, engine, rule, minutes)
                if rule:
                    return _until_decided(given, team, points, engine, *rule, config.wants_report(lines[0]))
                launch = Launch(given, team, report=given.multirun and config.wants_report(lines[0]))
                for point in points:
                    launch.add(point)
                return launch.start(engine)
        except (*config.ERRORS, BadRequest, PluginError) as error:
            print(f"error: {message_of(config.explain(error, words))}", file=sys.stderr)
            return 2
        except budget.Spent:
            print("budget_minutes= is spent; the same command resumes where this one stopped", file=sys.stderr)
            return budget.SPENT


def _until_decided(
    given: arguments.Arguments,
    team: Team,
    points: Iterable[Sequence[str]],
    engine: config.Engine | None,
    rule: Rule,
    first_seed: int,
    report: bool,
) -> int:
    """Run the looks of a sweep, see `adaptive`; on an engine every seed is a job, here the seeds of a point are one."""
    from experiments.runs import adaptive  # with scipy, which no run waits for

    known: list[Path] = []

    def launch(asked: Mapping[Point, range]) -> tuple[int, dict[Point, list[Path]]]:
        one = Launch(given, team, asdict(rule) | {"first_seed": first_seed}, earlier=known)
        found: dict[Point, list[Path]] = {}
        for point, seeds in asked.items():
            size = len(seeds) if engine is None else 1
            for seed in seeds[::size]:
                found.setdefault(point, []).extend(one.add([*point, f"seed={seed}", f"seeds={size}"]))
        if not known:
            checks.check_rule(one.runs, rule, first_seed, one.plugins)
        code = one.start(engine)
        known.extend(folder for folders in found.values() for folder in folders)
        return code, found

    code = adaptive.run(_without_seeds(points), rule, first_seed, launch)
    for place in checks.places(known) if code != 2 else ():  # of refused runs nothing is decided
        if not team.rank and place.is_dir():
            print(f"\n{_page(place, report)}", flush=True)
    return code


def _plan(
    given: arguments.Arguments,
    team: Team,
    points: Iterable[Sequence[str]],
    engine: config.Engine | None,
    rule: tuple[Rule, int] | None,
    minutes: float | None,
) -> int:
    """Print what the runs would take, with a rule those of its first look, and note it for ``--status``."""
    launch = Launch(given, team, None if rule is None else asdict(rule[0]) | {"first_seed": rule[1]})
    if rule:
        first_look = f"seed={rule[1]}", f"seeds={rule[0].looks[0]}"
        points = [(*point, *first_look) for point in _without_seeds(points)]
    for point in points:
        launch.add(point)
    if not launch.runs:
        return 2
    if rule:
        checks.check_rule(launch.runs, *rule, launch.plugins)
    if engine is None or engine.here:
        checks.check_own(launch.firsts)
    todo = [run for run in launch.runs if ending(run.folder) is None]
    workers, here = (engine.workers, engine.here) if engine else (1, True)
    count, ended = words.count(len(launch.runs), "run"), len(launch.runs) - len(todo)
    print(f"{count}, {ended} of them finished before.", flush=True)
    text, seconds = forecast.text(todo, workers, here, launch.plugins, minutes)
    print(text)
    if rule and len(rule[0].looks) > 1:
        first, last = rule[0].looks[0], rule[0].looks[-1]
        more = len(launch.runs) * (last - first) // first
        most = f"where all stay open to the end, {words.count(more, 'run')} more"
        if todo:
            each = seconds / len(todo) / max(1, min(workers, len(launch.runs)))
            most += f", {span(each * (more + len(todo)))} in all"
        print(f"These are the runs of the first look, {first} seeds; the last has {last}: {most}.")
    launch.note((run.folder for run in launch.runs), seconds)
    return 0


def _without_seeds(points: Iterable[Sequence[str]]) -> list[Point]:
    """Return the points of a sweep whose seeds a rule decides, each once."""
    kept = (tuple(word for word in point if word.partition("=")[0] not in ("seed", "seeds")) for point in points)
    return list(dict.fromkeys(kept))


def _rerun(words: list[str], team: Team) -> int:
    """``--rerun results/<name>/runs/<run_id> [plugin=FILE.py]``: 0 where the rows came out the same, 1 where not."""
    places = [word for word in words if word != arguments.RERUN and not word.startswith("plugin=")]
    if len(places) != 1 or len(words) > 3:
        takes = "takes one folder, results/<name>/runs/<run_id>, and plugin=FILE.py if the run had one"
        raise BadRequest(f"{arguments.RERUN} {takes}")
    outcome, same, text = rerun.rerun(Path(places[0]), config.plugins_in(words), team)
    print(f"\n{text}\nfiles: {outcome.folder}")
    return 0 if same else 1


@dataclass
class Launch:
    """The jobs of a command line, and how their runs ended."""

    given: arguments.Arguments
    team: Team
    rule: dict[str, Any] | None = None
    """How seeds are added, where a rule does."""
    report: bool = False
    """Whether the report is written in the end."""
    earlier: Sequence[Path] = ()
    """Folders of the runs that earlier looks of the same command asked for."""
    _jobs: list[Job] = field(default_factory=list)
    _before: dict[Path, dict[str, Any] | None] = field(default_factory=dict)
    _outcomes: list[Outcome] = field(default_factory=list)
    _lost: bool = False
    _whole: int = 0
    """How many runs this command did from their beginning, so that their time tells that of others."""
    _last: float = 0.0
    """When the last of them ended."""

    def add(self, point: Sequence[str]) -> list[Path]:
        """Add the runs of one point of a sweep and return their folders; note why it cannot be run."""
        try:
            job = config.job_of(point, multirun=self.given.multirun)
        except (BadRequest, PluginError) as error:
            self._add(refused(error))
            return []
        folders = [run.folder for run in job.configs]
        if self._before.keys() >= set(folders):  # another part of the sweep asks for the same
            return folders
        for place in checks.places(folders):
            unpack(place)
        self._jobs.append(job)
        self._before |= {folder: record_of(folder) for folder in folders}
        return folders

    @property
    def runs(self) -> list[RunConfig]:
        return [run for job in self._jobs for run in job.configs]

    @property
    def firsts(self) -> list[RunConfig]:
        return [job.configs[0] for job in self._jobs]

    @property
    def plugins(self) -> list[str]:
        """The files of encoders, tasks and measures that the runs bring along."""
        return list(dict.fromkeys(path for job in self._jobs for path in job.plugins))

    def start(self, engine: config.Engine | None) -> int:
        """Do the jobs, in this process without an engine; print a tally; return the exit code."""
        if self.given.multirun and (engine is None or engine.here):
            checks.check_own(self.firsts)
        self.note(self._before)
        try:
            if engine and self._jobs and not (engine.here and len(self._before) == 1):
                self._in_workers(engine)
            else:
                evaluate.beside = pool.cores() // max(1, self.team.local_size)
                for outcome in (outcome for job in self._jobs for outcome in job.outcomes(self.team)):
                    self._add(outcome)
                    with doing("summing up"):
                        summary.show(outcome, brief=self.given.multirun)
            if not self._lost:  # what was refused need not be begun
                self.note(folder for folder in self._before if folder.is_dir())
        finally:
            reported = {outcome.folder for outcome in self._outcomes}
            self._outcomes += [_from_folder(*run) for run in self._before.items() if run[0] not in reported]
            summary.tally(self._outcomes)
        self._conclude()
        statuses = {outcome.status for outcome in self._outcomes}
        if not self.team.rank and "refused" not in statuses:
            print("".join(f"note: {line}\n" for line in checks.doubts(self.runs)), end="", file=sys.stderr, flush=True)
        if "refused" in statuses or (self._lost and statuses <= {"not begun"}):
            return 2
        return max([int(self._lost), *map(summary.exit_code, self._outcomes)])

    def _conclude(self) -> None:
        """Print what the runs of a sweep that have ended say of its encoders, and where to read on."""
        ended = {outcome.run_id for outcome in self._outcomes if outcome.status in ("ok", "finished before")}
        if self.given.multirun and not self.team.rank and len(ended) > 1 and self.rule is None:
            with doing("comparing encoders"):
                from experiments.runs import standings  # with scipy, which no run waits for

                texts = {place: standings.text(place, ended) for place in filter(Path.is_dir, self._places())}
            for place, text in texts.items():
                print(f"\n{text}" if text else "", _page(place, self.report), sep="\n", flush=True)

    def _in_workers(self, engine: config.Engine) -> None:
        os.environ.update(FOR_WORKERS | os.environ)
        jobs = self._jobs
        if engine.here:
            # Seed by seed, so that a sweep which is stopped has something of every encoder.
            runs = sorted(((job, run) for job in jobs for run in job.configs), key=lambda each: each[1].seed)
            jobs = [replace(job, configs=[run]) for job, run in runs]
        pool.lead_here()
        places = ", ".join(map(str, self._places()))
        count = words.count(len(jobs), "run" if engine.here else "job")
        print(f"{count} to workers; python report.py {places} --status tells how many runs are done", flush=True)
        try:
            with Interruption().listening():
                asked = [(job, [config.folder for config in job.configs]) for job in jobs]
                parcels = [Parcel(job, self.given.words, folders).packed() for job, folders in asked]
                with closing(engine.start(work, parcels)) as ended, doing(partial(self._progress, time.monotonic())):
                    for outcome in itertools.chain.from_iterable(ended):
                        self._lose(outcome.message) if outcome.status == "lost" else self._add(outcome)
                        if engine.here and outcome.line and outcome.status not in summary.NOT_RUN:
                            print(f"{self._done()} of {len(self._before)}  {outcome.line}", flush=True)
        except SystemExit as ended:
            raise Interrupted(signal.SIGTERM) from ended  # Ray listens in our place, and makes this of it
        except Exception as error:
            self._lose(f"{type(error).__name__}: {message_of(error)}")
        finally:
            if ray := sys.modules.get("ray"):
                if hasattr(signal, "alarm"):
                    signal.alarm(0)  # which Ray sets on SIGTERM, to abort this process seconds later
                ray.shutdown()  # which prints what its workers still had to say: the tally comes last

    def _progress(self, began: float) -> str:
        """Return how far workers are: runs done, the time left by the pace so far, and one that is under way.

        The pace is that of the runs this command did from the beginning.
        """
        passed, every = time.monotonic() - began, len(self._before)
        before = sum(outcome.status == "finished before" for outcome in self._outcomes)
        text = f"{self._done()} of {every} runs done{f' ({before} before)' * bool(before)} in {span(passed)}"
        under_way = [folder for folder in self._before if (folder / lease.HOLDER).is_file()]
        if self._whole:
            told = {outcome.folder for outcome in self._outcomes}
            to_do = sum(
                each not in told and (record or {}).get("status") not in ("ok", "diverged")
                for each, record in self._before.items()
            )
            left = ahead(passed, self._last - began, self._whole, to_do, len(under_way))
            text += f", about {span(left)} left"
        with suppress(OSError, IndexError):
            text += f"; {(under_way[0] / LOG).read_text(encoding='utf-8').splitlines()[-1].partition(' INFO ')[2]}"
        return text

    def _done(self) -> int:
        return sum(outcome.status != "refused" for outcome in self._outcomes)

    def _add(self, outcome: Outcome) -> None:
        """Note an outcome; an error is printed once, however many runs of a sweep it stops."""
        if outcome.status == "refused" and outcome.message not in {other.message for other in self._outcomes}:
            print(f"error: {outcome.message}", file=sys.stderr)
        if outcome.status not in summary.NOT_RUN and not (record_of(outcome.folder) or {}).get("resumed"):
            self._whole, self._last = self._whole + 1, time.monotonic()
        self._outcomes.append(outcome)

    def _lose(self, reason: str) -> None:
        self._lost = True
        print(f"error: a worker was lost, or could not start: {reason}", file=sys.stderr)

    def _places(self) -> list[Path]:
        return checks.places(self._before)

    def note(self, folders: Iterable[Path], seconds: float | None = None) -> None:
        """Write down which runs were asked for, and how long they take, added up, if that was estimated."""
        if self.team.rank or not (self.given.multirun or self.given.plans):
            return
        typed = [word for word in self.given.words if word != arguments.PLAN]
        command, folders = shlex.join(["python", "run.py", *typed]), [*self.earlier, *folders]
        for place in self._places():
            runs = tuple(folder.name for folder in folders if folder.parent.parent == place)
            with suppress(OSError):  # a folder that `run` itself refuses
                sweeps.write(place, sweeps.Sweep(command, runs, self.rule, seconds, planned=self.given.plans))


def _page(place: Path, report: bool) -> str:
    """Write a folder's report in a process of its own and return where the page is, or how to write it."""
    if not report:
        return f"report: python report.py {place}"
    with doing("writing the report"):
        command = [sys.executable, str(pool.ROOT / "report.py"), str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip()
    said = [line for line in done.stdout.splitlines() if line and not line.startswith("warning: ")]
    return f"{said[0]}\npage: {said[-1]}"


def _from_folder(folder: Path, before: dict[str, Any] | None) -> Outcome:
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
    return replace(outcome, status=status_before(status) if record == before else status, message=message)
