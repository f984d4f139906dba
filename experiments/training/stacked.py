"""Several seeds of one run trained as one batched model, which is faster than in turn on a GPU.

The same model under different seeds differs in its numbers alone. They are stacked, `torch.func.vmap` carries the
forward pass over the stack, and the sum of the losses gives every seed its own gradient, since no seed's loss depends
on another's numbers. A model this small leaves most of a GPU idle; on a CPU the stack is slower than a loop.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import Parameter, functional

from experiments.model.attention import PLAIN
from experiments.model.transformer import Layer
from experiments.tasks import Batch
from experiments.training.step import Step


class StackedStep:
    """One optimizer step of several seeds at once, each equal to its step alone up to rounding.

    Args:
        steps: of each seed. The stack starts from their state, and `distribute` updates them.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        first = steps[0]
        self._values, self._buffers = stack_module_state([step.model for step in steps])
        self._model = copy.deepcopy(first.model)
        for layer in self._model.layers:
            assert isinstance(layer, Layer)
            layer.attention = PLAIN  # the fused kernel takes no stack with a bias that is learned
        names = {id(parameter): name for name, parameter in first.model.named_parameters()}
        self._names = [names[id(parameter)] for parameter in _parameters(first)]
        groups = [
            {**group, "params": [self._values[names[id(parameter)]] for parameter in group["params"]]}
            for group in first.optimizer.param_groups
        ]
        self._optimizer = type(first.optimizer)(groups)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, first.share_of_peak)
        self._schedule.last_epoch = first.schedule.last_epoch
        for group, as_it_was in zip(self._optimizer.param_groups, first.optimizer.param_groups, strict=True):
            group["lr"] = as_it_was["lr"]
        for name, *own in zip(self._names, *map(_parameters, steps), strict=True):
            kept = [step.optimizer.state[p] for step, p in zip(steps, own, strict=True) if p in step.optimizer.state]
            if kept:
                self._optimizer.state[self._values[name]] = {
                    "step": kept[0]["step"].clone(),
                    **{key: torch.stack([moments[key] for moments in kept]) for key in kept[0] if key != "step"},
                }

    def __call__(self, batches: Sequence[Batch], positions: Sequence[Tensor]) -> Tensor:
        """Take one step; return each seed's mean loss in nats per counted token, ``(seeds,)``, detached.

        Args:
            batches: of each seed, all of one shape and counted at the same positions.
            positions: of each seed.
        """
        counted = batches[0].counted
        model = self._model
        if not model.encoder_dropped and any(step.model.encoder_dropped for step in self.steps):
            model.drop_encoder()

        def loss(
            values: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, targets: Tensor, places: Tensor
        ) -> Tensor:
            logits = functional_call(model, (values, buffers), (tokens, places))[:, counted]
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

        self._optimizer.zero_grad(set_to_none=True)
        tokens = torch.stack([batch.tokens for batch in batches])
        targets = torch.stack([batch.targets[:, counted] for batch in batches])
        losses = vmap(loss)(self._values, self._buffers, tokens, targets, torch.stack(list(positions)))
        losses.sum().backward()
        self._clip(self.steps[0].config.gradient_clip)
        self._optimizer.step()
        self._schedule.step()
        return losses.detach()

    def distribute(self) -> None:
        """Copy the stack's state to every seed's own model, moments and schedule."""
        with torch.no_grad():
            for seed, step in enumerate(self.steps):
                for name, parameter in zip(self._names, _parameters(step), strict=True):
                    stacked = self._values[name]
                    parameter.copy_(stacked[seed])
                    if moments := self._optimizer.state.get(stacked):
                        step.optimizer.state[parameter] = {
                            "step": moments["step"].clone(),
                            **{key: moments[key][seed].clone() for key in moments if key != "step"},
                        }
                step.schedule.last_epoch = self._schedule.last_epoch
                for own, group in zip(step.optimizer.param_groups, self._optimizer.param_groups, strict=True):
                    own["lr"] = group["lr"]

    def _clip(self, limit: float) -> None:
        """Clip each seed's gradient by its own norm, so that a seed that diverges leaves the others alone."""
        gradients = [value.grad for value in self._values.values() if value.grad is not None]
        norms = sum(gradient.flatten(1).pow(2).sum(1) for gradient in gradients)
        assert isinstance(norms, Tensor)
        shares = (limit / (norms.sqrt() + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(shares.view(-1, *[1] * (gradient.ndim - 1)))


def _parameters(step: Step) -> list[Parameter]:
    """Return the parameters in the optimizer's order."""
    return [parameter for group in step.optimizer.param_groups for parameter in group["params"]]
