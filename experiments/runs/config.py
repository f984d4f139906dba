"""The one bridge to Hydra: registries become menus, signatures become options, and a mistake becomes one line."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    OmegaConfBaseException,
    ValidationError,
)

import pe_zoo
from experiments.model.layout import Layout
from experiments.plan.plan import (
    LAST_SEED,
    BadRequest,
    ModelConfig,
    RunConfig,
    check_name,
    experiment_names,
    load_experiment,
)
from experiments.runs.arguments import check_hydra_flags, check_overrides, check_words
from experiments.tasks import tasks
from experiments.training.loop import TrainConfig
from pe_zoo._knobs import Knob, listing, suggestion, whole

MENUS: dict[str, tuple[Callable[[], Iterable[str]], Callable[[str], type]]] = {
    "encoder": (pe_zoo.names, pe_zoo.get),
    "task": (tasks.names, tasks.get),
    "positions": (pe_zoo.numberings.names, pe_zoo.numberings.get),
}
"""Groups whose choices are registered classes; a choice's options are the class's knobs."""


LISTS = ("sweep", "reproduce")
"""Groups whose choices are lists of runs."""
LAUNCHERS = {"joblib": "joblib", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}
"""Engines that run a sweep in workers, and the extra that installs each."""
GROUPS = (*MENUS, "layout", "model", "train", *LISTS)
"""Everything that is chosen by name."""
MOST_SEEDS = 10_000
"""As many runs as a report is made for."""


@dataclass(kw_only=True)
class Request:
    """What is asked on the command line besides the groups.

    Args:
        experiment: what to measure, a name, a list of names, or ``all``.
        seed: the run's seed, at least 0.
        seeds: how many seeds to run, from ``seed`` on; trained together on a GPU, elsewhere one after another.
        name: folder under ``results/``.
        device: ``auto`` (the GPU if there is one), ``cpu``, ``cuda``, …
        tune: try the learning rates of ``train.learning_rates`` and keep the best, instead of ``train.learning_rate``.
        plugin: a Python file that registers encoders of your own.
        force: run again what has ended, in place of its files; what was interrupted goes on.
        retry: ``failed`` runs again what has failed.
        checkpoint_seconds: between one checkpoint of a run and the next, at least; more where one takes long to write.
        tracker: a tracker that is told how a run goes (``tensorboard``, ``wandb``, …), or a list of them.
        figures: whether a run gets figures of its own; null: if it is not one of a sweep, whose report has them.
    """

    experiment: Any = MISSING
    seed: int = 0
    seeds: int = 1
    name: str = "scratch"
    device: str = "auto"
    tune: bool = False
    plugin: str | None = None
    force: bool = False
    retry: str | None = None
    checkpoint_seconds: float = 30.0
    tracker: Any = None
    figures: bool | None = None


# In a worker, which gets no folder for Hydra's files: where it is, and nothing is written there.
OmegaConf.register_new_resolver("hydra_folder", lambda: ".", replace=True)


def publish(hydra_folder: str) -> None:
    """Offer Hydra everything that is registered (``encoder=<name>`` needs no file), and a folder for its own files."""
    store = ConfigStore.instance()
    for group, (names, get) in MENUS.items():
        for name in names():
            node = _options(name, pe_zoo.knobs(get(name)).values(), named=True)
            store.store(group=group, name=name, node=node, provider="pe_zoo")
    store.store(name="request", node=_schema(), provider="pe_zoo")
    Plugins.instance()  # imports launchers, which offer their settings; ours build on them
    for name in LAUNCHERS:
        if found := store.repo["hydra"]["launcher"].pop(f"{name}.yaml", None):
            store.store(group="hydra/launcher", name=f"{name}_settings", node=found.node, provider="pe_zoo")
    OmegaConf.register_new_resolver("hydra_folder", lambda: hydra_folder, replace=True)


def _schema() -> type:
    """All options there are, with their types; an experiment's knobs hang below its name."""
    fields: list[tuple[str, Any, Any]] = [(group, Any, MISSING) for group in MENUS]
    for name, node in {"layout": Layout, "model": ModelConfig, "train": TrainConfig}.items():
        fields.append((name, node, field(default_factory=node)))
    for name in experiment_names():
        node = _options(name, pe_zoo.knobs(load_experiment(name).measure).values())
        fields.append((name, node, field(default_factory=node)))
    return make_dataclass("Options", fields, bases=(Request,), kw_only=True)


def _options(name: str, knobs: Iterable[Knob], *, named: bool = False) -> type:
    """A dataclass of knobs. Tuples become lists, which is what OmegaConf has."""
    fields: list[tuple[str, Any, Any]] = [("name", str, name)] if named else []
    for knob in knobs:
        if get_origin(knob.type) is tuple:
            items = list(knob.default)
            fields.append((knob.name, list[get_args(knob.type)[0]], field(default_factory=items.copy)))  # type: ignore[misc]
        else:
            fields.append((knob.name, knob.type, knob.default))
    return make_dataclass(f"{name}_options", fields)


def requested(composed: DictConfig) -> list[RunConfig]:
    """A composed configuration to the runs it asks for, one per seed.

    Raises:
        BadRequest: for what Hydra lets pass.
    """
    try:
        return _requested(composed)
    except OmegaConfBaseException as error:
        raise BadRequest(explain(error)) from error
    except (ValueError, LookupError) as error:
        raise BadRequest(str(error)) from error


def _requested(composed: DictConfig) -> list[RunConfig]:
    config = _plain(composed)
    choices = HydraConfig.get().runtime.choices
    for group in LISTS:
        if choices.get(group) and HydraConfig.get().mode is RunMode.RUN:
            raise BadRequest(f"+{group}={choices[group]} is a list of runs: add -m to run them all")
    for group in MENUS:
        if not isinstance(config[group], dict):
            raise BadRequest(f"{group}={config[group]!r} chooses nothing.{listing('Known', MENUS[group][0]())}")
    chosen = config["experiment"] if isinstance(config["experiment"], list) else [config["experiment"]]
    if not chosen:
        raise BadRequest(f"experiment=[] measures nothing.{listing('Known', experiment_names())}")
    if chosen == ["all"]:
        chosen = experiment_names()
    for name in chosen:
        load_experiment(name)
    _check_typed(config, chosen)
    whole("seeds", config["seeds"], at_least=1, at_most=MOST_SEEDS)
    last = config["seed"] + config["seeds"] - 1
    whole("seed" if config["seeds"] == 1 else "the last of seeds", last, at_least=0, at_most=LAST_SEED)
    plugin = pe_zoo.load_file(config["plugin"]) if config["plugin"] else None
    return [
        RunConfig(
            encoder=config["encoder"],
            task=config["task"],
            positions=config["positions"],
            layout=_typed(Layout, "layout", config["layout"]),
            model=_typed(ModelConfig, "model", config["model"]),
            train=_typed(TrainConfig, "train", config["train"]),
            experiments={name: config[name] for name in dict.fromkeys(chosen)},
            seed=seed,
            name=config["name"],
            device=config["device"],
            tune=config["tune"],
            plugin=plugin,
            choice=str(choices.get("encoder", "")),
        )
        for seed in range(config["seed"], config["seed"] + config["seeds"])
    ]


def _check_typed(config: Mapping[str, Any], measured: Collection[str]) -> None:
    """Refuse what was given of experiments that are not measured, and numbers for true or false.

    In a sweep an experiment's option may concern some of its runs alone; what it says is checked there too.
    """
    for name in experiment_names():
        if name not in measured:
            load_experiment(name, config[name])
    typed = HydraConfig.get()
    for override in OverridesParser.create().parse_overrides(list(typed.overrides.task)):
        key = override.key_or_group
        name = key.partition(".")[0]
        if typed.mode is RunMode.RUN and name in experiment_names() and name not in measured:
            raise BadRequest(f"{key} changes nothing without experiment={name} (or all)")
        taken: Any = config
        for part in key.split("."):
            taken = taken.get(part) if isinstance(taken, Mapping) else None
        _check_truth(key, override.value(), taken)


def _check_truth(key: str, given: Any, taken: Any) -> None:
    """Refuse a number that has become true or false, in braces too: ``model={causal:3}``."""
    if isinstance(given, Mapping) and isinstance(taken, Mapping):
        for name, value in given.items():
            _check_truth(f"{key}.{name}", value, taken.get(str(name)))
    elif isinstance(taken, bool) and isinstance(given, int | float) and not isinstance(given, bool):
        raise BadRequest(f"{key} must be true or false; got {given}")


def handling(composed: DictConfig) -> dict[str, Any]:
    """How runs are handled that were started before: what `run` takes besides the configuration."""
    figures = HydraConfig.get().mode is RunMode.RUN if composed.figures is None else composed.figures
    return {key: composed[key] for key in ("force", "retry", "checkpoint_seconds", "tracker")} | {"figures": figures}


def _plain(composed: DictConfig) -> dict[str, Any]:
    """As plain data. ``+zzz=1`` passes Hydra: what is not an option must not vanish."""
    plain = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(plain, dict)
    known = signature(_schema()).parameters
    for name in plain:
        if name not in known:
            raise BadRequest(f"no option {name!r}.{suggestion(str(name), known)}{listing('Known', known)}")
    return {str(name): value for name, value in plain.items()}


def _typed(node: type, group: str, given: Mapping[str, Any]) -> Any:
    """As its dataclass, which refuses ``+model.widht=3``, as Hydra does not."""
    known = signature(node).parameters
    for name in given:
        if name not in known:
            raise BadRequest(f"no option {group}.{name}.{suggestion(name, known)}{listing('Known', known)}")
    return node(**given)


def explain(error: BaseException) -> str:
    """Hydra's and OmegaConf's errors in one line: what was given, what is allowed, the nearest to it."""
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, given = str(error.missing_cfg_file).rpartition("/")
        kind = {"positions": "numbering"}.get(group, group)
        return f"no {kind} named {given!r}.{suggestion(given, error.options)}{listing('Known', error.options)}"
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.full_key:
        return _explain_unknown(cause)
    if isinstance(cause, ValidationError) and cause.full_key:
        return f"{cause.full_key}: {_in_one_line(cause, lines=1)}"
    said = _in_one_line(error)
    if (unread := said.removeprefix("LexerNoViableAltException: ")) != said:
        return f"cannot read {unread.removesuffix(' ^')!r}: put such a value in quotes, \"option='value'\""
    if isinstance(error, OverrideParseException) and error.override not in said:
        return f"cannot read {error.override!r}: {said}"
    if isinstance(error, InterpolationResolutionError):
        said = _in_one_line(error, lines=1).partition("interpolation: ")[2] or said
        return f"{error.full_key}: {said}" if error.full_key else said
    return f"{said.split('1. ')[0]}: a list of values needs -m" if said.startswith("Ambiguous value") else said


def _explain_unknown(cause: ConfigKeyError | ConfigAttributeError) -> str:
    given = str(cause.full_key)
    below = given.rpartition(".")[0]
    known = [f"{below}.{key}" if below else str(key) for key in cause.parent_node or () if key not in ("name", "hydra")]
    return f"no option {given!r}.{suggestion(given, known)}{listing('Known', known)}"


def _in_one_line(error: BaseException, lines: int = 2) -> str:
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(said[:lines]) or type(error).__name__


def expand(arguments: list[str], configs: Path) -> list[list[str]]:
    """A command line to one for each part of the sweep file it names; to itself if that has no parts.

    A sweep of Hydra's is all combinations of some lists. A comparison that is not (these encoders on that task, others
    on another) is a file with ``parts``, each a command line of its own, which may name a sweep of parts in turn. What
    the user gives replaces what a part says.

    ``encoder=all`` is a list of every encoder there is.

    Raises:
        BadRequest: parts, or all encoders, without ``-m``.
    """
    if (every := "encoder=all") in arguments:
        _only_in_sweeps(every, arguments)
        arguments = [f"encoder={','.join(pe_zoo.names())}" if word == every else word for word in arguments]
    named = [argument for argument in arguments if argument.partition("=")[0] in [f"+{group}" for group in LISTS]]
    file = configs.joinpath(*f"{named[0].lstrip('+')}.yaml".split("=", 1)) if len(named) == 1 else None
    content = yaml.safe_load(file.read_text(encoding="utf-8")) if file is not None and file.is_file() else {}
    if "parts" not in content:
        return [arguments]
    _only_in_sweeps(named[0], arguments)
    kept = [argument for argument in arguments if argument != named[0]]
    given = {argument.partition("=")[0] for argument in kept}
    lines = []
    for part, times in itertools.product(content["parts"], content.get("times", [""])):
        words = (f"name={content['name']}", *part.split(), *times.split())
        lines += expand([*kept, *(word for word in words if word.partition("=")[0] not in given)], configs)
    return lines


def _only_in_sweeps(word: str, arguments: list[str]) -> None:
    if not {"-m", "--multirun"} & set(arguments):
        raise BadRequest(f"{word} is a list of runs: add -m to run them all")


def with_choices(arguments: list[str]) -> list[str]:
    """A command line on which ``encoder=learned,tupe encoder.num_rows=64`` means what it says.

    Hydra composes once before it sweeps, without what is swept over: with the default encoder, which may have no such
    option. A choice of one is swept over too.
    """
    if not {"-m", "--multirun"} & set(arguments):
        return arguments
    try:
        parsed = {
            word: OverridesParser.create().parse_override(word)
            for word in arguments
            if not word.startswith("-") and "=" in word
        }
    except HydraException:  # which says so itself
        return arguments
    several = {override.key_or_group for override in parsed.values() if override.is_sweep_override()}
    chosen = []
    for word in arguments:
        override = parsed.get(word)
        below = override is not None and override.key_or_group.partition(".")[0] in several
        if override is not None and below and "." in override.key_or_group and not override.is_sweep_override():
            key, _, value = word.partition("=")
            word = f"{key}=choice({value})"
        chosen.append(word)
    return chosen


def runs_of(sweeper: Sweeper, overrides: Sequence[str]) -> list[RunConfig]:
    """The runs that one point of a sweep asks for.

    Raises:
        BadRequest: see `requested`.
        PluginError: as for a single run.
    """
    assert sweeper.config is not None
    assert sweeper.hydra_context is not None
    config = sweeper.hydra_context.config_loader.load_sweep_config(sweeper.config, list(overrides))
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    runs = requested(config)
    try:
        for name in {run.name for run in runs}:
            check_name(name)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    return runs


@contextlib.contextmanager
def before_launch(hear: Callable[[Sweeper, Sequence[Sequence[str]]], None]) -> Iterator[None]:
    """Within, the points of a sweep are told before the first of them starts, where Hydra composes all as a check."""
    plain = Sweeper.validate_batch_is_legal
    Sweeper.validate_batch_is_legal = lambda sweeper, batch: hear(sweeper, batch)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Sweeper.validate_batch_is_legal = plain  # type: ignore[method-assign]


def is_basic(launcher: object) -> bool:
    """Whether a launcher runs one after another in this process."""
    return type(launcher).__name__ == "BasicLauncher"  # Hydra imports its own plugins a second time


def batch_size(launcher: Any) -> int | None:
    """How many jobs an engine may be given at once, if ``hydra.sweeper.max_batch_size`` limits them."""
    return OmegaConf.select(launcher.config, "hydra.sweeper.max_batch_size")


def cpus_per_task() -> int | None:
    """The cores of this process, where its engine was told of them."""
    composed: Any = HydraConfig.instance().cfg  # None where Hydra has composed nothing
    return None if composed is None else OmegaConf.select(composed, "hydra.launcher.cpus_per_task")


def check_launcher(arguments: Sequence[str], processes: int) -> None:
    """Refuse an engine that is not installed, or that would have nothing to do.

    Args:
        arguments: the command line.
        processes: how many share it.

    Raises:
        BadRequest: it is.
    """
    offered = ConfigStore.instance().list("hydra/launcher")
    for argument in arguments:
        key, _, name = argument.lstrip("+").partition("=")
        if not key.startswith(("hydra/launcher", "hydra.launcher")):
            continue
        if not {"-m", "--multirun"} & set(arguments):
            raise BadRequest(f"{argument} is for the runs of a sweep: add -m")
        if processes > 1:
            raise BadRequest(f"{argument} starts workers of its own: leave it out under torchrun")
        if key == "hydra/launcher" and name in LAUNCHERS and f"{name}_settings.yaml" not in offered:
            raise BadRequest(f"{argument} is not installed here: pip install 'pe-zoo[{LAUNCHERS[name]}]'")


def check_flags(arguments: list[str]) -> list[str]:
    """The command line with Hydra's flags first, since it takes none after an override.

    Raises:
        BadRequest: for a flag that Hydra does not know.
    """
    overrides = [argument for argument in arguments if "=" in argument and not argument.startswith("-")]
    flags = [argument for argument in arguments if argument not in overrides]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            given = get_args_parser().parse_args(flags + overrides)
    except SystemExit as refused:
        if refused.code:
            last = complaint.getvalue().strip().splitlines()[-1]
            raise BadRequest(f"{last.partition('error: ')[2]}; python run.py --help lists what there is") from None
    else:
        check_hydra_flags(vars(given))
        check_words(given.overrides, {group: names() for group, (names, _) in MENUS.items()})
    check_overrides(arguments, GROUPS)
    return flags + overrides


def load_named_plugin(arguments: Iterable[str]) -> None:
    """Import the file of ``plugin=path`` before the menus are made, so that its encoders are on them."""
    for argument in arguments:
        if argument.lstrip("+").partition("=")[0] != "plugin":
            continue
        override = OverridesParser.create().parse_override(argument)
        if override.is_sweep_override():
            raise BadRequest(f"{argument} is more than one file: one may register all the encoders of a sweep")
        path = override.value()
        if isinstance(path, list | dict):
            raise BadRequest(f"{argument} is no file: give the path of one")
        if path not in ("", None):
            pe_zoo.load_file(str(path))
