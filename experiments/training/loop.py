"""The training loop and what surrounds it. It knows batches and parameters, not tasks or encoders."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from experiments.model.transformer import Transformer
from experiments.tasks import Task
from experiments.training import heartbeat
from experiments.training.checkpoint import Checkpoints, State
from experiments.training.config import TrainConfig
from experiments.training.log import TrainLog
from experiments.training.parallel import Team
from experiments.training.progress import Training
from pe_zoo import Numbering


@dataclass
class Session:
    """The surroundings of a training, or of the several trainings of a search.

    ``watch`` is called at the start of each training and at each new point of its curve, ``aside`` after each step.
    ``refusals`` are the reasons of what could not be measured, by measure.
    """

    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    team: Team = field(default_factory=Team)
    watch: Callable[[Training], object] = lambda run: None
    aside: Callable[[Training], object] = lambda run: None
    refusals: dict[str, list[str]] = field(default_factory=dict)

    def trained(self, model: Transformer, log: TrainLog) -> None:
        """Replace the parts of a training in progress by the trained model; write it if a checkpoint is due."""
        self.checkpoints.parts = {}
        facts = {"log": asdict(log), "encoder_dropped": model.encoder_dropped}
        self.checkpoints.save_if_due("trained", lambda: State(facts, model.state_dict()), keep=True)


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
    order, whatever the encoder. The label is shown with the progress.
    Interrupted where the session is told to stop.
    """
    session = session or Session()
    run = Training(session.team.step(model.train(), config), task, numbering, seed)
    saved = session.checkpoints.parts.pop("training", None)
    if saved is not None and saved.facts["learning_rate"] == config.learning_rate:
        run.restore(saved)
    session.watch(run)
    title = f"{label}, until learned" if config.stop_at_convergence else label
    with session.team.leading(run), heartbeat.doing(lambda: f"{title}: {run}", run.share_of_round):
        for done in range(run.log.steps + 1, config.last_step + 1):
            run.advance()
            if config.is_checked(done):
                run.check()
                session.watch(run)
            session.aside(run)
            if run.ended:
                break
            session.checkpoints.boundary("training", run.state)
    run.log.seconds = run.seconds
    return run.log
