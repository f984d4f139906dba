# my_encoder.py
import pe_zoo
import torch


@pe_zoo.register("log_distance")
class LogDistance(pe_zoo.Encoder):
    """Biases scores by the negative logarithm of the distance."""

    family = "score bias"  # what it changes
    shift_invariant = True
    static_bias = distance_bias = True

    def __init__(self, geometry: pe_zoo.Geometry, *, slope: float = 1.0) -> None:
        super().__init__(geometry)
        self.slope = slope

    def score(self, scores, q, k, site):
        return scores - (self.slope * torch.log1p(site.distance.abs())).to(scores.dtype)
