"""The loss of a large vocabulary, computed in slices, is that of PyTorch, and so are its gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import pe_zoo
from experiments.model.transformer import Transformer
from experiments.tasks import Batch
from experiments.training import loss
from experiments.training.loss import LARGE, mean_loss


@pytest.mark.parametrize("size", [2**19, 3 * LARGE, 1])
def test_slices_give_the_loss_and_gradients_of_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "SLICE", size)
    torch.manual_seed(0)
    geometry = pe_zoo.Geometry(model_dim=32, num_heads=2, num_layers=1, train_length=8)
    model = Transformer(LARGE, geometry, pe_zoo.build("rope", geometry)).double()
    tokens = torch.randint(LARGE, (3, 8))
    batch = Batch(tokens, tokens.roll(-1, 1), torch.arange(8) < 7)
    logits = model(tokens)[:, batch.counted]
    expected = functional.cross_entropy(logits.flatten(0, 1), batch.targets[:, batch.counted].flatten())
    (2 * expected).backward()
    of_whole = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    (2 * mean_loss(model, batch)).backward()
    torch.testing.assert_close(mean_loss(model, batch), expected)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, of_whole[name], msg=name)


@pytest.mark.parametrize("vocabulary", [LARGE - 1, LARGE])
def test_the_loss_of_each_target(vocabulary: int) -> None:
    logits, targets = torch.randn(2, 5, vocabulary).double(), torch.randint(vocabulary, (2, 5))
    expected = -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(loss.each_loss(logits, targets), expected)


def test_a_small_vocabulary_rounds_as_it_always_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Published numbers are of such models."""
    monkeypatch.setattr(loss, "_Sliced", None)
    geometry = pe_zoo.Geometry(model_dim=32, num_heads=2, num_layers=1, train_length=8)
    model = Transformer(LARGE - 1, geometry, pe_zoo.build("rope", geometry))
    tokens = torch.randint(LARGE - 1, (3, 8))
    batch = Batch(tokens, tokens.roll(-1, 1), torch.arange(8) < 7)
    logits = model(tokens)[:, batch.counted]
    expected = functional.cross_entropy(logits.flatten(0, 1), batch.targets[:, batch.counted].flatten())
    assert torch.equal(mean_loss(model, batch), expected)
