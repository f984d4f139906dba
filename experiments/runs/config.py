"""The one bridge to Hydra: menus from registries, command lines to runs, launchers, and each mistake in one line."""

import itertools
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.experimental.callback import Callback
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, errors

import pe_zoo
from experiments.plan import checkpoint, places
from experiments.plan.measures import experiment_names, load_experiment
from experiments.plan.prepare import check_name, data_sha256
from experiments.plan.refusal import BadRequest, refusing
from experiments.plan.request import LAST_SEED, RunConfig, mentioned
from experiments.rows.stretches import samples_for
from experiments.runs import options, pool
from experiments.runs.arguments import LAUNCHER, Arguments, is_hydras
from experiments.runs.job import Job
from experiments.runs.names import DECLARED, LISTS, UNTIL_DECIDED, several
from experiments.runs.options import MENUS, PARCEL, PARTS
from experiments.statistics.rule import Rule
from pe_zoo._knobs import hint, listing, number, whole

ERRORS = (HydraException, errors.OmegaConfBaseException)
LAUNCHERS = {"submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}
"""Engines that run a sweep on a cluster, and the extra that installs each."""
MOST_SEEDS = 10_000
"""As many runs as a report is made for."""
MOST_WORKERS = 1024
VERSION = "1.3"


def publish() -> None:
    """Offer Hydra everything that is registered: ``encoder=<name>`` needs no file."""
    store = ConfigStore.instance()
    for group, (names, get) in MENUS.items():
        for name in names():
            node = options.choice(name, pe_zoo.knobs(get(name)).values())
            store.store(group=group, name=name, node=node, provider="pe_zoo")
    store.store(name="request", node=options.schema(), provider="pe_zoo")
    _move_launchers()


def _move_launchers() -> None:
    """Store the settings of launchers under names of their own, for ours in configs/ to build on."""
    Plugins.instance()  # imports them
    store = ConfigStore.instance()
    for name in LAUNCHERS:  # moved, since Hydra takes stored settings for a schema of a file with their name
        if stored := store.repo["hydra"]["launcher"].pop(f"{name}.yaml", None):
            store.store(group=LAUNCHER, name=f"{name}_settings", node=stored.node, provider="pe_zoo")


@contextmanager
def initialized(configs: Path, config_dir: str | None) -> Iterator[None]:
    """Let Hydra find its files within the block."""
    if config_dir is not None and not Path(config_dir).is_dir():
        raise BadRequest(f"--config-dir={config_dir} is no folder")
    for name in ("hydra", "hydra_plugins"):
        logging.getLogger(name).setLevel(logging.WARNING)
    _move_launchers()  # again: an engine in this process restores Hydra's state
    with hydra.initialize_config_dir(str(configs), job_name="pe_zoo", version_base=VERSION):
        _search[:] = [f"hydra.searchpath=['file://{Path(config_dir).resolve()}']"] if config_dir else []
        chosen.cache_clear()
        yield


_search: list[str] = []


def show(given: Arguments, configs: Path) -> None:
    """Let Hydra answer flags that only show something."""
    flags = [word for word in given.words if word not in given.overrides]
    sys.argv[1:] = flags + given.overrides  # it takes no flags after an override
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors as exceptions, for `explain`
    with refusing():
        hydra.main(config_path=str(configs), config_name="config", version_base=VERSION)(lambda _: None)()


def compose(*overrides: str) -> DictConfig:
    """Return the configuration of one run."""
    values = list(filter(_is_value, _parse(overrides)))
    lines = {each.input_line for each in values}
    config = deepcopy(chosen(*(word for word in overrides if word not in lines)))
    try:
        for each in values:
            OmegaConf.update(config, each.key_or_group, each.value())
    except errors.OmegaConfBaseException:
        return chosen(*overrides)  # which says what is wrong
    return config


@lru_cache(maxsize=256)
def chosen(*overrides: str) -> DictConfig:
    """Let Hydra compose what was chosen from its groups, a quarter of a second each; values are set in a copy of it."""
    return hydra.compose("config", overrides=[*_search, *overrides], return_hydra_config=True)


def _is_value(override: Override) -> bool:
    plain = override.type is OverrideType.CHANGE and override.package is None and not override.is_sweep_override()
    return plain and override.key_or_group not in (*MENUS, *PARTS) and not is_hydras(override.input_line or "")


def _parse(words: Iterable[str]) -> list[Override]:
    return OverridesParser.create(config_loader=GlobalHydra.instance().config_loader()).parse_overrides(list(words))


def points(lines: Iterable[list[str]], *, multirun: bool) -> Iterator[Sequence[str]]:
    """Yield the overrides of every point of a sweep that expanded command lines ask for."""
    for line in lines:
        yield from itertools.product(*_values([word for word in line if not is_hydras(word)])) if multirun else [line]


def _values(words: Sequence[str]) -> list[list[str]]:
    lists = [word for word in words if word.startswith(tuple(f"+{group}=" for group in LISTS))]
    params = compose(*lists).hydra.sweeper.params if lists else None
    swept: dict[str, list[str]] = {}
    for override in _parse([*(f"{key}={value}" for key, value in (params or {}).items()), *words]):
        key = override.get_key_element()
        if not override.is_sweep_override():
            swept[key] = [f"{key}={override.get_value_element_as_str()}"]
        elif override.is_discrete_sweep():
            swept[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise BadRequest(f"{override.input_line} has no end: list the values, {key}=1,2")
    return list(swept.values())


def job_of(words: Sequence[str], *, multirun: bool) -> Job:
    """Compose a point of a sweep, or a single request, to its runs; BadRequest for what Hydra lets pass."""
    composed = compose(*words)
    try:
        plain = {str(name): value for name, value in composed.items() if name != "hydra"}
        _check_options("", options.schema(), plain)  # ``+zzz=1`` passes Hydra, and must not vanish
        resolve = OmegaConf.to_container
        config = {key: resolve(of, resolve=True) if OmegaConf.is_config(of) else of for key, of in plain.items()}
        return _job(config, composed.hydra.runtime.choices, words, multirun)
    except errors.OmegaConfBaseException as error:
        raise BadRequest(explain(error)) from error
    except (ValueError, LookupError) as error:
        raise BadRequest(str(error)) from error


def _job(config: dict[str, Any], choices: Mapping[str, Any], words: Sequence[str], multirun: bool) -> Job:
    for group in LISTS:
        if choices.get(group) and not multirun:
            raise BadRequest(f"+{group}={choices[group]} is a list of runs: add -m to run them all")
    for group, (names, _) in MENUS.items():
        if not isinstance(config[group], dict):
            raise BadRequest(f"{group}={config[group]!r} chooses nothing.{listing('Known', names())}")
    measured = _measured(config["experiment"])
    _check_given(words, config, measured, multirun)
    if config["recipe"] and choices.get("layout") != "uniform":
        layout, remedy = choices.get("layout"), "leave layout= out, or set single options, layout.windows=…, on top"
        raise BadRequest(
            f"encoder={config['recipe']} has a layout of its own, and layout={layout} is another; {remedy}"
        )
    check_name(config["name"])
    first, count = config["seed"], whole("seeds", config["seeds"], at_least=1, at_most=MOST_SEEDS)
    whole("seed" if count == 1 else "the last of seeds", first + count - 1, at_least=0, at_most=LAST_SEED)
    for group, node in PARTS.items():  # ``+model.widht=3`` passes Hydra
        _check_options(f"{group}.", node, config[group])
    digest, plugin = "", config["plugin"] or []
    plugins = [plugin] if isinstance(plugin, str) else plugin
    if config["checkpoint"]:
        digest, plugins = checkpoint.digest_of(config["checkpoint"]), _others(plugins, config["checkpoint"])
        _measure_checkpoint(config, words)
    elif config["task"].get("measured") == "all":
        raise BadRequest("task.measured=all holds no text out: it is for checkpoint=, where nothing is trained")
    run = RunConfig(
        **{key: config[key] for key in ("encoder", "task", "positions", "seed", "name", "device", "threads", "tune")},
        **{group: node(**config[group]) for group, node in PARTS.items()},
        experiments={name: config[name] for name in measured},
        checkpoint=config["checkpoint"],
        checkpoint_sha256=digest,
        data=data_sha256(config["task"]),
        choice=str(choices.get("encoder", "")),
        recipe=config["recipe"],
    )
    if plugins:  # the runs of other encoders stay what they are when a file is edited
        run = replace(run, plugin=pe_zoo.load_files(plugins, mentioned(run.identity())))
    handling = {key: config[key] for key in options.HANDLING}
    if handling["figures"] is None:
        handling["figures"] = not multirun
    return Job([replace(run, seed=seed) for seed in range(first, first + count)], handling, plugins)


def _measure_checkpoint(config: dict[str, Any], words: Sequence[str]) -> None:
    """Give the task what a checkpoint brings, and refuse what changes nothing in a model that is measured as it is."""
    given = {override.key_or_group for override in _parse(word for word in words if not is_hydras(word))}
    for key in sorted(given):
        group = key.partition(".")[0]
        if group in ("encoder", "layout", "model", "train", "tune", "positions"):
            put = "; pe_zoo.hf.use(model, name) puts another encoder into it: save that, and measure it"
            own = put if group == "encoder" else ""
            raise BadRequest(f"{key} changes nothing with checkpoint=: the model is measured as it is{own}")
    place, task = config["checkpoint"], config["task"]
    has_text = places.SOURCE in given or any(task.get(knob.removeprefix("task.")) for knob in places.TEXTS)
    places.check_question(place, task["name"], task, config["experiment"], has_text, places.TOKENIZER in given)
    extension = config["context_extension"]
    if extension.get("fine_tuning_share"):
        remedy = "leave it out, or train the model on by pe_zoo.hf.use and measure that"
        raise BadRequest(f"context_extension.fine_tuning_share is for models that are trained here; {remedy}")
    if "context_extension.multiples" not in given:  # more takes minutes and, of a real model, much memory
        extension["multiples"] = [1.0, 4.0]
    if "context_extension.samples" not in given and task["name"] == "text":  # other tasks make any number of sequences
        load_experiment("context_extension", extension)  # a multiple that is none has no number of pieces
        extension["samples"] = max(extension["samples"], samples_for(max(extension["multiples"], default=1.0)))
    if "shift_sensitivity.samples" not in given:  # so that both measures read the same windows
        config["shift_sensitivity"]["samples"] = extension["samples"]
    if {"measured", "duplicates"} <= task.keys():
        if not task["dataset"]:  # a data set has a test split of its own
            task |= {} if "task.measured" in given else {"measured": "all"}
        task |= {} if "task.duplicates" in given else {"duplicates": "kept"}
    for knob, value in checkpoint.defaults(place).items():
        if f"task.{knob}" not in given and knob in task and "tokenizer" in task:
            if value is None:
                raise BadRequest(checkpoint.lengthless(place))
            task[knob] = value
    reach = checkpoint.reach(place)
    if reach and task.get("train_length", 0) > reach:
        made = f"checkpoint={place!r} was made for {reach} positions, and"
        more = "what it does beyond them is measured at multiples of its own length: context_extension.multiples=[1,4]"
        raise BadRequest(f"{made} task.train_length={task['train_length']} is more; leave it out, {more}")


def _others(files: list[str], place: str) -> list[str]:
    """Return the plug-in files but the one that ``checkpoint=my_model:logits`` names."""
    named = place.partition(":")[0].removesuffix(".py")
    return [file for file in files if Path(file).with_suffix("").as_posix() != named]


def _measured(given: Any) -> list[str]:
    names = given if isinstance(given, list) else [given]
    if not names:
        raise BadRequest(f"experiment=[] measures nothing.{listing('Known', experiment_names())}")
    if names == ["all"]:
        return experiment_names()
    for name in names:
        load_experiment(name)
    return list(dict.fromkeys(names))


def _check_given(words: Sequence[str], config: Mapping[str, Any], measured: Collection[str], multirun: bool) -> None:
    """Refuse options of measures that are not taken (by no run of a sweep, perhaps), and numbers for true or false."""
    others = [name for name in experiment_names() if name not in measured]
    for name in others:
        load_experiment(name, config[name])
    for override in _parse(word for word in words if not is_hydras(word)):
        key = override.key_or_group
        name = key.partition(".")[0]
        if name in others and not multirun:
            raise BadRequest(f"{key} changes nothing without experiment={name} (or all)")
        if name == "recipe":
            raise BadRequest("recipe= only names a file of configs/encoder: choose a recipe by encoder=<name>")
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


def _check_options(prefix: str, node: type, given: Iterable[str]) -> None:
    known = signature(node).parameters
    for name in (name for name in given if name not in known):
        option = f"{prefix}{name}" if prefix else repr(name)
        raise BadRequest(f"no option {option}.{hint(name, known)}")


def plugins_in(words: Collection[str]) -> list[str]:
    """Return the files of ``plugin=path`` or ``plugin=[path,path]``, to be imported before the menus are made."""
    found: list[str] = []
    for word in [word for word in words if word.lstrip("+").partition("=")[0] == "plugin"]:
        override = OverridesParser.create().parse_override(word)
        if override.is_sweep_override():
            raise BadRequest(f"{word} is more than one file for each run: write plugin=[a.py,b.py]")
        paths = override.value()
        if isinstance(paths, dict):
            raise BadRequest(f"{word} is no file: give the path of one, or a list of paths")
        found += [str(path) for path in (paths if isinstance(paths, list) else [paths]) if path not in ("", None)]
    for place in (word.partition("=")[2] for word in words if word.startswith("checkpoint=")):
        found = _others(found, place)
    return found


def check_launcher(given: Arguments, processes: int) -> None:
    """Refuse an engine that is not installed, or that would have nothing to do."""
    offered = ConfigStore.instance().list(LAUNCHER)
    for word in given.overrides:
        key, _, name = word.lstrip("+").partition("=")
        if key.startswith((LAUNCHER, "hydra.launcher", "workers")):
            if not given.multirun:
                raise BadRequest(f"{word} is for the runs of a sweep: add -m")
            if processes > 1:
                raise BadRequest(f"{word} starts workers of its own: leave it out under torchrun")
            if key == LAUNCHER and name in LAUNCHERS and f"{name}_settings.yaml" not in offered:
                raise BadRequest(f"{word} is not installed here: pip install 'pe-zoo[{LAUNCHERS[name]}]'")


def rule(overrides: Iterable[str], *, multirun: bool) -> tuple[Rule, int] | None:
    """Return by which rule a command line, expanded, adds seeds, and the first of them; None: it gives their number."""
    concerned = ("seed", "seeds", *DECLARED)
    words = [word for word in overrides if word.partition("=")[0] in concerned]
    if f"seeds={UNTIL_DECIDED}" not in words:
        if useless := [word for word in words if word.partition("=")[0] in DECLARED]:
            raise BadRequest(f"{useless[0]} changes nothing without seeds={UNTIL_DECIDED}")
        return None
    if not multirun:
        raise BadRequest(f"seeds={UNTIL_DECIDED} is a sweep: add -m")
    for word in words:
        name, _, value = word.partition("=")
        if name in ("looks", "weights") and not value.startswith("["):
            raise BadRequest(f"{word} must be a list: '{name}=[{value}]'")
    given = compose(*(override.input_line or "" for override in _parse(words) if not override.is_sweep_override()))
    if given.against is None:
        raise BadRequest(f"seeds={UNTIL_DECIDED} needs its question: against=<series>, best or statements")
    with refusing():
        looks, weights = tuple(given.looks), tuple(given.weights)
        if looks != Rule.looks and weights == Rule.weights:
            weights = (1 / len(looks),) * len(looks)
        found = Rule(given.against, looks, weights, given.delta, given.paired)
    return found, whole("seed", given.seed, at_least=0, at_most=LAST_SEED - found.looks[-1])


class Engine(NamedTuple):
    """What does jobs in workers; ``here`` if these are on this machine and a job may be one run."""

    start: Callable[[Callable[[Any], Any], Sequence[str]], Generator[Any]]
    """Takes a function and packed jobs to workers, and yields its results."""
    here: bool
    workers: int = 1
    """Side by side; of a cluster unknown, and counted as one."""


def engine(overrides: Iterable[str]) -> Engine | None:
    """Return what runs jobs in workers: by default one a core, None where that is one, or on a GPU."""
    settings = _settings(overrides)

    def launch(function: Callable[[Any], Any], parcels: Sequence[str]) -> Generator[Any]:
        context = HydraContext(GlobalHydra.instance().config_loader(), Callback())  # type: ignore[arg-type]
        launcher = Plugins.instance().instantiate_launcher(context, function, settings)
        size = settings.hydra.sweeper.max_batch_size or len(parcels)
        for first in range(0, len(parcels), size):
            batch = [[f"+{PARCEL}='{parcel}'"] for parcel in parcels[first : first + size]]
            yield from (job.return_value for job in launcher.launch(batch, initial_job_idx=first))

    def launch_here(function: Callable[[Any], Any], parcels: Sequence[str]) -> Generator[Any]:
        return pool.launch(partial(pool.until_interrupted, function), [{PARCEL: parcel} for parcel in parcels], size)

    if settings.hydra.runtime.choices[LAUNCHER] != "basic":
        return Engine(launch, here=False)
    return Engine(launch_here, True, size) if (size := _workers(settings)) > 1 else None


def wants_report(overrides: Iterable[str]) -> bool:
    """Return whether a command line, expanded, asks for the report in the end."""
    return bool(_settings(overrides).report)


def budget(overrides: Iterable[str]) -> float | None:
    """Return the minutes after which a command line, expanded, stops itself; None: never."""
    settings = _settings(overrides)
    if settings.budget_minutes is None:
        return None
    if settings.hydra.runtime.choices[LAUNCHER] != "basic":
        raise BadRequest(
            "budget_minutes= stops runs on this machine: leave it out with hydra/launcher=, which has limits"
        )
    with refusing():
        return number("budget_minutes", settings.budget_minutes, above=0)


def _settings(overrides: Iterable[str]) -> DictConfig:
    concerned = ("name", "device=", "threads=", "workers=", "report=", "budget", *(f"+{group}" for group in LISTS))
    words = [word for word in overrides if is_hydras(word) or word.startswith(concerned)]
    return compose(*(override.input_line or "" for override in _parse(words) if not override.is_sweep_override()))


def _workers(settings: DictConfig) -> int:
    """How many workers of this machine a sweep has, see `pool`."""
    if settings.workers is not None:
        with refusing():
            return whole("workers", settings.workers, at_least=1, at_most=MOST_WORKERS)
    on_gpu = settings.device.startswith("cuda") or (settings.device == "auto" and torch.cuda.is_available())
    return 1 if on_gpu else max(1, pool.cores() // max(1, settings.threads))


def _no_option(given: str, node: Any, typed: Mapping[str, str]) -> str:
    """Return the nearest options of ``node``; of a knob that some choices of a sweep have, how to give it to those."""
    tree: Any = OmegaConf.to_container(node) if node is not None else {}
    below, dot, knob = given.rpartition(".")
    owners: dict[str, list[str]] = {}
    for group, (names, get) in MENUS.items():
        for name in [name for name in typed.get(group, "").split(",") if name in names()]:
            for option in pe_zoo.knobs(get(name)):
                owners.setdefault(f"{group}.{option}", []).append(name)
    if given in owners.keys() & typed.keys():
        others = [name for name in typed[below].split(",") if name not in owners[given]]
        command, own = f"-m name={typed.get('name', 'mine')} {below}=", ",".join(owners[given])
        two = [f"{command}{own} {given}={typed[given]}", f"{command}{','.join(others)}"]
        commands = ", then ".join(two[::-1] if typed.get("against") in others else two)
        remedy = f"run two commands with the same name=: {commands}"
        return f"{tree['name']} has no knob {knob!r}, unlike {', '.join(owners[given])}; {remedy}"
    known = {f"{below}{dot}{key}" for key in tree if key not in ("name", "hydra")}
    if not below:
        measured = tree.get("experiment")
        chosen_from = (*MENUS, *PARTS, *(measured if isinstance(measured, list) else [measured]))
        groups = [group for group in tree if group in chosen_from]
        known |= {f"{group}.{key}" for group in groups for key in tree[group] if key != "name"} | owners.keys()
    return f"no option {given!r}.{hint(given, known)}"


KINDS = {"Integer": "a whole number", "Float": "a number", "bool": "true or false"}
"""What OmegaConf calls otherwise."""


def _of_another_kind(key: str, said: str, command: Iterable[str]) -> str:
    """Return that a value is of a wrong kind, and which it should be."""
    option = key.partition("[")[0]  # of a list, one value is wrong
    given = next((word for word in command if word.partition("=")[0] == option), key)
    if "is not a ListConfig" in said:
        return f"{given}: a list is needed, as in '{option}=[{given.partition('=')[2]}]'"
    kind = next((kind for end, kind in KINDS.items() if re.search(rf"converted to {end}|not a valid {end}", said)), "")
    return f"{given}: {kind} is needed" if kind else f"{key}: {said}"


def explain(error: BaseException, command: Iterable[str] = ()) -> str:
    """Return Hydra's and OmegaConf's errors in one line: what was given, what is allowed, the nearest to it."""
    cause = error if isinstance(error, errors.OmegaConfBaseException) else error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    message = " ".join(lines[:2])
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, given = str(error.missing_cfg_file).rpartition("/")
        kind = {"positions": "numbering"}.get(group, group)
        return f"no {kind} named {given!r}.{hint(given, error.options)}"
    if isinstance(cause, errors.ConfigKeyError | errors.ConfigAttributeError) and cause.full_key:
        typed = dict(word.split("=", 1) for word in command if "=" in word)
        return _no_option(str(cause.full_key), cause.parent_node, typed)
    if isinstance(cause, errors.ValidationError) and cause.full_key:
        return _of_another_kind(cause.full_key, str(cause).strip().splitlines()[0].strip(), command)
    if (unread := message.removeprefix("LexerNoViableAltException: ")) != message:
        return f"cannot read {unread.removesuffix(' ^')!r}: put such a value in quotes, \"option='value'\""
    if isinstance(error, OverrideParseException) and message.startswith(("no viable alternative", "mismatched input")):
        return f"cannot read {error.override!r}: a bracket or a quote is missing, or a value needs quotes"
    if isinstance(error, OverrideParseException) and error.override not in message:
        return f"cannot read {error.override!r}: {message}"
    if isinstance(error, errors.InterpolationResolutionError):
        message = lines[0].partition("interpolation: ")[2] or lines[0]
        return f"{error.full_key}: {message}" if error.full_key else message
    if message.startswith("Ambiguous value"):
        given = message.partition("'")[2].partition("'")[0]
        return several(given)
    return message
