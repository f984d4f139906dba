import torch
from torch import Tensor

from pe_zoo import Geometry, Site, register
from pe_zoo._knobs import whole
from pe_zoo._rotation import Regrouped


@register("dual_chunk")
class DualChunk(Regrouped):
    """Rotates as RoPE does within a chunk of the text; between chunks, distances stay within those of two chunks.
    Dual chunk attention, An et al. (2024), arXiv:2402.17463, §3.

        scores[q, k] = rotate(q, a · θ) · rotate(k, (k_p mod chunk) · θ) / sqrt(head_dim)
        a = q_p mod chunk                                   where ⌊q_p/chunk⌋ = ⌊k_p/chunk⌋
        a = min(q_p mod chunk + chunk, chunk + window − 1)  where the key is one chunk before
        a = min(2 · chunk − 1, chunk + window − 1)          where it is further back;  θ[i] = base^(−2i/head_dim)

    Args:
        chunk: positions of a chunk, at least 1. None: 11/16 of ``train_length``, rounded up, as in the official code.
        window: places of the next chunk that keep their true distance, at least 1; those after them stay at its last.
            None: 1/16 of ``train_length``, rounded up, as in the official code.
        base: above 0; 10000 as published.

    Departures: none from the paper, for a causal model; the official code's last place is one later.
    """

    family = "rotation"
    extends = "rope"
    causal_only = True
    shift_invariant = direction_aware = False

    def __init__(
        self, geometry: Geometry, *, chunk: int | None = None, window: int | None = None, base: float = 10000.0
    ) -> None:
        super().__init__(geometry, base)
        length = geometry.train_length
        self.chunk = whole("dual_chunk chunk", -(-11 * length // 16) if chunk is None else chunk, at_least=1)
        self.window = whole("dual_chunk window", -(-length // 16) if window is None else window, at_least=1)

    def far(self, site: Site) -> list[tuple[Tensor, Tensor, Tensor]]:
        within_q, within_k = (positions % self.chunk for positions in (site.query_positions, site.key_positions))
        chunk_q, chunk_k = site.query_positions - within_q, site.key_positions - within_k
        back = chunk_q[..., :, None] - chunk_k[..., None, :]
        back = back if back.ndim == 2 else back.unsqueeze(-3)
        furthest = self.chunk + self.window - 1
        last = torch.full_like(within_q, min(2 * self.chunk - 1, furthest))
        return [
            (back == self.chunk, (within_q + self.chunk).clamp(max=furthest), within_k),
            (back > self.chunk, last, within_k),
        ]
