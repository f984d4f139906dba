import math
from dataclasses import fields
from typing import Any

import torch
from torch import Generator, Tensor

from experiments.rows.saved import file_of
from experiments.rows.stretches import ENOUGH, stretch_for
from experiments.tasks import Batch, Task, tasks
from experiments.tasks.texts.borrowed import begin_of, tokens_of
from experiments.tasks.texts.corpus import SPLITS
from experiments.tasks.texts.documents import Documents
from experiments.tasks.texts.source import INSTALLED, LIBRARY, Source
from experiments.tasks.texts.tokenizer import byte_pairs_of, bytes_of
from pe_zoo import Unsupported
from pe_zoo._knobs import one_of, whole

OWN = ("bytes", "bpe")
"""Tokenizers that need no other model."""
LONGER = 4
"""Training lengths of the windows that a text of another's model is said to need."""


@tasks.register("text")
class Text(Task):
    """Predict the next token of real text.

        tokens   ^ d e f
        targets  d e f ·

    By default the text is the source code of Python's own library, and a token a byte.

    Files are ordered by a hash of their names and cut into train, validation and test by file, so that no test file is
    trained on; repeated files are read once. (Where whole files come nowhere near a tenth for test and validation each,
    they are cut by place instead.) A file with zero bytes is refused as no text. Rows of a data set keep their order
    and its own splits; a missing split is cut from the beginning of its train split, as files are.

    Documents (files, or rows) are joined by default: a window may span several of them; a row that does not end in a
    line break is given one. All rows stay.

    Kept whole, every window lies within one document. Empty rows are no documents, and repeated rows of a train split
    that is cut are read once.

    The test text that stands in the training text, in pieces of 50 bytes or more, is removed, so that it closes up. It
    is scored in separate windows, cut from stretches of 8 training lengths. The seed draws the stretches, for every
    encoder the same, one from each of as many parts of the test split. All lengths cut windows from the same
    stretches, so that a longer window differs by its context alone. Where too few whole documents fill a stretch, the
    longest are scored.

    With ``measured=all`` nothing is held out: all of the text is the test text, of a model that was trained elsewhere.
    It is the default with ``checkpoint=``, unless the text is a ``dataset``; then nothing stands in a training text.

    Quality is in bits per byte whatever the tokens, so that tokenizers can be compared.

    Args:
        train_length: tokens per training window, at least 2.
        path: a file or folder to read instead.
        measured: ``split``, or ``all`` of the text, for a model that is not trained here.
        source: ``library``, or ``installed``: the Python sources of the packages torch and sympy, 73 MB, instead.
        dataset: a text set to read instead, by ``datasets.load_dataset``: ``name``, ``name:configuration`` (such as
            ``Salesforce/wikitext:wikitext-103-raw-v1``) or a local folder of parquet, json, csv or text files.
        column: of the data set, where the text is.
        documents: ``joined`` or ``whole``.
        duplicates: ``removed`` or ``kept``: test text that stands in the training text, 50 bytes or more in one piece.
        tokenizer: ``bytes``, ``bpe`` (byte pairs learned from the training split), or that of another model: a folder
            with a ``tokenizer.json``, or a name on the hub whose files are kept here.
        vocabulary: of ``bpe``, how many tokens at most, at least 256; null: 1024.
    """

    metrics = ("bits_per_byte",)
    one_draw = True
    own_split = True

    def __init__(
        self,
        *,
        train_length: int = 128,
        path: str | None = None,
        dataset: str | None = None,
        column: str = "text",
        documents: str = "joined",
        duplicates: str = "removed",
        tokenizer: str = "bytes",
        vocabulary: int | None = None,
        source: str = "library",
        measured: str = "split",
    ) -> None:
        self.train_length = self.min_length = whole("task.train_length", train_length, at_least=2)
        if not (isinstance(tokenizer, str) and tokenizer not in OWN and file_of(tokenizer)):
            one_of("task.tokenizer", tokenizer, OWN)
        self._unit = "bytes" if tokenizer == "bytes" else "tokens"
        self._joined = one_of("task.documents", documents, ("joined", "whole")) == "joined"
        one_of("task.duplicates", duplicates, ("removed", "kept"))
        if vocabulary is not None and tokenizer != "bpe":
            raise ValueError(f"task.vocabulary={vocabulary} changes nothing for {tokenizer}; set task.tokenizer=bpe")
        if vocabulary is not None:
            whole("task.vocabulary", vocabulary, at_least=256)
        one_of("task.source", source, (LIBRARY, INSTALLED))
        one_of("task.measured", measured, ("split", "all"))
        origin = Source(path, dataset, column, documents, duplicates, source, measured)
        corpus = origin.corpus()
        num_documents = {name: len(documents) for name, documents in corpus.splits.items()}
        boundary = "no mark" if dataset is None else "a line break after each row, its own or one added"
        corpus = corpus.joined() if self._joined else corpus
        if tokenizer in OWN:
            text = bytes_of(corpus) if tokenizer == "bytes" else byte_pairs_of(corpus, vocabulary or 1024)
        else:
            text = tokens_of(corpus, tokenizer)
        splits = dict.fromkeys(SPLITS, text.splits["train"]) if measured == "all" else text.splits
        self.splits, self.spelled, self._widths = splits, text.spelled, text.widths
        self._num_tokens = len(self.spelled)
        begin = None if tokenizer in OWN else begin_of(tokenizer)
        self.begin = self._num_tokens if begin is None else begin
        self.vocab_size = max(self._num_tokens, self.begin + 1)
        if measured == "all":
            self._check_all(corpus.label, corpus.provenance.get("bytes", 0))
        self._check_lengths(corpus.label, corpus.provenance.get("test_bytes_removed", 0))
        self.text_length = len(self.splits["train"])
        self.running_length = len(self.splits["test"]) if self._joined else 0
        train, test = (
            torch.bincount(self.splits[name].tokens.int(), minlength=self._num_tokens).double()
            for name in ("train", "test")
        )
        self._guess = (train + 1) / (train + 1).sum()
        self._test_shares = test / test.sum()
        self._token_bytes = float((test * self._widths).sum() / test.sum())
        self._provenance = corpus.provenance | {
            "splits_sha256": origin.sha256(),
            "documents": documents,
            "boundary": boundary if self._joined else "not crossed by any window",
            "documents_by_split": num_documents if measured == "split" else {"test": num_documents["train"]},
            "tokenizer": tokenizer,
            "vocabulary": self._num_tokens,
            "bytes_per_token": round(self._token_bytes, 4),
            "tokenizer_sha256": text.sha256,
        }

    def _check_all(self, label: str, size: int) -> None:
        text = self.splits["test"]
        if text.longest < self.train_length:
            what = f"{len(text)} {self._unit}" if self._joined else f"no document above {text.longest} {self._unit}"
            wanted = ENOUGH * LONGER * self.train_length
            each = size / max(1, len(text))
            raise ValueError(
                f"{label} has {what}, less than one window of task.train_length={self.train_length}; for {ENOUGH} "
                f"windows at {LONGER} times that length it must have {wanted:,} {self._unit}, about "
                f"{math.ceil(wanted * each / 1000)} kB"
            )

    def _check_lengths(self, label: str, removed: int) -> None:
        for name, part in self.splits.items():
            if part.longest < self.train_length:
                size, unit, other = self.train_length, self._unit, ""
                if name == "test" and removed:
                    other = f", or task.duplicates=kept ({removed} bytes of the test text stand in the training text)"
                left = f"leaves {len(part)} {unit} for {name}"
                if not self._joined:
                    left = f"has no document of {size} {unit} for {name}, the longest has {part.longest}"
                    other = f" or task.documents=joined{other}"
                remedy = f"give it more text or a shorter train_length{other}"
                raise ValueError(f"{label} {left}, not enough for windows of task.train_length={size}; {remedy}")

    def sequence_length(self, length: int) -> int:
        return length

    def sample(self, batch_size: int, length: int, generator: Generator, *, split: str, causal: bool) -> Batch:
        return self._windows(self._text(split, length).draw(batch_size, length, generator), causal)

    def evaluation(self, samples: int, length: int, generator: Generator, *, causal: bool) -> Batch:
        """Return windows of stretches of test text: ``samples`` of training length, fewer longer ones."""
        total, stretch = samples * self.train_length, stretch_for(length / self.train_length) * self.train_length
        return self._windows(self._text("test", length).stretches(total, length, stretch, generator), causal)

    @classmethod
    def data_sha256(cls, **knobs: Any) -> str:
        return Source(**{field.name: knobs[field.name] for field in fields(Source) if field.name in knobs}).sha256()

    def numbers(self, kind: str, size: int, *, causal: bool) -> Tensor:
        """Return, of ``segments``, the tokens that have a line break or end with a full stop; others there are none."""
        if kind != "segments":
            return super().numbers(kind, size, causal=causal)
        return torch.tensor([i for i, token in enumerate(self.spelled) if b"\n" in token or token.endswith(b".")])

    def places(self, length: int) -> int:
        raise Unsupported(f"{self.name}: the answer depends on all of the text; task=needles asks for a part of one")

    def windows(self, ends: Tensor, length: int, *, causal: bool) -> Batch:
        if not self._joined:
            raise Unsupported("text: whole documents are no running text; set task.documents=joined")
        text = self._text("test", length).tokens
        first, last = int(ends.min()), int(ends.max())
        if first < length or last > len(text):
            outside = f"windows of {length} {self._unit} up to {first}–{last}"
            raise Unsupported(f"text: {outside} leave the {len(text)} of the test")
        return self._windows(text[ends.unsqueeze(1) - length + torch.arange(length)], causal)

    def _text(self, split: str, length: int) -> Documents:
        text = self.splits[split]
        self.check_length(length)
        if length > text.longest:
            whole = f"the {split} text of" if self._joined else f"any document of the {split} text; the longest has"
            raise Unsupported(f"text: a window of {length} {self._unit} is longer than {whole} {text.longest}")
        return text

    def _windows(self, text: Tensor, causal: bool) -> Batch:
        self.check_causal(causal)
        targets = text.long()
        begin = torch.full_like(targets[:, :1], self.begin)
        counted = torch.ones(targets.shape[1], dtype=torch.bool)
        widths = None if self._unit == "bytes" else self._widths[targets]
        return Batch(torch.cat([begin, targets[:, :-1]], 1), targets, counted, widths)

    def chance(self, metric: str, length: int) -> float:
        """Every token is as likely as any other; in bits, per byte of a mean token of the whole test split."""
        return 1 / self._num_tokens if metric == "token_accuracy" else math.log2(self._num_tokens) / self._token_bytes

    def position_guess(self, metric: str, length: int) -> float:
        """Guess the training text's token frequencies (each count plus one) for the whole test split.

        `evaluation` scores a sample of it, where the guess may do better or worse.
        """
        if metric == "token_accuracy":
            return float(self._test_shares[self._guess.argmax()])
        return float(-(self._test_shares * self._guess.log2()).sum()) / self._token_bytes

    def has_converged(self, quality: dict[str, float]) -> bool:
        """Return whether quality is half a bit per token better than `position_guess`, so that context is used.

        The guess is about test text and quality about validation text. Bytes of Python 3.11's library: .83 bits, as
        token frequencies give 4.30 on the one and 4.62 on the other.
        """
        guess = self.position_guess("bits_per_byte", self.train_length)
        return quality["bits_per_byte"] < guess - 0.5 / self._token_bytes

    def provenance(self) -> dict[str, Any]:
        return dict(self._provenance)
