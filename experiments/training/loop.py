"""The training loop. It knows batches and parameters, not tasks or encoders."""

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from experiments.model.transformer import Transformer
from experiments.tasks import Task
from experiments.training.config import TrainConfig
from experiments.training.log import TrainLog
from experiments.training.progress import Training
from experiments.training.session import Session
from pe_zoo import Numbering


def train(
    model: Transformer,
    task: Task,
    numbering: Numbering,
    config: TrainConfig,
    *,
    seed: int,
    label: str = "",
    session: Session | None = None,
) -> TrainLog:
    """Train a model on a task, in place, on the model's device.

    Each batch has one length, uniform between the task's shortest and longest. The seed decides the data and their
    order, whatever the encoder. The label is shown on the progress bar, which is silent where there is no terminal.
    Interrupted where the session is told to stop.
    """
    session = session or Session()
    run = Training(session.team.step(model.train(), config), task, numbering, seed)
    saved = session.checkpoints.parts.pop("training", None)
    if saved is not None and saved.facts["learning_rate"] == config.learning_rate:
        run.restore(saved)
    session.watch(run)
    last, title = config.last_step, f"{label}, until learned" if config.stop_at_convergence else label
    with (
        session.team.leading(run),
        logging_redirect_tqdm(),
        tqdm(total=last, initial=run.log.steps, desc=title, unit="step", disable=None, leave=False) as bar,
    ):
        for done in range(run.log.steps + 1, last + 1):
            run.advance()
            bar.update()
            if config.is_checked(done):
                bar.set_postfix_str(run.check())
                session.watch(run)
                if run.ended:
                    break
            session.checkpoints.boundary("training", run.state)
    run.log.seconds = run.seconds
    return run.log
