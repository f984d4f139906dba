"""A training in progress: what decides how it continues, one step of it, its in-range checks; saved and restored."""

import math
import time
from dataclasses import asdict

import torch
from torch import Generator, Tensor

from experiments.model.streams import stream
from experiments.model.transformer import Transformer
from experiments.tasks import Batch, Task
from experiments.training.checkpoint import State
from experiments.training.evaluate import Scored, evaluate
from experiments.training.heartbeat import span
from experiments.training.log import TrainLog
from experiments.training.step import Step
from pe_zoo import Numbering

STREAMS = ("training lengths", "training data", "training positions", "checks")


class Training:
    """A training in progress, and all that decides how it continues; the step's model is on the device to train on."""

    def __init__(self, step: Step, task: Task, numbering: Numbering, seed: int) -> None:
        self.step, self.task, self.numbering = step, task, numbering
        self.log = TrainLog()
        self.streams = {purpose: stream(seed, purpose) for purpose in STREAMS}
        self.loss_sum = torch.zeros((), device=step.model.token_embedding.weight.device)
        self.loss_count = 0
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Wall-clock time, including that before an interruption."""
        return time.perf_counter() - self._began

    def advance(self) -> None:
        batch, positions = self.draw()
        self.note(batch, self.step(batch, positions))

    def draw(self) -> tuple[Batch, Tensor]:
        task, device, lengths = self.task, self.loss_sum.device, self.streams["training lengths"]
        length = int(torch.randint(task.min_length, task.train_length + 1, (), generator=lengths))
        size = task.sequence_length(length)
        batch_size = max(1, self.step.config.tokens_per_step // size)
        data = self.streams["training data"]
        batch = task.draw_split(batch_size, length, data, split="train", causal=self.step.model.causal)
        positions = self.numbering.read(batch.tokens, self.streams["training positions"], training=True)
        return batch.to(device), positions.to(device, non_blocking=True)

    def note(self, batch: Batch, loss: Tensor) -> None:
        """Count a step that was taken, whose loss stays on its device; drop the encoder after its last one."""
        self.loss_sum += loss
        self.loss_count += 1
        self.log.tokens += batch.tokens.numel()
        self.log.steps += 1
        if self.log.steps == self.step.config.drop_step:
            self.step.model.drop_encoder()

    def check(self) -> None:
        """Add a point to the curve and decide whether training ends there."""
        log, loss = self.log, float(self.loss_sum) / self.loss_count
        self.loss_sum.zero_()
        self.loss_count = 0
        if not math.isfinite(loss):
            log.status = "diverged"
            log.points.append((log.steps, loss, {}, 0))
            return
        scored = check_in_range(self.step.model, self.task, self.numbering, self.streams["checks"])
        quality = scored.quality()
        log.points.append((log.steps, loss, quality, scored.n("token_accuracy")))
        judged = [self.task.has_converged(of_point) for _, _, of_point, _ in log.points[-2:]]
        log.stopped = self.step.config.ends(log.steps, judged[-1], len(judged) > 1 and judged[0])

    def _of_round(self) -> tuple[int, int]:
        """Return the steps done in this round, and its last: a task that is learned ends there."""
        config, done = self.step.config, self.log.steps
        of_round = min(done - (done - 1) // config.steps * config.steps, config.steps) if done else 0
        return of_round, min(config.steps, config.max_steps or config.steps)

    def share_of_round(self) -> float:
        done, end = self._of_round()
        return done / end

    def __str__(self) -> str:
        """Return how far it is, with the time left of this round."""
        config, done = self.step.config, self.log.steps
        of_round, end = self._of_round()
        before = (max(done, 1) - 1) // config.steps
        by_accuracy = type(self.task).has_converged is Task.has_converged
        needed = f" ({self.task.converged_at:.0%} needed)" * by_accuracy
        rounds = f"not learned yet{needed}, so it trains on, at a high learning rate again: " if before else ""
        rounds += f"round {before + 1} of at most {config.most_rounds}, " if config.most_rounds > 1 else ""
        text = f"{rounds}step {of_round:,} of {end:,}"
        if self.log.points:
            text += f", loss {self.log.final_loss:.3f}"
            if accuracy := self.log.quality.get("token_accuracy"):
                text += f", accuracy {accuracy:.1%}"
        if done:
            text += f", {span(self.seconds / done * (end - of_round))} of training left"
        return text

    @property
    def ended(self) -> bool:
        return self.log.stopped is not None or self.log.status != "ok"

    def state(self) -> State:
        """Return what a checkpoint holds; tensors are not copied."""
        self.log.seconds = self.seconds
        moments = self.step.optimizer.moments()
        model, rate = self.step.model, self.step.config.learning_rate
        facts = {"learning_rate": rate, "encoder_dropped": model.encoder_dropped, "loss_count": self.loss_count}
        tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
        tensors |= {f"optimizer/{i}/{key}": tensor for i, kept in moments.items() for key, tensor in kept.items()}
        tensors |= {f"stream/{purpose}": generator.get_state() for purpose, generator in self.streams.items()}
        return State(facts | {"log": asdict(self.log)}, tensors | {"loss_sum": self.loss_sum})

    def restore(self, saved: State) -> None:
        model = self.step.model
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in saved.tensors.items():
            if name.startswith("optimizer/"):
                _, i, key = name.split("/")
                moments.setdefault(int(i), {})[key] = tensor
        model.load_state_dict({k.removeprefix("model/"): t for k, t in saved.tensors.items() if k.startswith("model/")})
        self.step.optimizer.load_moments(moments)
        for purpose, generator in self.streams.items():
            generator.set_state(saved.tensors[f"stream/{purpose}"])
        if saved.facts["encoder_dropped"]:
            model.drop_encoder()
        self.loss_sum.copy_(saved.tensors["loss_sum"])
        self.loss_count = saved.facts["loss_count"]
        self.log = TrainLog.load(saved.facts["log"])
        self.step.taken = self.log.steps
        self._began = time.perf_counter() - self.log.seconds


def check_in_range(model: Transformer, task: Task, numbering: Numbering, generator: Generator) -> Scored:
    """Score a fresh held-out batch of the training length, without any effect on training."""
    size = task.sequence_length(task.train_length)
    batch_size = max(1, 2048 // size)
    batch = task.draw_split(batch_size, task.train_length, generator, split="validation", causal=model.causal)
    return evaluate(model, batch, numbering.read(batch.tokens, generator))
