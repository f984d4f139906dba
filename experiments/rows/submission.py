"""A submission: results of other people, ``results/submissions/<who>/<name>/``. Nothing of it is imported or executed.

It holds ``submission.json`` (who, when, licence, encoders, files), ``runs.tar.xz`` (runs and the record of their sweep,
packed as those that come with the code), ``check.txt`` (what the contract check printed) and the encoder's file, if it
is not one of the zoo. What a verification finds is not handed in: `experiments.runs.verify` adds ``verified.json`` and
``badge.json``.
"""

import hashlib
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.rows.read import ARCHIVE
from experiments.rows.untrusted import check_file, read_mapping, stays_within

PLACE, RECORD, CHECK = "submissions", "submission.json", "check.txt"
VERIFIED, BADGE = "verified.json", "badge.json"
ASIDE = ("runs", "sweeps", "report", "export")
"""What ``report.py`` leaves in a folder of results; here nothing reads it, and it is no part of a submission."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
"""What people, results and files of a submission may be called."""
LICENCES = (
    *("MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "GPL-3.0-only", "GPL-3.0-or-later"),
    *("0BSD", "Unlicense", "CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0"),
)
"""What a submission may be under: SPDX identifiers."""
MEMBER = re.compile(r"runs|sweeps|runs/[^/]+|runs/[^/]+/(config\.yaml|rows\.csv|run\.json)|sweeps/[^/]+\.json")
MOST_MEMBERS, MOST_BYTES = 20_000, 2**30
"""Of a submission's archive, unpacked."""


@dataclass(frozen=True)
class Submission:
    """What ``submission.json`` says of a submission, and how its last verification ended.

    Args:
        encoders: that it is about, by name.
        files: their source files, if they are not of the zoo, in the submission's folder.
        verified: ``3 of 3 re-run``; blank where nobody verified it as it is now.
    """

    folder: Path
    who: str
    name: str
    when: str
    licence: str
    encoders: tuple[str, ...]
    files: tuple[str, ...]
    verified: str = ""

    @property
    def sources(self) -> list[Path]:
        """The paths of its source files."""
        return [self.folder / name for name in self.files]

    @property
    def digest(self) -> str:
        """The sha256 of everything that was handed in."""
        parts = (hashlib.sha256((self.folder / name).read_bytes()).hexdigest() for name in self.contents)
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    @property
    def contents(self) -> list[str]:
        """The names of the files that were handed in."""
        return [RECORD, ARCHIVE, CHECK, *sorted(self.files)]


def read(folder: Path) -> Submission:
    """Return the submission in a folder.

    ValueError if it is none: a file is missing, a name or an entry cannot be used, or something else lies there.
    """
    folder = Path(folder).absolute()
    if not (folder / RECORD).is_file():
        inside = ", ".join(sorted(path.parent.name for path in folder.glob(f"*/{RECORD}")))
        which = f"name one of those in it: {inside}" if inside else "report.py results/<name> --submit <who> makes one"
        raise ValueError(f"no submission in {str(folder)!r}: {which}")
    record = read_mapping(folder / RECORD, folder)
    who, name, when, licence = (str(record.get(key) or "") for key in ("who", "name", "when", "licence"))
    encoders, files = (tuple(map(str, record.get(key) or ())) for key in ("encoders", "files"))
    if not all((who, name, when, licence, encoders)):
        raise ValueError(f"{RECORD} needs who, name, when, licence and encoders")
    found = Submission(folder, who, name, when, licence, encoders, files)
    check(who, name, *files, licence=licence)
    if (place := (folder.parent.name, folder.name)) != (who, name):
        raise ValueError(f"{RECORD} names {who}/{name}, but its folder is {'/'.join(place)}: make them the same")
    if strangers := {path.name for path in folder.iterdir()} - {*found.contents, VERIFIED, BADGE, *ASIDE}:
        raise ValueError(f"{min(strangers)} is no part of the submission: remove it")
    for part in found.contents:
        (stays_within if part == ARCHIVE else check_file)(folder / part, folder)
    check_archive(folder / ARCHIVE)
    return replace(found, verified=_verified(found))


def check(*names: str, licence: str) -> None:
    """Raise ValueError unless people, results and files have usable names and the licence is a known one."""
    for name in names:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be used as a name: use letters, digits, . _ and -")
    if licence not in LICENCES:
        raise ValueError(f"{licence!r} is no licence for a submission. Allowed: {', '.join(LICENCES)}")


def digests_of(paths: Iterable[Path]) -> set[str]:
    """Return what runs made with any of some plug-in files may declare, as `pe_zoo.load_files` has it."""
    digests, found = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths), set[str]()
    for size in range(2, len(digests) + 1):
        found |= {hashlib.sha256("".join(some).encode()).hexdigest() for some in combinations(digests, size)}
    return found | {*digests}


def _verified(found: Submission) -> str:
    try:
        signed = read_mapping(found.folder / VERIFIED, found.folder)
    except FileNotFoundError:
        return ""
    return str(signed.get("verdict") or "") if signed.get("submission") == found.digest else ""


def below(results: Path) -> Iterator[Submission | str]:
    """Yield every submission in ``results/submissions``, or the reason why one cannot be read."""
    for path in sorted((results / PLACE).glob(f"*/*/{RECORD}")):
        try:
            yield read(path.parent)
        except (ValueError, OSError) as error:
            yield f"{path.parent.parent.name}/{path.parent.name}: {error}"


def check_archive(path: Path) -> None:
    """Raise ValueError unless an archive holds runs and sweeps and nothing else, of a reasonable size."""
    count = size = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                count, size = count + 1, size + member.size
                if not MEMBER.fullmatch(member.name) or not (member.isfile() or member.isdir()):
                    raise ValueError(f"{path.name}: {member.name!r} is neither a run's file nor a sweep's")
                if count > MOST_MEMBERS or size > MOST_BYTES:
                    most = f"{MOST_MEMBERS:,} files and {MOST_BYTES:,} bytes"
                    raise ValueError(f"{path.name} holds more than {most}: submit fewer runs")
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error


@contextmanager
def unpacked(found: Submission) -> Iterator[Path]:
    """Unpack the runs of a submission into a temporary ``results/<name>`` and yield that folder."""
    with TemporaryDirectory(prefix="pe-zoo-") as temporary:
        place = Path(temporary) / "results" / found.name
        place.mkdir(parents=True)
        with tarfile.open(found.folder / ARCHIVE) as archive:
            archive.extractall(place, filter="data")
        yield place


def pack(folder: Path, target: Path) -> None:
    """Pack the runs of ``results/<name>`` and the record of their sweeps; the same runs give the same bytes."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in _members(folder):
            archive.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=plain)


def _members(folder: Path) -> Iterable[Path]:
    paths = [*folder.glob("runs"), *folder.glob("runs/*"), *folder.glob("runs/*/*"), *folder.glob("sweeps")]
    paths += folder.glob("sweeps/*.json")
    return sorted(path for path in paths if MEMBER.fullmatch(path.relative_to(folder).as_posix()))
