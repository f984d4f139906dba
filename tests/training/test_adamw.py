"""Our AdamW is torch's, bit for bit, with parameters that have no gradient at times."""

from __future__ import annotations

import torch
from support import generator
from torch.nn import Parameter

from experiments.training.adamw import AdamW


def test_it_is_torch_s_to_the_last_bit() -> None:
    source = generator()
    values = [torch.randn(5, 3, generator=source), torch.randn(4, generator=source), torch.randn(2, generator=source)]
    ours, theirs = ([Parameter(value.clone()) for value in values] for _ in range(2))
    mine = AdamW([{"params": ours[:2], "weight_decay": 0.1}, {"params": ours[2:], "weight_decay": 0.0}], beta2=0.98)
    groups = [{"params": theirs[:2], "weight_decay": 0.1}, {"params": theirs[2:], "weight_decay": 0.0}]
    other = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)
    for step in range(6):
        mine.zero_grad()
        other.zero_grad(set_to_none=True)
        for optimizer in (mine, other):
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * (step + 1)
        for number, (one, two) in enumerate(zip(ours, theirs, strict=True)):
            if number != 2 or step % 2:  # no gradient, as of an encoder that was dropped
                one.grad = torch.randn(one.shape, generator=source)
                two.grad = one.grad.clone()
        mine.step()
        other.step()
    for one, two in zip(ours, theirs, strict=True):
        assert torch.equal(one, two)
    for number, moments in mine.moments().items():
        for key, value in other.state_dict()["state"][number].items():
            assert torch.equal(moments[key], value)


def test_loaded_moments_go_on_as_if_never_stopped() -> None:
    source = generator()
    parameter, resumed = (Parameter(torch.ones(3)) for _ in range(2))
    first, second = (AdamW([{"params": [p], "weight_decay": 0.0, "lr": 0.1}], 0.98) for p in (parameter, resumed))
    parameter.grad = torch.randn(3, generator=source)
    first.step()
    resumed.data.copy_(parameter.data)
    second.load_moments({number: {k: v.clone() for k, v in of.items()} for number, of in first.moments().items()})
    gradient = torch.randn(3, generator=source)
    for optimizer, each in ((first, parameter), (second, resumed)):
        each.grad = gradient.clone()
        optimizer.step()
    assert torch.equal(parameter, resumed)
