"""How much the last output depends on each place of the input."""

import torch
from torch import Tensor

from experiments.model.transformer import Transformer
from experiments.training.evaluate import chunks, evaluating


def profile(model: Transformer, tokens: Tensor, positions: Tensor, directions: Tensor) -> Tensor:
    """Return the influence of each place on the last output, ``(length,)`` float64.

    Influence is the norm of the gradient of the last output (after the final norm) in the token's embedding, along
    each of some ``directions``, ``(any, model_dim)``: a mean over directions and sequences, ``(batch, length)``.
    """
    device, total = model.token_embedding.weight.device, torch.zeros(tokens.shape[1], dtype=torch.float64)
    with evaluating(model), torch.enable_grad():
        for _, part, places in chunks(tokens, positions):
            embedded, outputs = model.last_outputs(part.to(device), places.to(device))
            for direction in directions.to(device, outputs.dtype):
                (gradient,) = torch.autograd.grad((outputs @ direction).sum(), embedded, retain_graph=True)
                total += gradient.double().norm(dim=-1).sum(0).cpu()
    return total / (len(tokens) * len(directions))
