from pe_zoo import Encoder, register


@register("none")
class NoPE(Encoder):
    """Adds no positional encoding (NoPE): only a causal mask can leak order.
    Kazemnejad et al. (2023), arXiv:2305.19466, §2; Haviv et al. (2022), arXiv:2203.16634.

        scores[q, k] = q · k / sqrt(head_dim)

    Without a causal mask the model is exactly permutation-equivariant, and one causal layer sees its past as a bag;
    compare encoders on causal models of two layers or more.

    Departures: none.
    """

    family = "no position"
    shift_invariant = True
