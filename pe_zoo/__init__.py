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
    >>> turned_q, turned_k = encoder.rotate(q, k, site)
    >>> scores = encoder.score(turned_q @ turned_k.mT * geometry.head_dim**-0.5, turned_q, turned_k, site)
    >>> encoder.mix(scores.masked_fill(~mask, -torch.inf), v, site).shape
    torch.Size([2, 4, 10, 8])

``scores`` does the middle part in one call, for the last rows too (two queries, ten keys):

    >>> torch.allclose(scores, pe_zoo.scores(encoder, q, k, positions, x=x), atol=1e-6)
    True
    >>> torch.allclose(scores[:, :, -2:], pe_zoo.scores(encoder, q[:, :, -2:], k, positions, x=x), atol=1e-5)
    True

Every encoder takes the same calls, whichever hooks it uses.
"""

from pe_zoo._encoder import Encoder, Geometry, Site, Unsupported, raw_scores, scores
from pe_zoo._knobs import Knob, knobs
from pe_zoo._numberings import Numbering, numberings
from pe_zoo._registry import (
    PluginError,
    Registry,
    build,
    get,
    load_catalogue,
    load_file,
    load_plugins,
    names,
    register,
)

__all__ = [
    "Encoder",
    "Geometry",
    "Knob",
    "Numbering",
    "PluginError",
    "Registry",
    "Site",
    "Unsupported",
    "build",
    "get",
    "knobs",
    "load_catalogue",
    "load_file",
    "load_plugins",
    "names",
    "numberings",
    "raw_scores",
    "register",
    "scores",
]

load_catalogue(__name__, __path__)
