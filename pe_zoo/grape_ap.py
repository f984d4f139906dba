import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import whole
from pe_zoo._positions import slopes
from pe_zoo._rotation import rotate_pairs


@register("grape_ap")
class GRAPEAP(Encoder):
    """Biases scores by log gates summed over the tokens between key and query, each opened by the query.
    GRAPE-AP (path-integral additive GRAPE), Zhang et al. (2025), arXiv:2512.07805, §5.

        scores[h, q, k] += slope[h] · Σ log sigmoid(p[q] · rotate(norm(p[t]), t_p) / dim),  t = k + 1 … q
        p = weight[h] · x,  norm(p) = p / sqrt(mean(p²))

    Slopes are ALiBi's. All pairs of p[t] are rotated by its position, 1 radian a place. FoX, whose gates open by the
    token passed alone, has one factor for all queries. Each layer has its own weight.

    Args:
        dim: width of p in each head, even, at least 2; 8 in the official configurations.

    Departures: weights start with variance 1/fan-in, as this trunk's do. Only p[t] is rotated, and only it is
    normalised, as in the official code, so that positions count from the start of the text.
    """

    family = "relative term"
    causal_only = True
    static_bias = True  # neither scores nor q and k decide the bias, though the layer's input does

    def __init__(self, geometry: Geometry, *, dim: int = 8) -> None:
        super().__init__(geometry)
        if whole("grape_ap dim", dim, at_least=2) % 2:
            raise ValueError(f"grape_ap dim={dim} must be even: pairs are rotated")
        self.dim = dim
        inputs = geometry.model_dim
        self.weight = nn.Parameter(torch.randn(geometry.num_layers, geometry.num_heads, dim, inputs) * inputs**-0.5)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        p = site.content("grape_ap").to(dtype).unsqueeze(-3) @ self.weight[site.layer].to(dtype).mT
        turn = site.key_positions.double().unsqueeze(-1).expand(*site.key_positions.shape, self.dim // 2)
        turned = rotate_pairs(functional.rms_norm(p, (self.dim,)), turn, "half")
        log_gates = functional.logsigmoid(p[..., site.rows, :] @ turned.mT / self.dim)
        place = torch.arange(p.shape[-2], device=p.device)
        passed = torch.where(place <= place[site.rows, None], log_gates, 0).double()
        after = passed.flip(-1).cumsum(-1).flip(-1) - passed  # gates behind the key
        slope = slopes(self.geometry.num_heads, 8.0, scores)[:, None, None].to(dtype)
        return (scores + slope * after.to(dtype)).to(scores.dtype)
