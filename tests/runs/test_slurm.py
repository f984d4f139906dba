"""A sweep on a real Slurm of one node: done once, requeued at its time limit, gone on with when a job is killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support import LONG, Command, ended, record_of, runs_of, start, tally, two_at_work, until

pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="slurm is an extra")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "squeue")

CONFIG = """
ClusterName=test
SlurmctldHost={host}({address})
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
MpiDefault=none
NodeName={host} NodeAddr={address} CPUs=2 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
SACCT = r"""#!/bin/sh
# Debian's Slurm keeps no accounts without a database: the controller tells the same of jobs it has not forgotten.
echo 'JobID|State|NodeList'
scontrol show job --oneliner |
    sed -nE 's/.*ArrayJobId=([0-9]+) ArrayTaskId=([0-9]+).* JobState=([A-Z_]+).*/\1_\2|\3|node/p'
"""

pytestmark = [
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason="takes Slurm: apt-get install slurmctld slurmd"),
    pytest.mark.timeout(1800),
]
SLURM = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=5", "name=swept"]


def free_ports() -> list[int]:
    taken = [socket.socket() for _ in range(2)]
    for one in taken:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A controller and a node of its own; the environment in which they are found."""
    folder = Path(tempfile.mkdtemp(prefix="slurm"))
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir()
    config = folder / "slurm.conf"
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    host = socket.gethostname().partition(".")[0]
    config.write_text(CONFIG.format(host=host, address="127.0.0.1", user=user, ports=free_ports(), folder=folder))
    (folder / "bin" / "sacct").write_text(SACCT)
    (folder / "bin" / "sacct").chmod(0o755)
    env = {"SLURM_CONF": str(config), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    daemons = [
        subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in (["slurmctld", "-D"], ["slurmd", "-D"])
    ]
    try:
        try:
            until(lambda: "idle" in asked(env, "sinfo", "-h", "-o", "%T"), "the node to be ready", seconds=120)
        except AssertionError:
            logs = "\n".join(log.read_text()[-1500:] for log in folder.glob("*.log"))
            pytest.fail(f"Slurm does not start here:\n{logs}")
        yield env
    finally:
        asked(env, "scancel", "--user", user, "--signal=KILL")
        asked(env, "scancel", "--user", user)
        with suppress(AssertionError):
            until(lambda: not asked(env, "squeue", "-h"), "jobs to end", seconds=30)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
        shutil.rmtree(folder, ignore_errors=True)


def asked(env: dict[str, str], *command: str) -> str:
    """What one of Slurm's programs says."""
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False).stdout


def test_a_sweep_on_slurm(slurm: dict[str, str], tmp_path: Path, command: Command) -> None:
    sweep = [*LONG, "seed=0,1", *SLURM]
    with start(tmp_path, *sweep, env=slurm) as process:
        first, second = two_at_work(tmp_path, "swept", process).items()
        jobs = asked(slurm, "squeue", "--noheader", "--array", "--format=%i").split()
        assert sorted(job.partition("_")[2] for job in jobs) == ["0", "1"], "a job of an array for each run"
        requeued = min(jobs, key=lambda job: job.partition("_")[2])
        asked(slurm, "scancel", "--signal=USR2", requeued)  # what Slurm says before the time limit
        until(lambda: asked(slurm, "squeue", "-h", "-t", "PD", "-o", "%i"), "the job to be in the queue again")
        assert record_of(first[0])["status"] == "interrupted"
        os.kill(second[1], signal.SIGKILL)
        # It would wait two minutes; but in the second in which it was put back, a node takes it for one that was ended.
        asked(slurm, "scontrol", "update", f"JobId={requeued}", "StartTime=now+3")
        (tmp_path / "go").touch()
        stopped = ended(process)
    assert stopped.returncode == 1, stopped.stderr
    assert tally(stopped.stdout) == {"done": 1, "interrupted": 1}
    assert second[0].name in stopped.stdout
    assert "Traceback" not in stopped.stderr
    assert record_of(first[0])["resumed"] > 0
    found = command("-m", *LONG, "seed=0,1", "name=swept")  # an engine can be left for another with as many threads
    assert found.code == 0, found.err
    assert tally(found.out) == {"finished before": 1, "done": 1}
    assert [record_of(run)["threads"] for run in runs_of(tmp_path, "swept")] == [1, 1]
    assert record_of(second[0])["resumed"] > 0
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"go", "results", "slow.py"}, (
        "something was left"
    )
