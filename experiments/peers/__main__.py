"""Time pe-zoo, x-transformers, Hugging Face Transformers and plain torch on the same shapes, in turn, in one process.

python -m experiments.peers                 a training step, six encoders, lengths 40, 128 and 512
python -m experiments.peers long            a forward pass over 16 384 tokens, next to fused attention without encoder
python -m experiments.peers hf              a training step of Hugging Face's Llama, as it is and through pe_zoo.hf.use

Needs the extra peers: pip install -c constraints.txt -e '.[peers]'. Ratios are medians over rounds of a peer's seconds
by ours of the same round: above 1, ours is faster; of hf by Llama's own, with its rotary positions: above 1, ours is
slower. Other processes on the machine disturb them.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import torch

import pe_zoo

CLASSIC = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
USED_BY = {"tokens": ("step", "hf"), "compile": ("step",)}
"""Options that only some modes use."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see python -m experiments.peers --help\n")


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each measurement; return 0, or 2 for a bad request."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for name, used_by in USED_BY.items():
        if getattr(options, name) and options.what not in used_by:
            parser.error(f"--{name} has no effect on {options.what}: leave it out, or use {' or '.join(used_by)}")
    try:
        for encoder in options.encoders:
            pe_zoo.get(encoder)
    except ValueError as error:
        parser.error(str(error))
    if absent := [name for name in ("x_transformers", "transformers") if find_spec(name) is None]:
        parser.error(f"{' and '.join(absent)} not installed; pip install -c constraints.txt -e '.[peers]'")
    from experiments.peers.runs import measure  # after the check: it imports the optional libraries

    if options.threads:
        torch.set_num_threads(options.threads)
    records = []
    for record in measure(options.what, options.encoders, options):
        records.append(record)
        print(_line(record), flush=True)  # noqa: T201
    if options.out:
        pd.DataFrame(records).to_csv(options.out, index=False, float_format="%.6g", lineterminator="\n")
    return 0


def _parser() -> Parser:
    description, _, rest = (__doc__ or "").partition("\n\n")
    layout = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="python -m experiments.peers", description=description, epilog=rest, formatter_class=layout)
    parser.add_argument("what", nargs="?", choices=("step", "long", "hf"), default="step")
    parser.add_argument("--encoders", nargs="+", default=CLASSIC, metavar="NAME", help="default: the classic six")
    lengths = "default: 40 128 512; for hf 128 512; for long 16384"
    parser.add_argument("--lengths", nargs="+", type=_count, metavar="N", help=lengths)
    parser.add_argument("--model-dim", type=_count, default=128, metavar="N", help="default: 128, with 4 heads")
    parser.add_argument("--layers", type=_count, default=4, metavar="N", help="default: 4")
    parser.add_argument("--tokens", type=_count, metavar="N", help="step, hf: tokens per step; default: 8192, 4096")
    parser.add_argument("--rounds", type=_count, default=5, metavar="N", help="rounds of everything; default: 5")
    parser.add_argument("--threads", type=_count, metavar="N", help="default: torch's own")
    parser.add_argument("--device", metavar="NAME", help="cpu (default), cuda, …")
    parser.add_argument("--compile", action="store_true", help="step: also time compiled peers (slow to start)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write a CSV file")
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _line(record: dict[str, Any]) -> str:
    return (
        f"{record['encoder']:<20}{record['length']:>6}  {record['who']:<52}{record['milliseconds']:>10.1f} ms"
        f"{record['ratio']:>7.2f} ×"
    )


if __name__ == "__main__":
    sys.exit(main())
