"""Operations, time and memory of the same model with its encoder and without."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Self

import torch
from torch import Tensor

from experiments.measures.cost.memory import peak_memory
from experiments.model.attention import PLAIN
from experiments.model.transformer import Layer, Transformer
from experiments.tasks import Batch
from experiments.training.config import TrainConfig
from experiments.training.evaluate import CHUNK_TOKENS, Subject
from experiments.training.generate import Cache
from experiments.training.step import Step
from pe_zoo._cost import Operations

LEAST_PAIRS = 3
LAST_TOKENS = 16


@dataclass(frozen=True)
class Both:
    """One quantity of the model with its encoder and without, over ``n`` repetitions."""

    with_encoder: float
    without: float
    n: int = 1

    @property
    def ratio(self) -> float:
        return self.with_encoder / self.without

    def per(self, tokens: int) -> Self:
        return replace(self, with_encoder=self.with_encoder / tokens, without=self.without / tokens)


def finish(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def in_turn(
    do: Callable[[int], object],
    device: torch.device,
    seconds: float,
    *,
    least: int = LEAST_PAIRS,
    before: Callable[[int], object] = lambda which: None,
) -> list[tuple[float, float]]:
    """Return seconds of two things to do, 0 and 1, repeated in turn since machines drift; the first pair is left out.

    They are repeated for some seconds, and at least as many times; ``before`` comes before each, untimed.
    """

    def timed(which: int) -> float:
        before(which)
        finish(device)
        started = time.perf_counter()
        do(which)
        finish(device)
        return time.perf_counter() - started

    times: list[tuple[float, float]] = []
    started = time.perf_counter()
    while len(times) <= least or time.perf_counter() - started < seconds:
        times.append((timed(0), timed(1)))
    return times[1:]


class Trunks:
    """An initialised model with its encoder, one without, and the sequences that both process."""

    def __init__(self, subject: Subject, tokens_per_step: int | None = None) -> None:
        self.subject = subject
        self.models = self._fresh()
        self.device = self.models[0].token_embedding.weight.device
        self.config = TrainConfig() if tokens_per_step is None else TrainConfig(tokens_per_step=tokens_per_step)

    def operations(self, size: int) -> Both:
        """Count operations of a forward pass over one sequence, per token, on the plain path."""
        tokens, positions = (part.cpu() for part in self._sequences(1, size))

        def count(model: Transformer) -> float:
            for layer in model.cpu().layers:
                assert isinstance(layer, Layer)
                layer.attention = PLAIN
            with torch.no_grad(), Operations() as operations:
                model(tokens, positions)
            return operations.count / size

        ours, bare = map(count, self._fresh())
        return Both(ours, bare)

    def forward_bytes(self, size: int) -> Both:
        """Measure the memory of a forward pass over one sequence without gradients, beyond model and input."""
        tokens, positions = self._sequences(1, size)

        def peak(model: Transformer) -> float:
            with torch.no_grad(), peak_memory(self.device) as memory:
                model(tokens, positions)
            return memory.peak

        ours, bare = map(peak, self.models)
        return Both(ours, bare)

    def training_bytes(self) -> Both:
        """Measure the memory of a training step beyond model and batch, including the optimizer's moments."""
        batch, positions = self._training_batch()

        def peak(model: Transformer) -> float:
            step = Step(model.train(), self.config)
            with peak_memory(self.device) as memory:
                step(batch, positions)  # allocates the moments
                memory.restart()
                step(batch, positions)
            return memory.peak

        ours, bare = map(peak, self._fresh())
        return Both(ours, bare)

    def training_seconds(self, seconds: float) -> Both:
        batch, positions = self._training_batch()
        steps = [Step(model.train(), self.config) for model in self._fresh()]
        return self._in_turn(lambda which: steps[which](batch, positions), seconds).per(batch.tokens.numel())

    def inference_seconds(self, size: int, seconds: float) -> Both:
        """Time a forward pass without gradients, per token, with as many sequences at once as evaluation takes."""
        tokens, positions = self._sequences(max(1, CHUNK_TOKENS // size), size)
        with torch.no_grad():
            return self._in_turn(lambda which: self.models[which](tokens, positions), seconds).per(tokens.numel())

    def generation_seconds(self, size: int, seconds: float) -> Both:
        """Time generation from a cache, per token, at the end of one sequence.

        Raises:
            Unsupported: the model is bidirectional.
        """
        tokens, positions = self._sequences(1, size)
        last = min(LAST_TOKENS, size // 2)
        caches: dict[int, Cache] = {}

        def fill(which: int) -> None:
            caches[which] = Cache(self.models[which], positions)
            caches[which].read(tokens[:, : size - last])

        def generate(which: int) -> None:
            for place in range(size - last, size):
                caches[which].read(tokens[:, place : place + 1])

        return self._in_turn(generate, seconds, fill).per(last)

    def _fresh(self) -> tuple[Transformer, Transformer]:
        ours, bare = self.subject.initial().eval(), self.subject.initial().eval()
        bare.drop_encoder()
        return ours, bare

    def _in_turn(
        self, do: Callable[[int], object], seconds: float, before: Callable[[int], object] = lambda which: None
    ) -> Both:
        """Return median seconds of both models, 0 with the encoder and 1 without."""
        times = in_turn(do, self.device, seconds, before=before)
        ours, bare = (median(column) for column in zip(*times, strict=True))
        return Both(ours, bare, len(times))

    def _sequences(self, batch_size: int, size: int) -> tuple[Tensor, Tensor]:
        """Random tokens ``(batch, size)``, since a task may have no sequence of that size, and their positions."""
        generator = self.subject.stream(f"cost/{size}")
        tokens = torch.randint(self.models[0].vocab_size, (batch_size, size), generator=generator)
        positions = self.subject.numbering.read(tokens, generator)
        return tokens.to(self.device), positions.to(self.device)

    def _training_batch(self) -> tuple[Batch, Tensor]:
        task, generator = self.subject.task, self.subject.stream("cost/training")
        size = task.sequence_length(task.train_length)
        batch_size = max(1, self.config.tokens_per_step // size)
        causal = self.models[0].causal
        batch = task.sample(batch_size, task.train_length, generator, split="train", causal=causal)
        positions = self.subject.numbering.read(batch.tokens, generator, training=True)
        return batch.to(self.device), positions.to(self.device)
