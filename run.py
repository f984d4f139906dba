"""One run, or a sweep of them: compose, train, measure, write rows and figures. ``python run.py --help``."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

REPEAT = "--rerun"
CONFIGS = Path(__file__).resolve().parent / "configs"


def main() -> int:
    """The command line. Exit code: 0 all done, 1 a run failed or diverged, 2 a bad request."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        from experiments._help import text

        print(text())
        return 0
    # Before torch and Hydra are loaded: repeatable GPU kernels, and Hydra's errors as exceptions.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        return repeat() if REPEAT in sys.argv[1:] else command()
    except KeyboardInterrupt as stopped:
        print("interrupted; the same command goes on from where this one stopped", file=sys.stderr)
        return getattr(stopped, "exit_code", 130)


def repeat() -> int:
    """``--rerun results/<name>/runs/<run_id> [plugin=FILE.py]``: 0 where the rows came out the same, 1 where not."""
    from experiments import _rerun
    from experiments._plan import BadRequest

    places = [word for word in sys.argv[1:] if word != REPEAT and not word.startswith("plugin=")]
    plugins = [word.removeprefix("plugin=") for word in sys.argv[1:] if word.startswith("plugin=")]
    try:
        if len(places) != 1 or len(plugins) > 1:
            raise BadRequest(
                f"{REPEAT} takes one folder, results/<name>/runs/<run_id>, and plugin=FILE.py if it had one"
            )
        done = _rerun.rerun(Path(places[0]), plugins[0] if plugins else None)
    except BadRequest as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\n{done.text}\nIts files: {done.outcome.folder}")
    return 0 if done.same else 1


def command() -> int:
    """Hand the command line to Hydra, and what it composes to the pipeline."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from experiments import _config, _summary
    from experiments._arguments import in_one_line
    from experiments._pipeline import Outcome, Stopped, run
    from experiments._plan import BadRequest
    from pe_zoo import PluginError

    outcomes: list[Outcome] = []
    refused = 0
    started: list[str] = []
    said: set[str] = set()

    @hydra.main(config_path=str(CONFIGS), config_name="config", version_base="1.3")
    def job(composed: DictConfig) -> None:
        nonlocal refused
        started.append("composed")
        try:
            for config in _config.requested(composed):
                try:
                    outcomes.append(run(config, **_config.handling(composed)))
                except Stopped as stopped:
                    outcomes.append(stopped.outcome)
                    _summary.show(stopped.outcome)
                    raise
                _summary.show(outcomes[-1])
        except (BadRequest, PluginError) as error:
            if str(error) not in said:  # once, however many runs of a sweep it stops
                print(f"error: {in_one_line(error)}", file=sys.stderr)
            said.add(str(error))
            refused += 1

    try:
        sys.argv[1:] = _config.check_flags(sys.argv[1:])
        _config.load_named_plugin(sys.argv[1:])
        with tempfile.TemporaryDirectory() as folder:
            _config.publish(folder)
            asked = shlex.join(["python", "run.py", *sys.argv[1:]])
            parts = _config.expand(sys.argv[1:], CONFIGS)
            for number, part in enumerate(parts, start=1):
                sys.argv[1:] = part
                started.clear()
                with _config.noting(asked, number, len(parts)):
                    job()
    except (HydraException, OmegaConfBaseException, ValueError, PluginError) as error:
        if started:  # composing is over: this is ours, not the user's
            raise
        print(f"error: {in_one_line(_config.explain(error))}", file=sys.stderr)
        return 2
    finally:
        if outcomes and len(outcomes) + refused > 1:
            _summary.tally(outcomes, refused)
    return 2 if refused else max(map(_summary.exit_code, outcomes), default=0)


if __name__ == "__main__":
    sys.exit(main())
