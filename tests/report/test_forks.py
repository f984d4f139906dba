"""Work done by copies of a process: all of it, in order, whatever becomes of the copies, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from support import ROOT, write_sweep

import report
from experiments.figures import forks, style
from experiments.report import build, page
from experiments.report.page import Page, Picture, Section

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux alone")

MANY = range(24)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "cores", lambda: 2)


def done(work: Any, things: Any = MANY) -> list[Any]:
    with forks.each(work, things) as results:
        found = list(results)
    assert not multiprocessing.active_children()
    return found


def test_copies_do_all_of_it_in_order() -> None:
    found = done(lambda thing: (thing, os.getpid()))
    assert [thing for thing, _ in found] == list(MANY)
    assert os.getpid() not in {process for _, process in found}


@pytest.mark.parametrize("cores", [1, 2])
def test_one_thing_or_one_core_needs_no_copies(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "cores", lambda: cores)
    things = range(1) if cores == 2 else MANY
    assert done(lambda thing: (thing, os.getpid()), things) == [(thing, os.getpid()) for thing in things]


def test_what_a_killed_copy_leaves_is_done() -> None:
    here = os.getpid()

    def work(thing: int) -> int:
        if thing == 5 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return thing

    assert done(work) == list(MANY)


@pytest.mark.parametrize("had", [0, 1])
def test_where_no_more_processes_are_to_be_had_this_one_does_it(had: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fork
    made: list[int] = []

    def fork() -> int:
        if len(made) == had:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        made.append(real())
        return made[-1]

    monkeypatch.setattr(os, "fork", fork)
    assert done(lambda thing: (thing, os.getpid())) == [(thing, os.getpid()) for thing in MANY]
    assert len(made) == had


def test_an_error_is_raised_as_it_is_at_its_turn() -> None:
    def work(thing: int) -> int:
        if thing == 3:
            raise ValueError(f"thing {thing} cannot be drawn")
        return thing

    with forks.each(work, MANY) as results:
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match=r"^thing 3 cannot be drawn$"):
            next(results)
    assert not multiprocessing.active_children()


def test_whoever_leaves_early_leaves_no_copy() -> None:
    def interrupted() -> None:
        with forks.each(lambda thing: thing, MANY) as results:
            next(results)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not multiprocessing.active_children()
    assert done(lambda thing: -thing) == [-thing for thing in MANY]


def test_copies_end_with_the_process_that_they_serve() -> None:
    code = (
        "import multiprocessing, time\nfrom experiments import forks\n_forks.cores = lambda: 3\n"
        "with forks.each(lambda thing: thing, range(30)) as results:\n"
        "    list(results)\n"
        "    print(*(copy.pid for copy in multiprocessing.active_children()), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        copies = [int(copy) for copy in process.stdout.readline().split()]
        assert len(copies) == 3
        process.kill()
    for _ in range(600):
        if not any(alive(copy) for copy in copies):
            return
        time.sleep(0.1)
    pytest.fail("a minute later copies are still there")


def test_a_page_is_the_same_whoever_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path) -> Path:
        section = Section("figures", parts=[Picture(f"figure{number}", "one", a_figure(number)) for number in MANY])
        return page.write(Page("a page", [], [], [], [section]), folder).parent

    alone, shared = (files_of(write, cores, tmp_path, monkeypatch) for cores in (1, 2))
    assert len(alone) == 2 * len(MANY) + 2
    assert shared == alone


@pytest.mark.parametrize("tasks", [("copy",), ("copy", "reverse")])
def test_a_report_is_the_same_whoever_draws_it(
    tasks: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(folder: Path) -> Path:
        for task in tasks:
            write_sweep(folder / "sweep", ("none", "alibi"), seeds=2, task=task)
        assert report.main([str(folder / "sweep")]) == 0
        return folder / "sweep" / "report"

    alone, shared = (files_of(write, cores, tmp_path, monkeypatch) for cores in (1, 2))
    assert alone[Path("index.html")].count(b"data:image/svg") > 3 * len(tasks)
    assert shared == alone


def files_of(
    write: Callable[[Path], Path], cores: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[Path, bytes]:
    """What is written where there are so many cores; which processes draw it, is seen to."""
    here, drawn, real = os.getpid(), folder / f"{cores}-drawn", style.renderings

    def renderings(figure: Figure) -> dict[str, bytes]:
        with drawn.open("a") as file:
            file.write("here\n" if os.getpid() == here else "in a copy\n")
        return real(figure)

    with monkeypatch.context() as patched:
        patched.setattr(style, "renderings", renderings)
        for module in (forks, build):
            patched.setattr(module, "cores", lambda: cores)
        place = folder / str(cores)
        place.mkdir()
        written = write(place)
    assert set(drawn.read_text().splitlines()) == {"here" if cores == 1 else "in a copy"}
    return {path.relative_to(written): path.read_bytes() for path in written.rglob("*.*")}


def a_figure(number: int) -> Figure:
    with style.theme():
        figure = Figure(figsize=(2, 1))
        figure.subplots().plot([0, number], [1, 2], label=str(number))
        figure.suptitle(f"figure {number}")
    return figure


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # that nobody has asked for it is the machine's affair
