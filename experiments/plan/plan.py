"""A run whose parts have all been built once."""

from dataclasses import asdict, dataclass, replace
from functools import cached_property

import torch

import pe_zoo
from experiments.model.guest import Guest
from experiments.model.streams import initialising
from experiments.model.transformer import Transformer
from experiments.plan.measures import Experiment
from experiments.plan.request import RunConfig
from experiments.tasks import Task
from experiments.training.evaluate import Subject
from experiments.training.log import TrainLog
from experiments.training.progress import Training
from pe_zoo import Encoder, Geometry, Numbering


@dataclass(kw_only=True)
class Plan:
    """A checked request with its parts: `prepare` makes one."""

    config: RunConfig
    geometry: Geometry
    task: Task
    numbering: Numbering
    experiments: dict[str, Experiment]
    """The measures, by name."""
    device: torch.device
    guest: Guest | None = None
    """The model from outside, if one is measured."""

    @cached_property
    def pauses(self) -> dict[str, set[int]]:
        """The steps at which measures look at the model in training, by measure; ValueError for one it has not."""
        train = self.config.train if self.config.trains else None
        asked = {name: each.pauses(train, **self.config.experiments[name]) for name, each in self.experiments.items()}
        return {name: steps for name, steps in asked.items() if steps}

    def at_pause(self, run: Training) -> None:
        """Measure a model in training where a measure asks for it, and at the end; the training goes on as it would."""
        for name, steps in self.pauses.items():
            if run.log.status == "ok" and (run.log.steps in steps or run.ended):
                subject, knobs = self.subject(run.step.model, TrainLog()), self.config.experiments[name]
                rows = self.experiments[name].at_pause(subject, run.log.steps, run.log.tokens, **knobs)
                run.log.during += map(asdict, rows)

    def encoder(self) -> Encoder:
        """Build the encoder; its parameters depend on the seed alone."""
        if self.guest:
            return self.guest.encoder
        chosen = dict(self.config.encoder)
        with initialising(self.config.seed, "encoder"):
            return pe_zoo.build(chosen.pop("name"), self.geometry, **chosen)

    def model(self) -> Transformer:
        """Build the untrained model, its trunk the same for every encoder of a seed; or return that from outside."""
        if self.guest:
            return self.guest
        encoder = self.encoder()
        with initialising(self.config.seed, "trunk"):
            return self.around(encoder).to(self.device)

    @cached_property
    def ffn_extra(self) -> int:
        """Hidden units added to each feed-forward block for ``model.as_many_as``, whose parameters must be more."""
        wanted = self.config.model.as_many_as
        if wanted is None:
            return 0
        with torch.device("cpu"):  # a rehearsal makes the trunk without numbers, which an encoder may need to be made
            with initialising(self.config.seed, "encoder"):
                other = pe_zoo.build(wanted, self.geometry)
            theirs, ours = (sum(p.numel() for p in encoder.parameters()) for encoder in (other, self.encoder()))
        if theirs <= ours:
            raise ValueError(
                f"model.as_many_as={wanted} changes nothing: {wanted} has {theirs} parameters here, "
                f"encoder={self.config.encoder['name']} {ours}; name an encoder with more, or leave it out"
            )
        return -(-(theirs - ours) // (2 * self.geometry.model_dim * self.geometry.num_layers))

    def subject(self, model: Transformer, log: TrainLog, refusals: dict[str, list[str]] | None = None) -> Subject:
        """Return what measures ask: the trained model with its task, numbering and labels, and how it was trained.

        Reasons of what cannot be measured are added to ``refusals``.
        """
        rate = (log.tuning and log.tuning.chosen) or self.config.train.learning_rate
        return Subject(
            model=model,
            initial=self.model,
            trained=self.config.trains,
            task=self.task,
            numbering=self.numbering,
            seed=self.config.seed,
            labels={**self.config.labels(), "train_length": self.task.train_length},
            training=replace(self.config.train, learning_rate=rate) if self.config.trains else None,
            outside=self.guest is not None,
            refusals={} if refusals is None else refusals,
        )

    def around(self, encoder: Encoder) -> Transformer:
        given = ("causal", "temperature", "temperature_floor", "temperature_on", "sinks", "ffn_multiple")
        return Transformer(
            self.task.vocab_size,
            self.geometry,
            encoder,
            layout=self.config.layout,
            ffn_extra=self.ffn_extra,
            **{name: getattr(self.config.model, name) for name in given},
        )
