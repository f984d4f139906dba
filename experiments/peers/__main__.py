"""pe-zoo timed beside x-transformers, Hugging Face's models and plain torch: the same shapes, in turn, in one process.

python -m experiments.peers                 a training step, six encoders, lengths 40, 128 and 512
python -m experiments.peers run             a whole run: training on copy, and answers at up to eight times its length
python -m experiments.peers long            reading 16 384 tokens, beside fused attention without any encoder

Needs the extra peers: pip install -c constraints.txt -e '.[peers]'. Ratios are medians over rounds of a peer's seconds
by ours of the same round: above 1, ours is faster. Other processes on the machine disturb them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

CLASSIC = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
LENGTHS = {"step": (40, 128, 512), "run": (16,), "long": (16384,)}
TOKENS = {"step": 8192, "run": 256}
"""In a training step, unless told otherwise."""
USED_BY = {"tokens": ("step", "run"), "steps": ("run",), "compile": ("step",)}
"""What an option changes anything in, where that is not everything."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}; see python -m experiments.peers --help", file=sys.stderr)  # noqa: T201
        raise SystemExit(2)


def main(arguments: list[str] | None = None) -> int:
    """The command: 0, or 2 for a bad request."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for name, used_by in USED_BY.items():
        if getattr(options, name) and options.what not in used_by:
            what = f"--{name} changes nothing with {options.what}"
            parser.error(f"{what}: leave it out, or take {' or '.join(used_by)}")
    import pandas as pd
    import torch

    import pe_zoo
    from experiments.peers.models import missing

    try:
        for encoder in options.encoders:
            pe_zoo.get(encoder)
        if absent := missing():
            raise ValueError(f"{' and '.join(absent)} not installed; pip install -c constraints.txt -e '.[peers]'")
    except (LookupError, ValueError) as error:
        parser.error(str(error))
    if options.threads:
        torch.set_num_threads(options.threads)
    found = []
    for record in _measured(options):
        found.append(record)
        print(_line(record), flush=True)  # noqa: T201
    if options.out:
        pd.DataFrame(found).to_csv(options.out, index=False, float_format="%.6g", lineterminator="\n")
    return 0


def _parser() -> Parser:
    description, _, rest = (__doc__ or "").partition("\n\n")
    parser = Parser(
        prog="python -m experiments.peers",
        description=description,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=("step", "run", "long"), default="step")
    parser.add_argument("--encoders", nargs="+", default=CLASSIC, metavar="NAME", help="default: the classic six")
    lengths = "default: 40 128 512; for long 16384; for run 16, symbols of the longest word trained on"
    parser.add_argument("--lengths", nargs="+", type=_count, metavar="N", help=lengths)
    parser.add_argument("--model-dim", type=_count, default=128, metavar="N", help="default: 128, with 4 heads")
    parser.add_argument("--layers", type=_count, default=4, metavar="N", help="default: 4")
    parser.add_argument("--tokens", type=_count, metavar="N", help="of step and run: in a step; default: 8192, 256")
    parser.add_argument("--steps", type=_count, metavar="N", help="of run: how many; default: 200")
    parser.add_argument("--rounds", type=_count, default=5, metavar="N", help="of everything, in turn; default: 5")
    parser.add_argument("--threads", type=_count, metavar="N", help="default: as many as torch takes")
    parser.add_argument("--compile", action="store_true", help="of step: peers compiled, too (slow to start)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the same as a CSV file")
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from experiments.peers import runs
    from experiments.peers.timing import in_turn, product_rates, ratio, step_operations
    from pe_zoo import Geometry

    tokens = options.tokens or TOKENS.get(options.what, 0)
    for length in options.lengths or LENGTHS[options.what]:
        geometry = Geometry(model_dim=options.model_dim, num_heads=4, num_layers=options.layers, train_length=length)
        best = None
        if options.what == "step":
            batch_size = max(1, tokens // length)
            rates = product_rates(geometry, batch_size, length, options.rounds)
            best = step_operations(geometry, runs.VOCAB, batch_size, length) / max(rates.values())
        for encoder in options.encoders:
            if options.what == "step":
                does = runs.steps(encoder, geometry, tokens, compiled=options.compile)
            elif options.what == "run":
                does = runs.whole_runs(encoder, geometry, options.steps or 200, tokens)
            else:
                does = runs.long_texts(encoder, geometry)
            seconds = in_turn(does, options.rounds)
            for name, taken in seconds.items():
                yield {
                    "encoder": encoder,
                    "length": length,
                    "who": name,
                    "milliseconds": 1000 * median(taken),
                    "ratio": ratio(taken, seconds[runs.OURS]),
                    "share_of_product_rate": best and best / median(taken),
                }


def _line(record: dict[str, Any]) -> str:
    share = record["share_of_product_rate"]
    of_rate = "" if share is None else f"{100 * share:5.1f} % of the products' rate"
    return (
        f"{record['encoder']:<20}{record['length']:>6}  {record['who']:<52}{record['milliseconds']:>10.1f} ms"
        f"{record['ratio']:>7.2f} ×  {of_rate}"
    ).rstrip()


if __name__ == "__main__":
    sys.exit(main())
