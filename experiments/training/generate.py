"""Free-running answers: the model reads its own output in place of the truth, one token at a time, with a cache."""

import torch
from torch import Generator, Tensor

from experiments.model.attention import Past
from experiments.model.transformer import Transformer
from experiments.tasks import Batch
from experiments.training.evaluate import Scored, in_chunks, score
from pe_zoo import Numbering, Unsupported
from pe_zoo._positions import at, length_of


class Cache:
    """Incremental reading of a text by a causal model; Unsupported of another.

    Each layer caches its normalised input, values and raw keys (before any hook). The encoder's hooks see all keys with
    each new token, as they do for a block of queries in a long text, so caching works for every encoder, including
    those that rotate a key differently for each query. Caching rotated keys would be faster, and wrong for these.
    Positions are of all tokens there will be, ``(length,)``, ``(batch, length)`` or ``(batch, length, axes)``.
    """

    def __init__(self, model: Transformer, positions: Tensor) -> None:
        if not model.causal:
            raise Unsupported("a bidirectional model cannot read incrementally: it has no cache")
        self.model = model
        self.positions = positions
        self.length = 0
        self._pasts = [Past(length_of(positions)) for _ in model.layers]

    def read(self, tokens: Tensor) -> Tensor:
        """Read further tokens, ``(batch, new)`` int64, and return their logits, ``(batch, new, vocab)``."""
        end = self.length + tokens.shape[-1]
        with torch.no_grad():
            logits = self.model(tokens, at(self.positions, slice(end)), self._pasts)
        self.length = end
        return logits


def fed(batch: Batch) -> Tensor:
    """Return the scored positions whose right answer is the next input token, ``(length,)`` bool."""
    follows = (batch.tokens[:, 1:] == batch.targets[:, :-1]).all(0)
    return torch.cat([batch.counted[:-1] & follows, torch.zeros_like(batch.counted[:1])])


def generate(
    model: Transformer, batch: Batch, positions: Tensor, count: int | None = None, numbering: Numbering | None = None
) -> Scored | None:
    """Score a batch free-running: the likeliest token at each scored position is read next, right or wrong.

    Positions are ``(length,)`` or ``(batch, length)``, and axes if there are several; a numbering that reads tokens
    gives new ones after each token. Of the first ``count`` sequences (None: all); which answers are
    read next is decided by all of the batch, since in a few of them one may match by chance. None if no answer is ever
    read next, so that both modes coincide.
    """
    places = fed(batch).nonzero().flatten().tolist()
    if not places:
        return None
    batch = batch.first(len(batch.tokens) if count is None else count)

    def answer(tokens: Tensor, positions: Tensor) -> Tensor:
        cache, tokens, logits = Cache(model, positions), tokens.clone(), []
        for place in places:
            logits.append(cache.read(tokens[:, cache.length : place + 1]))
            tokens[:, place + 1] = logits[-1][:, -1].argmax(-1)
            if numbering is not None and numbering.reads_tokens:
                cache.positions = numbering.read(tokens.cpu(), Generator()).to(tokens.device)
        logits.append(cache.read(tokens[:, cache.length :]))
        return torch.cat(logits, 1)

    return score(in_chunks(model, batch.tokens, positions, answer)[:, batch.counted], batch)
