"""Training a copy of a model on at a longer length, with another encoder."""

import copy

from experiments.model.transformer import Transformer
from experiments.tasks import Task
from experiments.training.config import TrainConfig
from experiments.training.evaluate import Subject
from experiments.training.loop import train
from pe_zoo import Encoder, Unsupported

RATE = 0.1
"""Peak learning rate, as a share of the training's: 2e-5 after 3e-4 in Chen et al. (2023) and Peng et al. (2023)."""
AS_BEFORE = ("tokens_per_step", "warmup", "beta2", "weight_decay", "gradient_clip", "precision")


def fine_tuned(subject: Subject, encoder: Encoder, length: int, share: float) -> tuple[Transformer, str]:
    """Train a copy of the subject's model on, with another encoder; return it and ``ok`` or ``diverged``.

    It takes a share of the steps of the training, on batches up to a length (that alone where training had one alone);
    data and their order are decided by the subject's seed.

    Raises:
        Unsupported: the share is less than one step, or the task or the numbering does not reach the length.
    """
    config = subject.training
    steps = round(share * config.steps) if config else 0
    if config is None or not steps:
        raise Unsupported(f"a share of {share:g} of the training is less than one step")
    model = copy.deepcopy(subject.model)
    model.encoder = encoder.to(model.token_embedding.weight.device)
    given = {name: getattr(config, name) for name in AS_BEFORE}
    how = TrainConfig(steps=steps, rounds=1, learning_rate=RATE * config.learning_rate, curve_points=1, **given)
    log = train(model, at_length(subject.task, length), subject.numbering, how, seed=subject.seed, label=encoder.name)
    return model, log.status


def at_length(task: Task, length: int) -> Task:
    """Return the task with batches of up to another length; of that length alone if it had one alone."""
    task.check_length(length)
    longer = copy.copy(task)
    longer.min_length = length if task.min_length == task.train_length else task.min_length
    longer.train_length = length
    return longer
