"""What ``python run.py`` does: read a command line, compose its runs, do them here or in workers, count them."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.plan.request import BadRequest
from experiments.rows.untrusted import message_of
from experiments.runs import arguments, config, rerun, sweep
from experiments.runs.launch import Launch
from experiments.training.parallel import Team, joined
from pe_zoo import PluginError


def run(words: list[str], configs: Path) -> int:
    """Do what a command line asks for.

    Args:
        words: the command line, without the program.
        configs: the folder of the configuration files.

    Returns:
        the exit code: 0 all done, 1 a run failed or diverged, 2 a bad request.
    """
    with joined() as team:
        try:
            if arguments.RERUN in words:
                return _rerun(words, team)
            given = arguments.read(words)
            config.load_plugin(given.overrides)
            config.publish()
            lines = sweep.expand(given.overrides, configs, multirun=given.multirun)
            if given.shows:
                config.show(given, configs)
                return 0
            config.check_launcher(given, team.size)
            with config.initialized(configs, given.config_dir):
                launch = Launch(given, team)
                for point in sweep.points(lines, multirun=given.multirun):
                    launch.add(point)
                return launch.start(config.engine(lines[0]))
        except (*config.ERRORS, BadRequest, PluginError) as error:
            print(f"error: {message_of(config.explain(error))}", file=sys.stderr)
            return 2


def _rerun(words: list[str], team: Team) -> int:
    """``--rerun results/<name>/runs/<run_id> [plugin=FILE.py]``: 0 where the rows came out the same, 1 where not."""
    places = [word for word in words if word != arguments.RERUN and not word.startswith("plugin=")]
    plugins = [word.removeprefix("plugin=") for word in words if word.startswith("plugin=")]
    if len(places) != 1 or len(plugins) > 1:
        raise BadRequest(
            f"{arguments.RERUN} takes one folder, results/<name>/runs/<run_id>, and plugin=FILE.py if the run had one"
        )
    second = rerun.rerun(Path(places[0]), plugins[0] if plugins else None, team)
    print(f"\n{second.text}\nfiles: {second.outcome.folder}")
    return 0 if second.same else 1
