import math

from pe_zoo import Geometry, register
from pe_zoo._knobs import number, whole
from pe_zoo._rotation import Rotary


@register("hope")
class HoPE(Rotary):
    """Rotates only pairs whose wavelength fits into the training length; the others carry no position.
    High-frequency rotary position encoding, Chen et al. (2024), arXiv:2410.21216, on the rotation of Su et al. (2021),
    arXiv:2104.09864, §3.2.

        angle[i] = p · base^(−2i/head_dim) where that frequency is at least 2π / longest_wavelength, else 0

    Not the hyperbolic rotary encoding (arXiv:2509.05218) or the video encoding (arXiv:2505.20444) also called HoPE.

    Args:
        longest_wavelength: the longest wavelength that is rotated, in positions, at least 1. None: ``train_length``, as
            published.
        base: at least 1; 10000 as published.

    Departures: the pair of the highest frequency is rotated even if that is shorter than its wavelength of 2π.
    """

    family = "rotation"

    def __init__(self, geometry: Geometry, *, longest_wavelength: int | None = None, base: float = 10000.0) -> None:
        super().__init__(geometry, base)
        longest = geometry.train_length if longest_wavelength is None else longest_wavelength
        whole("hope longest_wavelength", longest, at_least=1)
        number("hope base", base, at_least=1)
        wavelengths = [2 * math.pi * base ** (2 * i / geometry.head_dim) for i in range(self.pairs)]
        self.rotated_pairs = max(1, sum(wavelength <= longest for wavelength in wavelengths))
