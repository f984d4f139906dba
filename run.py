"""One run, or a sweep of them: compose, train, measure, write rows and figures. ``python run.py --help``."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.training.parallel import Team

REPEAT = "--rerun"
CONFIGS = Path(__file__).resolve().parent / "configs"
INTERRUPTED = "interrupted; the same command goes on from where this one stopped"


def main() -> int:
    """The command line. Exit code: 0 all done, 1 a run failed or diverged, 2 a bad request."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        from experiments.runs.help import text

        print(text())
        return 0
    # Before torch and Hydra are loaded: repeatable GPU kernels, and Hydra's errors as exceptions.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        from experiments.training.parallel import Team
        from experiments.training.processes import joined

        with joined(Team) as team:
            return repeat(team) if REPEAT in sys.argv[1:] else command(team)
    except KeyboardInterrupt as stopped:
        if os.environ.get("RANK", "0") == "0":  # of several processes that share a run, one speaks
            print(INTERRUPTED, file=sys.stderr)
        return getattr(stopped, "exit_code", 130)


def repeat(team: Team) -> int:
    """``--rerun results/<name>/runs/<run_id> [plugin=FILE.py]``: 0 where the rows came out the same, 1 where not."""
    from experiments.plan.plan import BadRequest
    from experiments.runs import rerun

    _begin()
    places = [word for word in sys.argv[1:] if word != REPEAT and not word.startswith("plugin=")]
    plugins = [word.removeprefix("plugin=") for word in sys.argv[1:] if word.startswith("plugin=")]
    try:
        if len(places) != 1 or len(plugins) > 1:
            raise BadRequest(
                f"{REPEAT} takes one folder, results/<name>/runs/<run_id>, and plugin=FILE.py if it had one"
            )
        done = rerun.rerun(Path(places[0]), plugins[0] if plugins else None, team)
    except BadRequest as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\n{done.text}\nIts files: {done.outcome.folder}")
    return 0 if done.same else 1


def command(team: Team) -> int:
    """Hand the command line to Hydra, and what it composes to the pipeline."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from experiments.rows.untrusted import message_of
    from experiments.runs import config, summary
    from experiments.runs import launch as _launch
    from pe_zoo import PluginError

    _begin()
    launch = None
    try:
        sys.argv[1:] = config.check_flags(sys.argv[1:])
        config.load_named_plugin(sys.argv[1:])
        with tempfile.TemporaryDirectory() as folder:
            config.publish(folder)
            config.check_launcher(sys.argv[1:], team.size)
            parts = config.expand(sys.argv[1:], CONFIGS)
            launch = _launch.Launch(sys.argv[1:], len(parts), team)
            for part in parts:
                sys.argv[1:] = config.with_choices(part)
                with config.before_launch(launch.hear):
                    hydra.main(config_path=str(CONFIGS), config_name="config", version_base="1.3")(launch.next())()
            launch.close()
    except (HydraException, OmegaConfBaseException, ValueError, PluginError) as error:
        if launch and launch.begun:  # composing is over: this is ours, not the user's
            raise
        print(f"error: {message_of(config.explain(error))}", file=sys.stderr)
        return 2
    finally:
        if launch:
            summary.tally(launch.outcomes())
    return launch.exit_code()


def _end_at_once(signum: int, _: FrameType | None) -> None:
    """Ctrl-C while modules are imported, which some of them would take for an error of their own."""
    if os.environ.get("RANK", "0") == "0":
        print(INTERRUPTED, file=sys.stderr, flush=True)
    os._exit(128 + signum)


def _begin() -> None:
    """All is imported: from here on Ctrl-C is an exception again."""
    if signal.getsignal(signal.SIGINT) is _end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as in the background
        signal.signal(signal.SIGINT, _end_at_once)
    sys.exit(main())
