import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from pe_zoo import Encoder, Geometry, Site, register
from pe_zoo._knobs import number, true_or_false, whole
from pe_zoo._layers import linear
from pe_zoo._tables import heads_first


@register("fire")
class FIRE(Encoder):
    """Biases scores by an MLP of the log distance, normalised by the query's position (progressive interpolation).
    FIRE (functional interpolation for relative encodings), Li et al. (2023), arXiv:2310.04418, §3.

        scores[h, q, k] += out[h] · ReLU(hidden · share + hidden_bias)
        share = ψ(|q − k|) / ψ(max(limit, q)),      ψ(distance) = log(1 + c · distance)

    Shares stay at most 1, so that longer texts bring the MLP no new inputs. The bias depends on the query's position,
    not on the distance alone, and is defined for keys at or before the query. Heads share c, limit and hidden layer.

    Args:
        hidden_dim: width of the MLP, at least 1; 32 as published.
        init_c: c at the start, above 0; 0.1 as published.
        init_limit: the limit at the start, at least 1; 512 as published. None: a quarter of ``train_length``; beyond
            the training length the normaliser would be constant.
        shared: one MLP, c and limit for all layers (FIRE-S) instead of one each, as published.

    Departures: c and limit are exponentials of their parameters where the published code takes absolute values, and the
    output layer has no bias, which softmax cannot see.
    """

    family = "score bias"
    causal_only = static_bias = True

    def __init__(
        self,
        geometry: Geometry,
        *,
        hidden_dim: int = 32,
        init_c: float = 0.1,
        init_limit: int | None = None,
        shared: bool = False,
    ) -> None:
        super().__init__(geometry)
        whole("fire hidden_dim", hidden_dim, at_least=1)
        number("fire init_c", init_c, above=0)
        if init_limit is None:
            init_limit = max(geometry.train_length // 4, 1)
        self.init_limit = whole("fire init_limit", init_limit, at_least=1)
        self.shared = true_or_false("fire shared", shared)
        networks = 1 if shared else geometry.num_layers
        self.log_c = nn.Parameter(torch.full((networks,), math.log(init_c)))
        self.log_stretch = nn.Parameter(torch.zeros(networks))
        self.hidden = nn.ModuleList(nn.Linear(1, hidden_dim) for _ in range(networks))
        self.out = nn.ModuleList(nn.Linear(hidden_dim, geometry.num_heads, bias=False) for _ in range(networks))

    def share(self, site: Site, dtype: torch.dtype) -> Tensor:
        """How far back each key lies, 0 at the query itself: as ``site.distance``."""
        network = 0 if self.shared else site.layer
        c = self.log_c[network].to(dtype).exp()
        limit = self.init_limit * self.log_stretch[network].to(dtype).exp()
        query = site.query_positions.to(dtype).unsqueeze(-1)
        query = query if query.ndim == 2 else query.unsqueeze(1)
        reach = torch.log1p(c * torch.maximum(query, limit))
        return torch.log1p(c * site.distance.to(dtype).abs()) / (reach + 1e-6)

    def score(self, scores: Tensor, q: Tensor, k: Tensor, site: Site) -> Tensor:
        network = 0 if self.shared else site.layer
        share = self.share(site, torch.promote_types(scores.dtype, torch.float32))
        hidden = functional.relu(linear(self.hidden[network], share.unsqueeze(-1)))
        return (scores + heads_first(linear(self.out[network], hidden))).to(scores.dtype)
