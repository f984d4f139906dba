"""Rows -> tables, figures and one page: ``python report.py results/<name>``. Reads only what is on disk.

``python report.py results/<name> results/<other>`` compares two folders.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from experiments.rows.untrusted import message_of
from experiments.training import heartbeat


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see python report.py --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write ``<folder>/report``; return 0, 2 after a request that cannot be met, or 130 after Ctrl-C."""
    parser = _parser()
    options = parser.parse_args(arguments)
    drawing = options.baseline or options.paper or options.single or options.overlay
    if options.against and (drawing or options.status):
        others = "--baseline, --paper, --single, --overlay and --status"
        parser.error(f"two folders are compared without {others}: leave these out")
    if options.licence and not options.submit:
        parser.error("--licence is that of a submission: add --submit WHO, or leave it out")
    if options.status and drawing:
        parser.error("--status draws nothing: leave out --baseline, --paper, --single and --overlay")
    heartbeat.listen()
    try:
        with heartbeat.beating(), heartbeat.doing("reading the runs" if options.status else "writing the report"):
            return _run(options)
    except KeyboardInterrupt:
        print("interrupted; the same command writes the report again", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="report.py", description="Compare the runs of a folder on one page.")
    parser.add_argument("folder", type=Path, help="results/<name>, as written by run.py")
    against = "another such folder to compare with; goes to <folder>/report/against"
    parser.add_argument("against", type=Path, nargs="?", help=against)
    parser.add_argument("--baseline", help="series or encoder to compare with (default: none, else the first)")
    paper = "also write report.tex, with the main table and every figure at column width; takes longer"
    parser.add_argument("--paper", action="store_true", help=paper)
    parser.add_argument("--single", action="store_true", help="also write the report as one file, single.html")
    overlay = "published rows, in the columns of rows.csv, to draw over ours; may be repeated"
    parser.add_argument("--overlay", type=Path, action="append", default=[], metavar="CSV", help=overlay)
    submit = "hand in these results: write results/submissions/WHO/<name>, which run.py --verify checks"
    parser.add_argument("--submit", metavar="WHO", help=submit)
    formats = "write <folder>/export: JSON in the schema of Every Eval Ever, or a Hugging Face dataset"
    parser.add_argument("--export", choices=("evaluations", "dataset"), help=formats)
    licence = "of what --submit hands in, such as Apache-2.0 (default: MIT, as this repository)"
    parser.add_argument("--licence", help=licence)
    parser.add_argument("--status", action="store_true", help="only print which runs are done and which are missing")
    return parser


def _run(options: argparse.Namespace) -> int:
    # Imported here because matplotlib and pandas take seconds: --help and a mistyped option must answer at once.
    from experiments.report import build, comparison, export
    from experiments.runs import status, submit

    try:
        if options.status:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # it is read through head
            print(status.text(options.folder))
            return 0
        if options.submit:
            target = submit.submit(options.folder, options.submit, options.licence or "MIT")
            print(f"{target}\nverify it:     python run.py --verify {target} --yes")
            print(f"then commit:   {target}, and nothing else, in a pull request (CONTRIBUTING.md, Submit results)")
            return 0
        if options.export:
            print(export.write(options.folder, options.export))
            return 0
        if options.against:
            page, index = comparison.write(options.folder, options.against)
        else:
            more = {"paper": options.paper, "single": options.single}
            page, index = build.write(options.folder, options.baseline, options.overlay, **more)
    except (ValueError, OSError) as error:
        print(f"error: {message_of(error)}", file=sys.stderr)
        return 2
    print("\n\n".join([*(f"warning: {warning}" for warning in page.warnings), page.title, *page.summary]))
    print(f"\n{index}" + (f"\n{index.with_name('report.tex')}" if options.paper else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
