"""AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101) by torch's fused kernel, as ``torch.optim.AdamW(fused=True)``.

That class imports torch's compiler, which takes longer than torch itself, and wraps each step for it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

Moments = dict[str, Tensor]
"""``step``, ``exp_avg`` and ``exp_avg_sq`` of a parameter; empty before its first gradient."""


class AdamW:
    """The optimizer of ``param_groups``: dicts of ``params``, ``weight_decay`` and ``lr``."""

    def __init__(self, groups: Iterable[dict[str, Any]], beta2: float) -> None:
        self.param_groups = list(groups)
        self.beta2 = beta2
        self.state: dict[Parameter, Moments] = {p: {} for group in self.param_groups for p in group["params"]}
        devices = {parameter.device for parameter in self.state if parameter.is_cuda}
        # A number of the host would be the same whenever a recorded step is replayed.
        self._rate = torch.zeros((), device=devices.pop()) if devices else None

    def moments(self) -> dict[int, Moments]:
        """Return the moments of the parameters that have some, by number; tensors are not copied."""
        return {i: state for i, state in enumerate(self.state.values()) if state}

    def load_moments(self, saved: Mapping[int, Moments]) -> None:
        for i, parameter in enumerate(self.state):
            self.state[parameter] = {key: value.to(parameter.device) for key, value in saved.get(i, {}).items()}

    def set_rate(self, rate: float) -> None:
        for group in self.param_groups:
            group["lr"] = rate
        if self._rate is not None:
            self._rate.fill_(rate)

    def zero_grad(self) -> None:
        for parameter in self.state:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            held = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in held:
                if not self.state[parameter]:
                    moments = {key: torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")}
                    self.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}
            states = [self.state[parameter] for parameter in held]
            if not states:
                continue
            steps = [state["step"] for state in states]
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                held,
                [parameter.grad for parameter in held],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                steps,
                lr=group["lr"] if self._rate is None else self._rate,
                beta1=0.9,
                beta2=self.beta2,
                weight_decay=group["weight_decay"],
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
