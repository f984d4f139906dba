import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Geometry, Site, register
from pe_zoo._knobs import number
from pe_zoo._positions import angles
from pe_zoo._rotation import Rotary, rotate_pairs


@register("gape")
class GAPE(Rotary):
    """Rotates as RoPE does, and biases scores against distance: queries gate how much, keys whether they are spared.
    GAPE (gated adaptive positional encoding), Ali et al. (2026), arXiv:2605.10414.

        scores[h, q, k] −= amplitude[h] · gate[h, q] · (1 − landmark[h, k]) · (q − k) / train_length
        gate = softplus(w_query[h] · query + b_query[h]),  landmark = sigmoid(w_key[h] · key + b_key[h])

    Gates read queries and keys before their rotation; amplitude[h] is a softplus, too. Each layer and head has its own
    parameters.

    Args:
        base: of the rotation, above 0; 10000, as in RoPE.
        fraction: share of the pairs that are rotated, those of the highest frequencies, in (0, 1], rounded down to
            whole pairs but at least one; 1 is RoPE. The paper also has p-RoPE (``p_rope``).

    Departures: the published term, amplitude · gate · (k · (1 − landmark) + q · landmark) / T, is this one and a number
    for each query, which softmax cannot tell from it. The formula is quoted by an author's page, which does not say
    what T is; here the training length, of which amplitudes make any other. Starts are ours: w with variance
    1/head_dim, b and amplitudes at 0 before their functions.
    """

    family = "relative term"
    causal_only, direction_aware = True, False

    def __init__(self, geometry: Geometry, *, base: float = 10000.0, fraction: float = 1.0) -> None:
        super().__init__(geometry, base)
        number("gape fraction", fraction, above=0, at_most=1)
        self.rotated_pairs = max(1, int(fraction * self.pairs + 1e-9))
        per_head, dim = (geometry.num_layers, geometry.num_heads), geometry.head_dim
        self.w_query, self.w_key = (nn.Parameter(torch.randn(*per_head, dim) * dim**-0.5) for _ in range(2))
        self.b_query, self.b_key, self.amplitude = (nn.Parameter(torch.zeros(per_head)) for _ in range(3))

    def opening(self, weight: Tensor, bias: Tensor, rotated: Tensor, positions: Tensor) -> Tensor:
        """``weight · x + bias`` of queries or keys that are rotated to their positions, ``(batch, heads, length)``.

        Args:
            weight: ``(heads, head_dim)``; it is rotated along, which leaves its product with x as it was.
            bias: ``(heads,)``.
            rotated: ``(batch, heads, length, head_dim)``.
            positions: ``(length,)`` or ``(batch, length)``.
        """
        turned = rotate_pairs(
            weight.to(rotated.dtype).unsqueeze(1).expand(rotated.shape),
            angles(positions, self.frequencies(rotated.device)),
        )
        return (rotated * turned).sum(-1) + bias.to(rotated.dtype).unsqueeze(-1)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype, layer = torch.promote_types(scores.dtype, torch.float32), site.layer
        opened = self.opening(self.w_query[layer], self.b_query[layer], q.to(dtype), site.query_positions)
        spared = self.opening(self.w_key[layer], self.b_key[layer], k.to(dtype), site.key_positions)
        amplitude = functional.softplus(self.amplitude[layer].to(dtype)) / self.geometry.train_length
        strength = amplitude.unsqueeze(-1) * functional.softplus(opened)
        fading = strength.unsqueeze(-1) * (-spared).sigmoid().unsqueeze(-2) * site.distance.to(dtype)
        return (scores - fading).to(scores.dtype)
