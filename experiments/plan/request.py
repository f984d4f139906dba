"""A request for one run: everything that decides its results, as plain data, and the id that follows from it."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

import pe_zoo
from experiments.model.layout import ALL, Layout
from experiments.model.precision import resolved
from experiments.plan.checkpoint import label_of
from experiments.plan.measures import load_experiment
from experiments.rows.read import TUNED
from experiments.rows.series import AS_BEFORE
from experiments.tasks import tasks
from experiments.training.config import TrainConfig
from experiments.training.tune import rates
from pe_zoo._knobs import knobs

RESULTS = Path("results")
LAST_SEED = 2**53 - 1
"""Every reader of JSON and CSV holds whole numbers exactly up to here."""

LATER = {key.rpartition(".")[2]: yaml.safe_load(value) for key, value in AS_BEFORE.items()}
"""Options and knobs that came later, with the value that is as before: runs of earlier releases keep their ids."""
DRAWN = "lengths by seed, some inputs held out"
"""How sequences are drawn, so that runs of releases that drew them otherwise have other ids."""


@dataclass(kw_only=True)
class ModelConfig:
    """The trunk.

    Args:
        model_dim: width, at least 1; divisible by ``num_heads``.
        num_heads: attention heads, at least 1.
        num_layers: at least 1.
        ffn_multiple: hidden width of the feed-forward block in multiples of ``model_dim``, at least 1.
        causal: whether a query sees only its past.
        temperature: law that sharpens queries seeing more keys: ``log_n``, ``scalable_softmax``, or that of ``llama4``,
            ``inkling`` or ``mistral_large4``; null: none.
        temperature_floor: keys per step of ``llama4`` (8192 there), or from which on ``inkling`` grows, at least 1;
            null: the training length.
        temperature_on: layers with temperature: ``all``, or ``skipping`` (those without the encoder).
        sinks: gives each head of each layer a learned logit that takes its share of attention and gives nothing, as in
            gpt-oss.
        as_many_as: an encoder's name. Widens the feed-forward blocks of all layers alike until trunk and encoder have
            at least as many parameters as the plain trunk with that encoder at its default knobs; the surplus is less
            than one hidden unit per layer (num_layers · 2 · model_dim parameters). A widened trunk has its own initial
            parameters. null: not widened.
    """

    model_dim: int = 128
    num_heads: int = 4
    num_layers: int = 3
    ffn_multiple: int = 4
    causal: bool = True
    temperature: str | None = None
    temperature_floor: int | None = None
    temperature_on: str = ALL
    sinks: bool = False
    as_many_as: str | None = None

    @property
    def layer_parameters(self) -> int:
        """Parameters of the layers' matrices: all of the plain trunk but the tables of tokens and the norms."""
        return self.num_layers * (4 + 2 * self.ffn_multiple) * self.model_dim**2


@dataclass(kw_only=True)
class RunConfig:
    """Everything that decides a run, resolved.

    Args:
        encoder, task, positions: ``name`` and knobs of each.
        experiments: the knobs of each measure, by name.
        seed: decides parameters and data, at least 0.
        name: folder under ``results/``.
        device: ``auto``, ``cpu``, ``cuda``, …
        threads: of the processor, at least 1: another number adds in another order, which rounds differently.
        tune: train once for each of ``train.learning_rates`` and keep the best, instead of ``train.learning_rate``.
        plugin: sha256 of the plug-in file, or of several, that registers the run's encoder, task or a measure, if any.
        checkpoint: a model from outside that is measured as it is, in place of one that is built and trained.
        checkpoint_sha256: of its files.
        data: sha256 of what the task reads; None if it makes its data, or until `prepare` has read them.
        choice: the encoder as typed (a variant's name, for example).
        recipe: the name under which encoder, layout and trunk together stand in results; empty: the encoder's.
    """

    encoder: dict[str, Any]
    task: dict[str, Any]
    positions: dict[str, Any]
    layout: Layout
    model: ModelConfig
    train: TrainConfig
    experiments: dict[str, dict[str, Any]]
    seed: int
    name: str
    device: str = "auto"
    threads: int = 1
    tune: bool = False
    plugin: str | None = None
    checkpoint: str | None = None
    checkpoint_sha256: str = ""
    data: str | None = None
    choice: str = ""
    recipe: str = ""

    def __post_init__(self) -> None:
        """Resolve what depends on machine or trunk, so that it is part of the id and the same for every worker."""
        precision = resolved(self.train.precision, self.device, self.model.model_dim)
        self.train = replace(self.train, precision=precision).laid_out(self.model.layer_parameters)

    def identity(self) -> dict[str, Any]:
        """Return what the results depend on as plain data: not the folder, the device or the spelling."""
        measured = {"encoder": _chosen(self.encoder), "model": _chosen(asdict(self.model)), "task": _chosen(self.task)}
        if self.checkpoint:
            name = label_of(self.checkpoint)
            measured = {"encoder": {"name": name}, "model": {"checkpoint": name, "sha256": self.checkpoint_sha256}}
            borrowed = self.task.get("tokenizer") == self.checkpoint
            measured["task"] = _chosen(self.task) | ({"tokenizer": name} if borrowed else {})
        return {
            "seed": self.seed,
            "threads": self.threads,
            **measured,
            "positions": self.positions,
            "layout": _chosen(asdict(self.layout)),
            "train": self._training() if self.trains else {"elsewhere": True} if self.checkpoint else None,
            "experiment": list(self.experiments),
            **{name: _chosen(knobs) for name, knobs in self.experiments.items()},
            "plugin": self.plugin,
            **({"data": self.data[:12]} if self.data else {}),
            "drawn": tasks.get(self.task["name"]).drawn or DRAWN,
        }

    def _training(self) -> dict[str, Any]:
        settings = asdict(self.train)
        del settings["learning_rates"], settings["tokens_per_parameter"]
        settings["rounds"] = self.train.most_rounds
        if self.tune:
            settings |= {"learning_rate": TUNED, "learning_rates": rates(self.train)}
        return settings

    @property
    def trains(self) -> bool:
        """Whether the run trains: it has steps, and a measure that needs them."""
        wanted = any(load_experiment(name).needs_training for name in self.experiments)
        return wanted and self.train.steps > 0 and not self.checkpoint

    @property
    def run_id(self) -> str:
        """A readable prefix and a hash of the identity, the same on every machine."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:8]
        numbering = [] if self.positions["name"] == "sequential" else [self.positions["name"]]
        return "-".join([self.recipe or self.name_measured, *numbering, self.task["name"], f"seed{self.seed}", digest])

    @property
    def name_measured(self) -> str:
        """The encoder's name, or the checkpoint's."""
        return label_of(self.checkpoint) if self.checkpoint else str(self.encoder["name"])

    @property
    def folder(self) -> Path:
        return RESULTS / self.name / "runs" / self.run_id

    def labels(self) -> dict[str, str | int]:
        """Return the columns that all rows of the run share."""
        # Where a folder lies differs between machines, so it is no part of a task's name.
        dataset = self.task.get("dataset")
        places = ("path", "dataset") if dataset and Path(dataset).exists() else ("path",)
        encoder = self.recipe or describe(self.encoder, pe_zoo.get(self.encoder["name"]))
        if self.checkpoint:
            encoder = self.name_measured
            places = (*places, "tokenizer") if self.task.get("tokenizer") == self.checkpoint else places
            places = (*places, "measured", "duplicates")  # nothing was trained that the text could be held out from
        return {
            "run_id": self.run_id,
            "encoder": encoder,
            "positions": describe(self.positions, pe_zoo.numberings.get(self.positions["name"])),
            "task": describe(self.task, tasks.get(self.task["name"]), leave_out=("train_length", *places)),
            "seed": self.seed,
        }


def describe(chosen: Mapping[str, Any], component: type, *, leave_out: tuple[str, ...] = ()) -> str:
    """Return a component's name with its non-default knobs in brackets: ``rope(base=500000)``."""
    turned = [
        f"{name}={format(chosen[name], 'g') if isinstance(chosen[name], float) else chosen[name]}"
        for name, knob in knobs(component).items()
        if name not in leave_out and name in chosen and chosen[name] != knob.default
    ]
    return f"{chosen['name']}({', '.join(turned)})" if turned else str(chosen["name"])


def mentioned(request: Mapping[str, Any]) -> set[str]:
    """Return every word of a request's identity, among them the names of all that it uses."""
    return set(re.findall(r"\w+", json.dumps(request)))


def _chosen(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in LATER or value != LATER[key]}
