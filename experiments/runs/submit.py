"""``python report.py results/<name> --submit <who>``: hand in results, as a folder that anybody can verify."""

import os
import re
import shlex
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.rows import results, submission
from experiments.rows.read import ARCHIVE
from experiments.rows.results import Results
from experiments.rows.row import write_json
from experiments.rows.untrusted import message_of
from experiments.runs import isolated, pool
from experiments.runs.declared import faults
from experiments.statistics.baselines import BASELINES

CHECK_SECONDS = 600


def submit(folder: Path, who: str, licence: str) -> Path:
    """Write ``results/submissions/<who>/<name>`` beside a folder of results; return its path from the working folder.

    ValueError if a name cannot be used, the runs are not those of one declared sweep, the encoder's file is not the one
    they were made with, or breaks a promise, or there is such a submission.
    """
    name = folder.resolve().name
    submission.check(who, name, licence=licence)
    target = Path(os.path.relpath(folder.resolve().parent / submission.PLACE / who / name))
    if target.exists():
        raise ValueError(f"there is a submission in {str(target)!r}: remove it first, or run under another name=")
    if (folder / ARCHIVE).is_file():
        raise ValueError(f"{str(folder)!r} came packed with the code: submit a sweep of your own")
    found = results.read(folder)
    if problems := faults(folder):
        raise ValueError(f"the runs are not those of one declared sweep: {'; '.join(problems[:3])}")
    sources, encoders = _sources(found, folder), _encoders(found)
    with TemporaryDirectory() as temporary:
        place = Path(temporary) / who / name
        place.mkdir(parents=True)
        for source in sources:
            shutil.copy(source, place / source.name)
        (place / submission.CHECK).write_text(checked([place / source.name for source in sources], encoders), "utf-8")
        submission.pack(folder, place / ARCHIVE)
        record = {
            "who": who,
            "name": name,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "licence": licence,
            "encoders": encoders,
            "files": [source.name for source in sources],
        }
        write_json(place / submission.RECORD, record)
        submission.read(place)
        shutil.copytree(place, target)
    return target


def checked(sources: Iterable[Path], encoders: Iterable[str]) -> str:
    """Check encoders against the contract, in a process without network, and return what that printed.

    ValueError if a promise does not hold.
    """
    printed = []
    for asked in map(str, list(sources) or encoders):
        with TemporaryDirectory() as empty:
            words = [str(pool.ROOT / "pe_zoo" / "__main__.py"), "check", asked]
            text, code = isolated.run(words, Path(empty), CHECK_SECONDS)
        if code:
            last = [line for line in text.splitlines() if line.strip()][-1:] or [f"exit code {code}"]
            raise ValueError(f"python -m pe_zoo check {Path(asked).name}: {message_of(last[0])}")
        printed.append(text)
    return "".join(printed)


def _encoders(found: Results) -> list[str]:
    """Return the encoders from outside; else those that are no baseline."""
    runs = found.runs
    outside = runs.loc[[isinstance(source, dict) for source in runs["source"]], "encoder"]
    names = sorted({str(encoder).partition("(")[0] for encoder in (outside if len(outside) else runs["encoder"])})
    return [name for name in names if name not in BASELINES] or names


def _sources(found: Results, folder: Path) -> list[Path]:
    """Return the plug-in files that the runs were made with, by their command; ValueError if they have changed."""
    made_with = {run: config.get("plugin", "null") for run, config in found.configs.items()}
    of_own = found.runs[found.runs["run_id"].map(made_with) != "null"]
    if of_own.empty:
        return []
    words = [word for word in shlex.split(str(of_own["command"].iloc[0])) if word.startswith("plugin=")]
    named = re.split(r"[\[\],]", words[0].partition("=")[2]) if words else []
    paths, places = list[Path](), (Path.cwd(), folder.resolve().parent.parent)
    for name in map(Path, filter(None, named)):
        here = [place / name for place in places if (place / name).is_file()]
        if not here:
            raise ValueError(f"the plug-in {str(name)!r} is not here: run this where the sweep was started")
        paths.append(here[0])
    if not {*made_with.values()} - {"null"} <= submission.digests_of(paths):
        raise ValueError(f"{', '.join(path.name for path in paths)} changed since the runs: restore it, or run again")
    return paths
