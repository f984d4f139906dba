import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Geometry, Site, register
from pe_zoo._knobs import whole
from pe_zoo.dape import DAPE


@register("dape_v2")
class DAPEv2(DAPE):
    """Biases scores by a static bias and a convolution along the keys of the scores and biases of all heads.
    DAPE V2, Zheng et al. (2024), arXiv:2410.04798.

        scores[q, k] += bias(q − k) + convolution(leaky_relu(convolution([scores[q, ·]; bias(q − ·)]) + b_in))[k]

    DAPE sees one key at a time; here a key's neighbours count as well. Each layer has its own parameters.

    Args:
        prior: the static bias. ``logarithmic``, that of KERPLE, or ``linear``, that of ALiBi. Both are published.
        width: hidden units, at least 1; 32 as published.
        neighbours: keys that each of the two convolutions sees on either side, at least 0 (0 is DAPE); 1 as published.

    Departures: as of ``dape``. Keys that a query does not see are 0 for both convolutions. In the official code keys
    ahead are for the first one alone, so that outputs depend on whether the text goes on.
    """

    family = "content"
    causal_only = True

    def __init__(self, geometry: Geometry, *, prior: str = "logarithmic", width: int = 32, neighbours: int = 1) -> None:
        super().__init__(geometry, prior=prior, width=width)
        self.neighbours, kernel = whole("dape_v2 neighbours", neighbours, at_least=0), 2 * neighbours + 1
        for name in ("w_in", "w_out"):
            weight = getattr(self, name)
            start = (weight.shape[-1] * kernel) ** -0.5  # as nn.Conv2d starts
            setattr(self, name, nn.Parameter(torch.empty(*weight.shape, 1, kernel).uniform_(-start, start)))
        nn.init.uniform_(self.b_in, -start, start)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        bias = self.bias(site.distance.to(dtype).abs(), site.layer)
        w_in, b_in, w_out = (parameter[site.layer].to(dtype) for parameter in (self.w_in, self.b_in, self.w_out))
        place = torch.arange(scores.shape[-1], device=scores.device)
        seen = site.mask if site.mask.ndim == 2 else site.mask.any(-3, keepdim=True)
        known = seen & (place <= place[site.rows, None])
        both = torch.cat([scores.to(dtype), bias.expand(scores.shape)], -3) * known
        padding = (0, self.neighbours)
        hidden = functional.leaky_relu(functional.conv2d(both, w_in, b_in, padding=padding)) * known
        return (scores + bias + functional.conv2d(hidden, w_out, padding=padding)).to(scores.dtype)
