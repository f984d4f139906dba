"""``python run.py --verify <folder> [--yes]``: does a submission hold? Its form, its looks, the contract, and re-runs.

Form and looks are read. The contract check and `REPEATED` runs, chosen by a hash of what was handed in, execute the
submitted encoder, each in a process of its own (see `isolated`). On a machine of the same kind the rows must be equal
bit for bit, on another one within the tolerance of `rounding`.
"""

import hashlib
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.plan.refusal import BadRequest
from experiments.rows import results, submission
from experiments.rows.read import Table, read_run, training_seconds
from experiments.rows.row import write_json
from experiments.rows.submission import BADGE, VERIFIED, Submission
from experiments.rows.untrusted import message_of
from experiments.runs import isolated, pool, rerun, rounding
from experiments.runs.arguments import VERIFY
from experiments.runs.declared import faults
from experiments.runs.provenance import commit, now, processor
from experiments.runs.submit import checked
from experiments.training.heartbeat import doing

AGREE = "--yes"
REPEATED = 3
LEAST_SECONDS, SLOWER = 600, 10
"""Time limit of a re-run: the larger of some seconds and a multiple of what the run took."""
KIND = ("torch", "python", "device", "processor", "precision", "threads", "processes")
"""What two runs have in common that are made on machines of the same kind."""


class Refused(Exception):
    """The submission does not hold."""


def verify(words: Sequence[str]) -> int:
    """Verify the submission that a command line names; return 0 if it holds, 1 if it does not.

    What is found goes to ``verified.json`` and ``badge.json`` in its folder; a refusal removes both. BadRequest if
    there is no submission, or nobody agreed that its encoder is executed.
    """
    places = [word for word in words if word not in (VERIFY, AGREE)]
    if len(places) != 1:
        raise BadRequest(f"{VERIFY} takes one folder, {submission.PLACE}/<who>/<name>, and {AGREE}")
    try:
        found = submission.read(Path(places[0]))
        with submission.unpacked(found) as place:
            signed = _verified(found, place, agreed=AGREE in words)
    except Refused as reason:
        for name in (VERIFIED, BADGE):
            (Path(places[0]) / name).unlink(missing_ok=True)
        print(f"not verified: {reason}")
        return 1
    except (ValueError, OSError) as error:
        raise BadRequest(message_of(error)) from error
    write_json(found.folder / VERIFIED, signed)
    badge = {"schemaVersion": 1, "label": "pe-zoo", "message": signed["verdict"], "color": "brightgreen"}
    write_json(found.folder / BADGE, badge)
    print(f"{found.who}/{found.name}: {signed['verdict']}\n{Path(places[0]) / VERIFIED}")
    return 0


def _verified(found: Submission, place: Path, *, agreed: bool) -> dict[str, Any]:
    if problems := faults(place):
        raise Refused("; ".join(problems[:5]))
    print(f"format, sweep and seeds: {len(list((place / 'runs').iterdir()))} runs are as declared", flush=True)
    made_with = {config.get("plugin", "null") for config in results.read(place).configs.values()} - {"null"}
    if bool(made_with) != bool(found.files) or not made_with <= submission.digests_of(found.sources):
        raise Refused(f"{', '.join(found.files) or 'no plug-in'} is not what the runs were made with")
    files = ", ".join(map(str, found.sources))
    if files and not agreed:
        raise BadRequest(
            f"the rest executes {files} by {found.who} on this machine, with {isolated.described()}, a time limit, and "
            f"your rights to files: read it, then add {AGREE}"
        )
    try:
        with doing("checking the contract"):
            printed = checked(found.sources, found.encoders)
    except ValueError as error:
        raise Refused(message_of(error)) from error
    if (found.folder / submission.CHECK).read_text("utf-8") != printed:
        raise Refused(
            f"{submission.CHECK} is not what the check prints here: python report.py results/… --submit again"
        )
    promises = printed.strip().splitlines()[-1]
    print(promises, flush=True)
    runs = {run: _repeated(found, place, run) for run in chosen(found, place)}
    return {
        "verdict": f"{len(runs)} of {len(runs)} re-run",
        "submission": found.digest,
        "when": now(),
        "commit": commit(),
        "torch": torch.__version__,
        "processor": processor(),
        "isolation": isolated.described(),
        "check": promises,
        "runs": runs,
    }


def chosen(found: Submission, place: Path) -> list[str]:
    """Return the runs to repeat, as a hash of the submission decides; first one of a submitted encoder."""
    digest = found.digest
    runs = results.read(place).runs
    order = sorted(runs["run_id"], key=lambda run: hashlib.sha256(f"{digest}{run}".encode()).hexdigest())
    own = {run for run, name in runs[["run_id", "encoder"]].to_numpy() if str(name).partition("(")[0] in found.encoders}
    first = next((run for run in order if run in own), order[0])
    return [first, *(run for run in order if run != first)][:REPEATED]


def _repeated(found: Submission, place: Path, run: str) -> str:
    """Repeat a run and return how equal it is; Refused if it is not."""
    folder, again = place.parent.parent, place.with_name(f"{place.name}-rerun")
    shutil.rmtree(again, ignore_errors=True)
    record, _, before = read_run(place / "runs" / run, place)
    seconds = (training_seconds(record) or 0) + (record.get("measure_seconds") or 0)
    words = [str(pool.ROOT / "run.py"), "--rerun", str(place / "runs" / run)]
    words += [f"plugin=[{','.join(map(str, found.sources))}]"] if found.files else []
    with doing(f"repeating {run}"):
        printed, code = isolated.run(words, folder, max(LEAST_SECONDS, SLOWER * seconds))
    if not (again / "runs" / run).is_dir():
        last = [line for line in printed.splitlines() if line.strip()][-1:] or [f"exit code {code}"]
        other = [path.name for path in again.glob("runs/*")]
        reason = f"its configuration is that of {other[0]}" if other else message_of(last[0])
        raise Refused(f"{run} cannot be repeated ({shlex.join(words[1:2])}): {reason}")
    repeated, _, after = read_run(again / "runs" / run, again)
    if before is None or after is None:
        raise Refused(f"{run} cannot be repeated: {repeated.get('message')}")
    how = equal((record, before), (repeated, after), list(rounding.other_seeds(place / "runs" / run)))
    if how is None:
        raise Refused(f"{run} differs: {message_of(rerun.compare(before, after)[1].splitlines()[-1])}")
    print(f"{run}: {how}", flush=True)
    return how


def equal(
    first: tuple[Mapping[str, Any], Table],
    second: tuple[Mapping[str, Any], Table],
    others: Sequence[rounding.Rows] = (),
) -> str | None:
    """Return in which sense two runs (record and rows) are the same; None if not. ``others`` have other seeds."""
    (record, before), (other, after) = first, second
    if rerun.compare(before, after)[0]:
        return "the same, bit for bit"
    alike = record.get("processor") and all((record.get(key) or 1) == (other.get(key) or 1) for key in KIND)
    looked_at = rounding.judged(before)
    if alike or not looked_at or rounding.astray(looked_at, rounding.judged(after), others):
        return None
    return "the same within the rounding of another processor or torch"
