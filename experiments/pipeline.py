"""How a number is made. Read this first: prepare, train, measure each, rows.

Folders, locks, checkpoints and workers wrap this from ``runs/record.py``.
"""

from functools import partial
from typing import Any

from experiments.model.precision import repeatable
from experiments.model.transformer import Transformer
from experiments.plan.plan import Plan
from experiments.plan.prepare import prepare
from experiments.plan.request import RunConfig
from experiments.rows.row import Row
from experiments.training import loop
from experiments.training.evaluate import Subject
from experiments.training.heartbeat import doing
from experiments.training.log import TrainLog
from experiments.training.loop import Session
from experiments.training.tune import tune
from pe_zoo import Unsupported


def run(config: RunConfig) -> list[Row]:
    """Train a model as requested and measure it; BadRequest, before training, for what cannot be run."""
    return execute(prepare(config))


def execute(plan: Plan, session: Session | None = None) -> list[Row]:
    """Train a plan's model and measure it, within a session that may save and share the training."""
    session = session or Session()
    with repeatable(plan.config.threads):
        model, log = train(plan, session)
        session.trained(model, log)
        subject = plan.subject(model, log, session.refusals)
        rows = log.rows(subject)
        for name in plan.experiments:
            with doing(f"{plan.config.run_id}: measuring {name}"):
                measured = attempt(name, subject, plan, log)
                # A model from outside is known as it is alone, not as it was before its training.
                rows += [row for row in measured if not plan.guest or not row.metric.startswith("initial_")]
    return rows


def train(plan: Plan, session: Session) -> tuple[Transformer, TrainLog]:
    """Train once, once for each learning rate, or not at all; a training that had ended before is loaded."""
    parts = plan.task, plan.numbering, plan.config.train
    session.aside = plan.at_pause
    named: dict[str, Any] = {"seed": plan.config.seed, "label": plan.config.run_id, "session": session}
    done = session.checkpoints.parts.get("trained")
    if done is None and plan.config.trains and plan.config.tune:
        return tune(plan.model, *parts, **named, beyond=partial(beyond, plan))
    model = plan.model()
    if done is not None:
        return model, TrainLog.restore(done, model)
    return model, loop.train(model, *parts, **named) if plan.config.trains else TrainLog()


def beyond(plan: Plan, model: Transformer) -> list[Row]:
    """Measure what a learning rate does beyond the training length, teacher-forced, if that is asked for."""
    knobs = plan.config.experiments.get(name := "length_extrapolation")
    if knobs is None:
        return []
    rows = plan.experiments[name].measure(plan.subject(model, TrainLog()), **knobs | {"generated": 0})
    return [row for row in rows if row.metric == plan.task.metrics[0]]


def attempt(name: str, subject: Subject, plan: Plan, log: TrainLog) -> list[Row]:
    """Measure; a diverged model and a measurement that the encoder refuses become rows that say so."""
    measure, knobs = plan.experiments[name], plan.config.experiments[name]
    metric = measure.main or plan.task.metrics[0]
    if log.status != "ok" and measure.unmeasured is not None:
        return measure.unmeasured(subject, log.status, **knobs)
    if log.status != "ok":
        return [subject.row(name, metric, status=log.status)]
    try:
        return measure.measure(subject, **knobs)
    except Unsupported as reason:
        return [subject.cannot(name, metric, reason)]
