"""A plan's model, trained, and the rows that tell of its training: once, once for each learning rate, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict

from experiments.model.transformer import Transformer
from experiments.plan.plan import Plan
from experiments.rows.row import Row
from experiments.training.checkpoint import Checkpoints, State
from experiments.training.evaluate import Subject
from experiments.training.loop import train
from experiments.training.parallel import Team
from experiments.training.progress import Training, TrainLog
from experiments.training.tune import Tuning, tune


def trained(
    plan: Plan, checkpoints: Checkpoints, team: Team, watch: Callable[[Training], None]
) -> tuple[Transformer, TrainLog, Tuning | None]:
    """The model as it is to be measured, from the checkpoint if its training had ended before the run did.

    Args:
        plan: what to train.
        checkpoints: where training is saved, and gone on from.
        team: the processes that share it.
        watch: as `train` takes it.

    Returns:
        the model; its training; and the search for its learning rate, if there was one.
    """
    saved = checkpoints.parts.get("trained")
    if saved is not None:
        model, log, tuning = plan.model(), TrainLog.load(saved.facts["log"]), Tuning.load(saved.facts["tuning"])
        model.load_state_dict(saved.tensors)
        if saved.facts["encoder_dropped"]:
            model.drop_encoder()
    else:
        model, log, tuning = _train(plan, checkpoints, team, watch)
    if plan.config.trains:
        keep_trained(checkpoints, model, log, tuning)
    return model, log, tuning


def keep_trained(checkpoints: Checkpoints, model: Transformer, log: TrainLog, tuning: Tuning | None = None) -> None:
    """A training that has ended takes the place of one in progress; written where that is due."""
    facts = {
        "log": asdict(log),
        "tuning": tuning and {**asdict(tuning), "losses": list(tuning.losses.items())},
        "encoder_dropped": model.encoder_dropped,
    }
    checkpoints.parts = {}
    checkpoints.save_if_due("trained", lambda: State(facts, model.state_dict()), keep=True)


def _train(
    plan: Plan, checkpoints: Checkpoints, team: Team, watch: Callable[[Training], None]
) -> tuple[Transformer, TrainLog, Tuning | None]:
    """Trained once, once for each learning rate, or not at all."""
    config = plan.config
    if config.trains and config.tune:
        return tune(
            plan.model,
            plan.task,
            plan.numbering,
            config.train,
            causal=config.model.causal,
            seed=config.seed,
            label=config.run_id,
            checkpoints=checkpoints,
            team=team,
            watch=watch,
        )
    model, log = plan.model(), TrainLog()
    if config.trains:
        log = train(
            model,
            plan.task,
            plan.numbering,
            config.train,
            seed=config.seed,
            label=config.run_id,
            checkpoints=checkpoints,
            team=team,
            watch=watch,
        )
    return model, log, None


def how_it_diverged(log: TrainLog, tuning: Tuning | None) -> str:
    """Why a run has no finite loss."""
    if tuning is not None:
        return f"no learning rate of {', '.join(map(str, tuning.losses))} came to a finite loss"
    return f"the loss was {log.final_loss} by step {log.points[-1][0]}"


def training_rows(subject: Subject, log: TrainLog) -> list[Row]:
    """The training curve."""
    rows = []
    for step, loss, quality, n in log.points:
        rows.append(subject.row("training", "loss", step=step, value=loss, n=n))
        rows += [
            subject.row(
                "training",
                metric,
                step=step,
                value=quality[metric],
                chance=subject.best_guess(metric, subject.task.train_length),
                n=n,
            )
            for metric in dict.fromkeys((subject.task.metrics[0], "token_accuracy"))
            if metric in quality
        ]
    return rows


def tuning_rows(subject: Subject, tuning: Tuning | None) -> list[Row]:
    """The loss of every learning rate that was tried."""
    if tuning is None:
        return []
    return [
        subject.row(
            "tuning",
            "validation_loss",
            learning_rate=rate,
            value=loss if math.isfinite(loss) else math.nan,
            n=tuning.tokens,
            status="ok" if math.isfinite(loss) else "diverged",
        )
        for rate, loss in tuning.losses.items()
    ]
