"""What surrounds a training: checkpoints, the processes that share its steps, and trackers; by default none of them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from experiments.model.transformer import Transformer
from experiments.training.checkpoint import Checkpoints, State
from experiments.training.log import TrainLog
from experiments.training.parallel import Team
from experiments.training.progress import Training


@dataclass
class Session:
    """The surroundings of a training, or of the several trainings of a search.

    ``watch`` is called at the start of each training and at each new point of its curve.
    """

    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    team: Team = field(default_factory=Team)
    watch: Callable[[Training], object] = lambda run: None

    def trained(self, model: Transformer, log: TrainLog) -> None:
        """Replace the parts of a training in progress by the trained model; write it if a checkpoint is due."""
        self.checkpoints.parts = {}
        facts = {"log": asdict(log), "encoder_dropped": model.encoder_dropped}
        self.checkpoints.save_if_due("trained", lambda: State(facts, model.state_dict()), keep=True)
