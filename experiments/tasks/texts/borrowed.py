"""Text as the tokens of another model, by its ``tokenizer.json``, and the bytes that each token spells."""

import hashlib
import json
import re
from typing import Any

from experiments.rows.saved import file_of
from experiments.tasks.texts.corpus import Corpus
from experiments.tasks.texts.tokenizer import Tokenized, encode

MOST_LOST = 0.01
"""Share of the bytes by which the tokens may spell another text: a space put at the start of each piece, at most."""
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def tokens_of(corpus: Corpus, place: str) -> Tokenized:
    """Tokenize a corpus by the tokenizer in a folder, or of a name on the hub that is kept here.

    Raises:
        ValueError: there is none, or it changes the text, so that bits per byte would mean something else.
    """
    try:
        import tokenizers  # optional
    except ImportError as error:
        raise ValueError(f'task.tokenizer={place} needs the package tokenizers: pip install "pe_zoo[text]"') from error
    file = file_of(place)
    if file is None:
        raise ValueError(f"task.tokenizer={place!r}: no tokenizer.json is there")
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    splits = {
        name: encode(tokenizer, of, lambda piece: piece.decode(errors="replace")) for name, of in corpus.splits.items()
    }
    text = Tokenized(splits, spellings(tokenizer), hashlib.sha256(tokenizer.to_str().encode()).hexdigest())
    for name, documents in corpus.splits.items():
        told, real = int(text.widths[splits[name].tokens.long()].sum()), sum(map(len, documents))
        if abs(told - real) > MOST_LOST * real + len(documents):
            lost = f"its tokens spell {told} bytes of the {real} of the {name} text"
            raise ValueError(f"task.tokenizer={place!r} changes the text: {lost}; take another, or bytes")
    return text


def spellings(tokenizer: Any) -> list[bytes]:
    """The bytes of each token: letters that stand for bytes, as in GPT-2, or text with ``▁`` for a space."""
    numbers: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    spelled = [b""] * (max(numbers.values()) + 1)
    alphabet = _letters() if '"ByteLevel"' in json.dumps(json.loads(tokenizer.to_str())["decoder"]) else None
    for token, number in numbers.items():
        if alphabet is not None and all(letter in alphabet for letter in token):
            spelled[number] = bytes(alphabet[letter] for letter in token)
        elif byte := BYTE.fullmatch(token):
            spelled[number] = bytes([int(byte[1], 16)])
        else:
            spelled[number] = token.replace("▁", " ").encode()
    return spelled


def _letters() -> dict[str, int]:
    """GPT-2's letters: printable bytes stand for themselves, the others for the letters from 256 on, in order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


def begin_of(place: str) -> int | None:
    """The token that a model begins a text with: its ``bos_token_id``, or else ``eos_token_id``; None if not told."""
    config = file_of(place, "config.json")
    if config is None:
        return None
    said = json.loads(config.read_text(encoding="utf-8"))
    said |= said.get("text_config") or {}
    found = next((said[key] for key in ("bos_token_id", "eos_token_id") if said.get(key) is not None), None)
    return int(found[0] if isinstance(found, list) else found) if found is not None else None
