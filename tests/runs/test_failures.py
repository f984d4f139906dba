"""What goes wrong in one run is told and stops no other; what goes wrong with the disk is mended by starting again."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import TINY, Command, record_of, run_of

import report
from pe_zoo.alibi import ALiBi


def test_a_failed_run_is_repeated_on_request_alone(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(ALiBi, "score", exhausted)
        done = command("-m", *TINY, "encoder=none,alibi")
        assert done.code == 1
        assert "2 runs: 1 done, 1 failed" in done.out
    again = command("-m", *TINY, "encoder=none,alibi")
    assert again.code == 1
    assert "2 runs: 1 finished before, 1 failed before" in again.out
    assert "failed before (MemoryError: planted); retry=failed" in again.err
    retried = command("-m", *TINY, "encoder=none,alibi", "retry=failed")
    assert retried.code == 0
    assert "2 runs: 1 finished before, 1 done" in retried.out


def test_retry_takes_nothing_else(command: Command) -> None:
    done = command(*TINY, "retry=everything")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "retry must be one of failed; got 'everything'" in done.err


def test_a_diverged_run_is_listed_and_not_repeated(command: Command) -> None:
    wild = [*TINY, "train.learning_rate=1e30", "train.gradient_clip=1e30"]
    assert command(*wild).code == 1
    again = command(*wild)
    assert again.code == 1
    assert "finished before, diverged: the loss was" in again.out


def test_a_folder_that_vanishes_costs_its_run_alone(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = ALiBi.score

    def vanishing(self: ALiBi, *given: object) -> object:
        for run in (tmp_path / "results" / "scratch" / "runs").glob("alibi-*"):
            shutil.rmtree(run)
        return score(self, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(ALiBi, "score", vanishing)
        done = command("-m", *TINY, "encoder=alibi,none")
    assert done.code == 1
    assert "results cannot be written" in done.err
    assert "Traceback" not in done.err
    assert "2 runs: 1 unwritten, 1 done" in done.out
    assert command("-m", *TINY, "encoder=alibi,none").code == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte, for whoever may mount one."""
    place = tmp_path / "results"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("a small disk takes the right to mount one")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="mounts a tmpfs")
def test_a_full_disk_is_said_and_mended_by_starting_again(command: Command, tmp_path: Path, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"0" * 450_000)
    done = command(*TINY)
    assert done.code in (1, 2)
    assert "results cannot be written" in done.err
    assert "No space left on device" in done.err
    assert "Traceback" not in done.err
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert command(*TINY).code == 0
    assert record_of(run_of(tmp_path))["status"] == "ok"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="mounts a tmpfs")
def test_a_read_only_folder_is_said_and_can_still_be_looked_at(
    command: Command, tmp_path: Path, small_disk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(small_disk)], check=True)

    remount("size=64m")
    assert command(*TINY).code == 0
    remount("ro")
    before = sorted(small_disk.rglob("*"))
    for request in ([*TINY, "seed=1"], ["-m", *TINY, "seed=1,2"]):
        refused = command(*request)
        assert refused.code in (1, 2)
        assert "read-only" in refused.err.lower()
        assert "Traceback" not in refused.err
    folder = str(small_disk / "scratch")
    assert report.main([folder, "--status"]) == 0
    capfd.readouterr()
    assert report.main([folder]) in (1, 2)
    assert "read-only" in (said := capfd.readouterr().err).lower()
    assert len(said.splitlines()) == 1
    assert sorted(small_disk.rglob("*")) == before
    remount("rw")
    assert command(*TINY, "seed=1").code == 0
