"""pe_zoo: positional encoders behind one contract. ``names()`` lists them, ``build(name, geometry)`` makes one.

``python -m pe_zoo`` shows them, ``python -m pe_zoo check FILE.py`` tries one of your own. In a model of your own,
with torch alone:

    >>> import torch, pe_zoo
    >>> geometry = pe_zoo.Geometry(model_dim=32, num_heads=4, num_layers=2, train_length=10)
    >>> encoder = pe_zoo.build("rope", geometry, base=500000)

Once per sequence, on the token embeddings ``(batch, length, model_dim)``:

    >>> positions = torch.arange(10.0)
    >>> x = encoder.embed(torch.randn(2, 10, 32), positions)

In each layer, queries, keys and values ``(batch, heads, length, head_dim)`` become scores, and masked scores outputs:

    >>> q, k, v = (torch.randn(2, 4, 10, 8) for _ in range(3))
    >>> mask = torch.ones(10, 10, dtype=torch.bool).tril()
    >>> site = pe_zoo.Site(layer=0, query_positions=positions, key_positions=positions, rows=slice(0, 10), mask=mask,
    ...                    causal=True, x=x)
    >>> rotated_q, rotated_k = encoder.rotate(q, k, site)
    >>> scores = encoder.score(rotated_q @ rotated_k.mT * geometry.head_dim**-0.5, rotated_q, rotated_k, site)
    >>> encoder.mix(scores.masked_fill(~mask, -torch.inf), v, site).shape
    torch.Size([2, 4, 10, 8])

``scores`` does the middle part in one call, for the last rows too (two queries, ten keys):

    >>> torch.allclose(scores, pe_zoo.scores(encoder, q, k, positions, x=x), atol=1e-6)
    True
    >>> torch.allclose(scores[:, :, -2:], pe_zoo.scores(encoder, q[:, :, -2:], k, positions, x=x), atol=1e-5)
    True

Every encoder takes the same calls, whichever hooks it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pe_zoo._library import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        # On first use only: a help text or a report reads `pe_zoo._catalogue` and must not wait for torch.
        if not name.startswith("_"):
            library = import_module("pe_zoo._library")
            if name in library.__all__:
                return getattr(library, name)
            if name in globals():  # an encoder's module, imported just now
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *import_module("pe_zoo._library").__all__]
