"""What is refused before anything of a sweep is trained: each check raises BadRequest, which says what to do."""

import glob
import inspect
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.figures import words
from experiments.plan import checkpoint
from experiments.plan.places import as_typed
from experiments.plan.prepare import prepare
from experiments.plan.refusal import BadRequest
from experiments.plan.request import RunConfig
from experiments.rows import sweeps
from experiments.rows.row import OVER_LENGTHS
from experiments.rows.untrusted import read_mapping
from experiments.statistics.rule import BEST, NEEDS_LENGTHS, STATEMENTS, Rule, declared_rule, in_words
from pe_zoo import get
from pe_zoo._contract import check
from pe_zoo._knobs import hint
from pe_zoo._registry import outside


def check_rule(runs: Sequence[RunConfig], rule: Rule, first_seed: int, plugins: Iterable[str]) -> None:
    """Refuse a rule that compares nothing measured, adds seeds of changed ``plugins``, or moves looks after results."""
    _check_baseline(runs, rule.question)
    if runs and rule.question != STATEMENTS and not any(OVER_LENGTHS in run.experiments for run in runs):
        raise BadRequest(NEEDS_LENGTHS)
    _check_files(runs, plugins)
    _check_looks(runs, rule, first_seed)


def _check_baseline(runs: Sequence[RunConfig], question: str) -> None:
    encoder = re.split(r"[ (·]", question)[0]
    named = {str(run.encoder["name"]) for run in runs}
    measured = (place.glob(f"runs/{glob.escape(encoder)}-*") for place in places(run.folder for run in runs))
    if named and question not in (BEST, STATEMENTS) and encoder not in named and not any(map(any, measured)):
        raise BadRequest(f"against={question}: no run of this sweep has that encoder.{hint(encoder, named)}")


def _check_files(runs: Sequence[RunConfig], plugins: Iterable[str]) -> None:
    for stem, run in {run.run_id.rpartition("-seed")[0]: run for run in runs if run.plugin}.items():
        place = run.folder.parent.parent
        found = [read_mapping(path, place) for path in place.glob(f"runs/{glob.escape(stem)}-seed*/config.yaml")]
        if earlier := sum(config.get("plugin") not in (run.plugin, None) for config in found):
            raise BadRequest(
                f"{words.listed(plugins)} changed since {words.count(earlier, 'run')} of {stem} in {place}: seeds are "
                "added to runs of one file; take another name=, or restore the file"
            )


def _check_looks(runs: Sequence[RunConfig], rule: Rule, first_seed: int) -> None:
    for place in places(run.folder for run in runs):
        for sweep in sweeps.read(place)[0]:
            seen = any((place / "runs" / run / "rows.csv").exists() for run in sweep.runs)
            begun = declared_rule([sweep.rule])
            if seen and begun and begun != (rule, first_seed):
                raise BadRequest(
                    f"{place} was begun with {in_words(*begun)}, and this command has {in_words(rule, first_seed)}. A "
                    "rule chosen after a look makes more false alarms: repeat the first, or take another name= and "
                    "seeds that nobody has seen, such as seed=100"
                )


def check_own(runs: Iterable[RunConfig]) -> None:
    """Refuse, before the others are trained, an encoder from outside of which no run can be done."""
    own = dict[str, list[RunConfig]]()
    for run in runs:
        if outside(get(run.encoder["name"])):
            own.setdefault(run.encoder["name"], []).append(run)
    for theirs in own.values():
        for run in theirs:
            try:
                prepare(run)
                break
            except BadRequest:
                if run is theirs[-1]:
                    raise


def doubts(runs: Sequence[RunConfig]) -> list[str]:
    """Return a line for each encoder from outside that was not checked as its file is now, or that broke a promise.

    And for each model from outside whose training length can be doubted.
    """
    lengths = {(run.checkpoint, run.task.get("train_length", 0)) for run in runs if run.checkpoint}
    found = [text for each in sorted(lengths) if (text := checkpoint.doubt(*each))]
    for name in sorted({str(run.encoder["name"]) for run in runs if not run.checkpoint}):
        if not outside(get(name)):
            continue
        file = Path(inspect.getfile(get(name)))
        told, command = check.outcome(file, name), f"python -m pe_zoo check {shlex.quote(as_typed(file))}"
        if told.startswith(check.NOT_CHECKED):
            found.append(f"{name}: {check.NOT_CHECKED}: {command}")
        elif ", 0 fail" not in told:
            found.append(f"{name}: {told}; {command} says which")
    return found


def places(folders: Iterable[Path]) -> list[Path]:
    """Return the ``results/<name>`` of some run folders, each once."""
    return list(dict.fromkeys(folder.parent.parent for folder in folders))
