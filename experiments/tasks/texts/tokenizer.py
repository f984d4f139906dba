"""Text as tokens: its bytes, or byte pairs merged again and again, learned from the training text itself.

Every token stands for a fixed sequence of bytes, and all 256 bytes are tokens: decoding restores every text. Byte
pairs after Sennrich et al. (2016), arXiv:1508.07909, of bytes as in Radford et al. (2019, GPT-2, section 2.2), by the
library ``tokenizers``.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.tasks.texts.cache import Packed, cached
from experiments.tasks.texts.corpus import Corpus, digest_of
from experiments.tasks.texts.documents import Documents

WORDS = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""GPT-2's: no pair is merged across the border of two such pieces."""
ALPHABET = "".join(chr(byte) if byte < 128 else chr(0x100 + byte) for byte in range(256))
"""A character for each byte. Those that are no ASCII are letters, so that a word in UTF-8 is one piece."""
TO_ALPHABET = dict(enumerate(ALPHABET))
BETWEEN_WORDS = re.compile(rb"(?<=\S)(?=\s)")
PIECE_BYTES = 1 << 20
"""Text is encoded in pieces of about this size, to need little memory."""


@dataclass(frozen=True, eq=False)
class Tokenized:
    """A corpus in tokens: its splits, the bytes of each token, and a hash of the tokenizer if bytes are merged."""

    splits: dict[str, Documents]
    spelled: list[bytes]
    sha256: str | None = None

    @property
    def widths(self) -> Tensor:
        """``(tokens,)`` int64, bytes that each stands for."""
        return torch.tensor([len(token) for token in self.spelled])


def bytes_of(corpus: Corpus) -> Tokenized:
    """Make every byte a token, its own number."""
    splits = {}
    for name, documents in corpus.splits.items():
        text = torch.frombuffer(bytearray(b"".join(documents)) or bytearray(1), dtype=torch.uint8)
        sizes = torch.tensor([len(document) for document in documents], dtype=torch.long)
        splits[name] = Documents(text[: int(sizes.sum())], sizes)
    return Tokenized(splits, [bytes([byte]) for byte in range(256)])


def byte_pairs_of(corpus: Corpus, vocabulary: int) -> Tokenized:
    """Learn up to ``vocabulary`` byte pairs from the training split: the same text always gives the same tokens.

    Raises:
        ValueError: ``tokenizers`` is not installed.
    """
    try:
        import tokenizers  # optional
    except ImportError as error:
        remedy = 'pip install "pe_zoo[text]", or take task.tokenizer=bytes'
        raise ValueError(f"task.tokenizer=bpe needs the package tokenizers: {remedy}") from error
    key = f"{tokenizers.__version__} {WORDS} {vocabulary} {digest_of(corpus.splits)}"
    return cached(key, lambda: _learned(tokenizers, corpus, vocabulary), _pack, _unpack)


def _learned(tokenizers: Any, corpus: Corpus, vocabulary: int) -> Tokenized:
    tokenizer = _train(tokenizers, corpus.splits["train"], vocabulary)
    splits = {name: encode(tokenizer, documents, _spell) for name, documents in corpus.splits.items()}
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    spelled = [bytes(ord(character) & 0xFF for character in token) for token in tokens]
    return Tokenized(splits, spelled, hashlib.sha256(tokenizer.to_str().encode()).hexdigest())


def _train(tokenizers: Any, documents: list[bytes], vocabulary: int) -> Any:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False, initial_alphabet=list(ALPHABET), special_tokens=[]
    )
    tokenizer.train_from_iterator((_spell(piece) for text in documents for piece in pieces(text)), trainer)
    return tokenizer


def encode(tokenizer: Any, documents: list[bytes], spell: Callable[[bytes], str]) -> Documents:
    """Tokenize documents in `pieces`, each given to the tokenizer as ``spell`` writes it."""
    tokens, sizes = [torch.zeros(0, dtype=torch.int32)], []
    for document in documents:
        parts = tokenizer.encode_batch_fast([spell(piece) for piece in pieces(document)], add_special_tokens=False)
        numbers = [torch.tensor(part.ids, dtype=torch.int32) for part in parts]
        sizes.append(sum(map(len, numbers)))
        tokens += numbers
    return Documents(torch.cat(tokens), torch.tensor(sizes, dtype=torch.long))


def pieces(text: bytes) -> Iterator[bytes]:
    """Cut a text into pieces that are encoded as they would be together: each but the first begins with white space."""
    start = 0
    while start < len(text):
        border = BETWEEN_WORDS.search(text, start + PIECE_BYTES)
        end = border.start() if border else len(text)
        yield text[start:end]
        start = end


def _spell(text: bytes) -> str:
    return text.decode("latin-1").translate(TO_ALPHABET)


def _pack(tokenized: Tokenized) -> Packed:
    tensors = {f"{name}.tokens": documents.tokens for name, documents in tokenized.splits.items()}
    tensors |= {f"{name}.sizes": documents.sizes for name, documents in tokenized.splits.items()}
    spelled = json.dumps([list(token) for token in tokenized.spelled])
    return tensors, {"splits": json.dumps(list(tokenized.splits)), "spelled": spelled, "sha256": tokenized.sha256 or ""}


def _unpack(packed: Packed) -> Tokenized:
    tensors, texts = packed
    names = json.loads(texts["splits"])
    splits = {name: Documents(tensors[f"{name}.tokens"], tensors[f"{name}.sizes"]) for name in names}
    return Tokenized(splits, [bytes(token) for token in json.loads(texts["spelled"])], texts["sha256"])
