"""A sweep on a real Ray of this machine: gone on with where a worker is lost, and after all were."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support import LONG, Command, at_work, ended, record_of, runs_of, start, tally, two_at_work, until

from experiments.runs import folder as _folder

pytest.importorskip("hydra_plugins.hydra_ray_launcher", reason="ray is an extra")
psutil = pytest.importorskip("psutil")
pytestmark = pytest.mark.timeout(1800)

RAY = [
    "hydra/launcher=ray",
    "name=swept",
    "hydra.launcher.ray.init.address=local",
    "+hydra.launcher.ray.init.num_cpus=2",
]


@pytest.fixture
def home() -> Iterator[dict[str, str]]:
    """An environment in which Ray finds nothing of others and leaves nothing behind; its sockets take short paths."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    try:
        # By itself Ray gives way to whatever else the machine does, which may be other tests for minutes.
        yield {"HOME": str(folder), "RAY_TMPDIR": str(folder), "RAY_ADDRESS": "", "RAY_worker_niceness": "0"}
    finally:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("RAY_TMPDIR") == str(folder):  # of a cluster whose driver was killed
                    process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def has_gone_on(run: Path) -> bool:
    """Whether a second worker has written its record, some time after it took the run and the first one's away."""
    record = _folder.record_of(run)
    return record is not None and bool(record["resumed"])


def test_a_worker_is_killed_and_then_all_are_told_to_stop(
    home: dict[str, str], tmp_path: Path, command: Command
) -> None:
    with start(tmp_path, *LONG, "seed=0,1", *RAY, env=home) as process:
        killed, worker = min(two_at_work(tmp_path, "swept", process).items())
        os.kill(worker, signal.SIGKILL)
        until(lambda: has_gone_on(killed), "another worker to go on")
        two_at_work(tmp_path, "swept", process)
        process.send_signal(signal.SIGTERM)
        stopped = ended(process)
    assert stopped.returncode == 143, stopped.stderr
    assert tally(stopped.stdout) == {"interrupted": 2}
    assert "the same command resumes" in stopped.stderr
    until(lambda: not at_work(tmp_path, "swept"), "the workers to end")
    assert record_of(killed)["resumed"] == 1
    left = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {"results", "slow.py"}, "something was left"

    (tmp_path / "go").touch()
    found = command("-m", *LONG, "seed=0,1", "name=swept")  # an engine can be left for another with as many threads
    assert found.code == 0, found.err
    assert tally(found.out) == {"done": 2}
    assert all(record_of(run)["resumed"] for run in runs_of(tmp_path, "swept"))
