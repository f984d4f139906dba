"""Several seeds of one run trained as one batched model, which is faster than in turn on a GPU.

The same model under different seeds differs in its numbers alone. They are stacked, `torch.func.vmap` carries the
forward pass over the stack, and the sum of the losses gives every seed its own gradient, since no seed's loss depends
on another's numbers. A model this small leaves most of a GPU idle; on a CPU the stack is slower than a loop.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from experiments.model.attention import PLAIN
from experiments.model.transformer import Layer
from experiments.tasks import Batch
from experiments.training.adamw import AdamW
from experiments.training.graphs import recorded
from experiments.training.step import Step


class StackedStep:
    """One optimizer step of several seeds at once, each equal to its step alone up to rounding.

    The stack starts from the state of the seeds' ``steps``, and `distribute` updates them.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps, first = steps, steps[0]
        self._values, self._buffers = stack_module_state([step.model for step in steps])
        self._model = copy.deepcopy(first.model)
        for layer in self._model.layers:
            assert isinstance(layer, Layer)
            layer.attention = PLAIN  # the fused kernel takes no stack with a bias that is learned
        names = {id(parameter): name for name, parameter in first.model.named_parameters()}
        self._stacks = [self._values[names[id(parameter)]] for parameter in first.optimizer.parameters()]
        stacks = iter(self._stacks)
        groups = [
            {**group, "params": [next(stacks) for _ in group["params"]]} for group in first.optimizer.param_groups
        ]
        self._optimizer = AdamW(groups, first.config.beta2)
        states = [step.optimizer.moments() for step in steps]
        moments = {
            i: {
                key: value.clone() if key == "step" else torch.stack([each[i][key] for each in states])
                for key, value in of_first.items()
            }
            for i, of_first in states[0].items()
        }
        self._optimizer.load_moments(moments)
        self._optimizer.set_rate(first.optimizer.param_groups[0]["lr"])
        self._computed = recorded(self._compute, self._stacks[0].device.type)

    def __call__(self, batches: Sequence[Batch], positions: Sequence[Tensor]) -> Tensor:
        """Take one step on a batch per seed, of one shape; return each seed's mean loss, ``(seeds,)``, detached."""
        model = self._model
        if not model.encoder_dropped and any(step.model.encoder_dropped for step in self.steps):
            model.drop_encoder()
        tokens = torch.stack([batch.tokens for batch in batches])
        targets = torch.stack([batch.targets for batch in batches])
        places = torch.stack(list(positions))
        losses = self._computed(tokens, targets, batches[0].counted, places, state=model.encoder_dropped)
        for step in self.steps:
            step.taken += 1
        self._optimizer.set_rate(self.steps[0].optimizer.param_groups[0]["lr"])
        return losses

    def _compute(self, tokens: Tensor, targets: Tensor, counted: Tensor, positions: Tensor) -> Tensor:
        def loss(
            values: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, targets: Tensor, places: Tensor
        ) -> Tensor:
            logits = functional_call(self._model, (values, buffers), (tokens, places))[:, counted]
            return functional.cross_entropy(logits.flatten(0, 1), targets[:, counted].flatten())

        self._optimizer.zero_grad()
        losses = vmap(loss)(self._values, self._buffers, tokens, targets, positions)
        losses.sum().backward()
        self._clip(self.steps[0].config.gradient_clip)
        self._optimizer.step()
        return losses.detach()

    def distribute(self) -> None:
        """Copy the stack's state to every seed's own model, moments and schedule."""
        state = self._optimizer.moments()
        for seed, step in enumerate(self.steps):
            with torch.no_grad():
                for parameter, stack in zip(step.optimizer.parameters(), self._stacks, strict=True):
                    parameter.copy_(stack[seed])
            moments = {
                i: {key: (value if key == "step" else value[seed]).clone() for key, value in of_stack.items()}
                for i, of_stack in state.items()
            }
            step.optimizer.load_moments(moments)

    def _clip(self, limit: float) -> None:
        """Clip each seed's gradient by its own norm, so that a seed that diverges leaves the others alone."""
        gradients = [value.grad for value in self._values.values() if value.grad is not None]
        norms = sum(gradient.flatten(1).pow(2).sum(1) for gradient in gradients)
        assert isinstance(norms, Tensor)
        shares = (limit / (norms.sqrt() + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(shares.view(-1, *[1] * (gradient.ndim - 1)))
