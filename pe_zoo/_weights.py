"""Attention weights, for whoever wants to see them: a model works without."""

import torch
from torch import Tensor
from torch.nn import functional

from pe_zoo._encoder import Encoder, Site, Unsupported


def weights(encoder: Encoder, scores: Tensor, site: Site) -> Tensor:
    """Return the attention weights that an encoder's ``mix`` implies: how much each query takes of each key.

    For any ``mix`` whose outputs are affine in the values, the weights are its outputs for unit vectors less those for
    zeros. Scores, not yet masked, and weights are ``(batch, heads, query, key)``.

    Raises:
        Unsupported: outputs are not affine in the values.
    """
    scores = scores.masked_fill(~site.mask, -torch.inf)
    if not encoder.overrides("mix"):
        return scores.softmax(-1)
    num_keys, head_dim = scores.shape[-1], encoder.geometry.head_dim
    units = torch.eye(num_keys, dtype=scores.dtype, device=scores.device).expand(*scores.shape[:2], -1, -1)
    nothing = encoder.mix(scores, scores.new_zeros(*scores.shape[:2], num_keys, head_dim), site)
    columns = []
    for part in units.split(head_dim, -1):
        padded = functional.pad(part, (0, head_dim - part.shape[-1]))
        columns.append((encoder.mix(scores, padded, site) - nothing)[..., : part.shape[-1]])
    implied = torch.cat(columns, -1)
    values = torch.arange(num_keys * head_dim, device=scores.device).cos().to(scores.dtype).view(num_keys, head_dim)
    mixed = encoder.mix(scores, values.expand(*scores.shape[:2], -1, -1), site)
    near = 4 * torch.finfo(scores.dtype).eps ** 0.5
    if not torch.allclose(mixed, implied @ values + nothing, rtol=near, atol=near):
        raise Unsupported(f"{type(encoder).__name__}: no attention weights: outputs are not weighted sums of values")
    return implied
