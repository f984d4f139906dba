"""One run shared by several processes: each takes its part of every training batch.

Process 0 does all that a single process does, and is the only one that writes or prints. The others wait for its
messages and take part in training only: all draw the same batch, each takes its share of sequences, and gradients are
summed, so that a step equals the step on the whole batch up to rounding. DistributedDataParallel (Li et al., 2020,
arXiv:2006.15704) averages over processes instead, which is another gradient where a batch does not divide evenly, and
gives unused parameters (those of a dropped encoder) a gradient of zero, which would decay their moments.
"""

import logging
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn import Parameter

from experiments.model.transformer import Transformer
from experiments.tasks import Batch, Task
from experiments.training.checkpoint import State
from experiments.training.config import TrainConfig
from experiments.training.interruption import Interrupted
from experiments.training.processes import PATIENCE, STARTED_WITH, Lost, Processes
from experiments.training.progress import Training
from experiments.training.step import Step
from pe_zoo import Numbering


class Dismissed(Exception):
    """Process 0 has ended the training."""


@dataclass
class Team(Processes):
    """Processes that train together; by default one alone."""

    _training: bool = field(default=False, init=False)

    def step(self, model: Transformer, config: TrainConfig) -> Step:
        return Step(model, config) if self.size == 1 else SharedStep(model, config, self)

    @contextmanager
    def leading(self, run: Training) -> Iterator[None]:
        """Share every step of a training within with the other processes."""
        if self.size == 1:
            yield
            return
        state = run.state()
        tensors = {name: tensor.cpu() for name, tensor in state.tensors.items()}
        self.broadcast((run.step.config, State(state.facts, tensors)))
        self._training = True
        try:
            yield
        finally:
            if self._training:
                with suppress(Dismissed, Lost):
                    self.exchange([False for _ in run.step.model.parameters()], leave=True)

    def follow(self, build: Callable[[], Transformer], task: Task, numbering: Numbering, seed: int) -> Any:
        """Take part in every training that process 0 leads; return its last message, which is no training."""
        while True:
            message = self.receive()
            if not (isinstance(message, tuple) and isinstance(message[0], TrainConfig)):
                return message
            config, state = message
            run = Training(self.step(build().train(), config), task, numbering, seed)
            run.restore(state)
            self._training = True
            try:
                while True:
                    run.advance()
            except Dismissed:
                pass
            except Exception as error:
                nothing = [False for _ in run.step.model.parameters()]
                with suppress(Dismissed):
                    self.exchange(nothing, error=(f"{type(error).__name__}: {error}", traceback.format_exc()))

    def exchange(
        self, present: Sequence[bool], *, leave: bool = False, error: tuple[str, str] | None = None
    ) -> list[bool]:
        """Agree once a step on whether to take it, and on which parameters have a gradient in any process.

        ``present`` are those that have one here; ``leave`` ends the training instead; ``error`` is why this process
        cannot continue, in a line and as a traceback.

        Raises:
            Dismissed: the training has ended; in process 0 RuntimeError, if another process could not continue.
        """
        flags = torch.tensor([leave, error is not None, self.interruption.signum or 0, *present])
        with self.together():
            distributed.all_reduce(flags, distributed.ReduceOp.MAX)
        left, failed, signum, *anywhere = flags.tolist()
        self._training = not (left or failed)
        if failed:
            errors = self.gather(error)
            if self.rank == 0 and not leave:
                rank, (line, trace) = next((rank, error) for rank, error in enumerate(errors) if error is not None)
                failure = RuntimeError(f"in process {rank} of {self.size}: {line}")
                failure.add_note(trace)
                raise failure
        if left or failed:
            raise Dismissed
        if signum and self.rank == 0:
            self.interruption.signum = signum
        return [bool(there) for there in anywhere]

    def sum_gradients(self, parameters: Sequence[Parameter], loss: Tensor, weight: float) -> Tensor:
        """Sum gradients over the processes, weighted; return the weighted sum of the losses.

        A parameter without a gradient in every process has none afterwards.
        """
        present = self.exchange([parameter.grad is not None for parameter in parameters])
        summed = [parameter for parameter, there in zip(parameters, present, strict=True) if there]
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in summed]
        whole = torch.cat([*parts, loss.view(1)]).mul_(weight)
        with self.together():
            distributed.all_reduce(whole)
        for parameter, part in zip(summed, whole.split([p.numel() for p in summed] + [1]), strict=False):
            parameter.grad = part.view_as(parameter)
        return whole[-1]


class SharedStep(Step):
    """A step on a batch that is split among the processes."""

    def __init__(self, model: Transformer, config: TrainConfig, team: Team) -> None:
        super().__init__(model, config)
        self.team = team
        self.parameters = list(model.parameters())

    def __call__(self, batch: Batch, positions: Tensor | None = None) -> Tensor:
        number, size = len(batch.tokens), self.team.size
        mine = slice(number * self.team.rank // size, number * (self.team.rank + 1) // size)
        if positions is not None and positions.ndim > 1 and len(positions) == number:
            positions = positions[mine]
        self.optimizer.zero_grad()
        loss = torch.zeros((), device=batch.tokens.device)
        if mine.stop > mine.start:
            loss = self.gradient(batch.part(mine), positions)
        # The same places are counted in every sequence of a batch, so a mean over places is one over sequences.
        loss = self.team.sum_gradients(self.parameters, loss, (mine.stop - mine.start) / number)
        self.update()
        return loss


@contextmanager
def joined() -> Iterator[Team]:
    """Join the processes that this one was started with; all but process 0 are silent within."""
    if not set(STARTED_WITH) <= os.environ.keys() or os.environ["WORLD_SIZE"] == "1":
        yield Team()
        return
    rank, size, local_rank, local_size = (int(os.environ[name]) for name in STARTED_WITH)
    if local_rank < torch.cuda.device_count():
        torch.cuda.set_device(local_rank)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    team = Team(rank, size, local_rank, local_size, distributed.new_group(backend="gloo", timeout=PATIENCE))
    with _silence() if rank else nullcontext():
        try:
            yield team
        except Interrupted:  # of which all have been informed
            team.part()
            raise
        team.part()


@contextmanager
def _silence() -> Iterator[None]:
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        logging.disable()
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
