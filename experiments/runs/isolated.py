"""Run code of others in a process of its own: without network, with a time limit and without environment variables.

It may read and write what the user may: a person has to have read it.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from experiments.runs.pool import FOR_ALL, ROOT

SPACES = (["unshare", "--net"], ["unshare", "--net", "--map-root-user"])
"""What gives a process a network namespace of its own, which leads nowhere: as root, and as anybody."""
TIMED_OUT = 124
GUARD = """
import runpy, sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"):
        raise PermissionError("there is no network here")
sys.addaudithook(refuse)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SYSTEMROOT")
"""Environment variables that such a process keeps; tokens and keys are not among them."""


@cache
def network_space() -> list[str] | None:
    """Return the command that runs another without network; None where the system has none."""
    for words in SPACES:
        try:
            if not subprocess.run([*words, "true"], capture_output=True, check=False, timeout=10).returncode:
                return words
        except (OSError, subprocess.SubprocessError):
            continue
    return None


def described() -> str:
    """Say how the network is kept away."""
    if network_space():
        return "no network (a namespace of its own)"
    return "no network from Python; this system cannot keep programs that it starts from the network"


def run(words: list[str], folder: Path, seconds: float) -> tuple[str, int]:
    """Run a Python file with arguments in a folder; return what it printed and its exit code."""
    space = network_space()
    python = [*space, sys.executable] if space else [sys.executable, "-c", GUARD]
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    env |= FOR_ALL | {
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(folder),
        "MPLCONFIGDIR": str(folder / ".matplotlib"),
    }
    with subprocess.Popen(
        [*python, *words],
        cwd=folder,
        env=env,
        text=True,
        errors="replace",
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            return process.communicate(timeout=seconds)[0], process.returncode
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s", TIMED_OUT
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started, too
