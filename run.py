"""One run, or a sweep of them: compose, train, measure, write rows and figures. ``python run.py --help``."""

import os
import signal
import sys

from experiments.plan.refusal import BadRequest
from experiments.runs import arguments, names, pool
from experiments.runs.help import CONFIGS, text
from experiments.training import heartbeat


def main() -> int:
    """Run the command line.

    Exit code: 0 all done, 1 a run failed or diverged, 2 a bad request, 3 its time is spent, 130 Ctrl-C.
    """
    words = sys.argv[1:]
    try:
        if asked := {"-h", "--help"} & set(words):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # --help is read through head
            print(text(*words[words.index(asked.pop()) + 1 :][:1]))
            return 0
        if not {arguments.RERUN, arguments.VERIFY} & set(words) and "RANK" not in os.environ:
            given = arguments.read(words)
            names.check(given.overrides, CONFIGS, given.config_dir, multirun=given.multirun)
    except BadRequest as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    os.environ.update(pool.FOR_ALL | os.environ)
    if {"-m", "--multirun"} & set(words) and "launcher" not in "".join(words) and pool.cores() > 1:
        pool.warm_up()
    leads = os.environ.get("RANK", "0") == "0"  # of several processes that share a run, one prints
    heartbeat.listen(quiet=not leads)
    try:
        with heartbeat.beating(), heartbeat.doing("preparing"):
            from experiments.runs import launch  # torch and Hydra take seconds, which --help need not wait for

            return launch.run(words, CONFIGS)
    except KeyboardInterrupt as stopped:
        if leads:
            print("interrupted; the same command resumes where this one stopped", file=sys.stderr)
        return getattr(stopped, "exit_code", 130)


if __name__ == "__main__":
    sys.exit(main())
