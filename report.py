"""Rows -> tables, figures and one page: ``python report.py results/<name>``. Reads only what is on disk.

``python report.py results/<name> results/<other>`` says what changed between two folders.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.report.page import Page

INTERRUPTED = "interrupted; the same command writes the report anew"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write ``<folder>/report``; 0, 2 where the request was at fault, with one line that says how, 130 at Ctrl-C."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.against and (options.baseline or options.paper or options.overlay or options.status):
        parser.error("two folders are compared without --baseline, --paper, --overlay and --status: leave these out")
    if options.status and (options.baseline or options.paper or options.overlay):
        parser.error("--status draws nothing and compares nothing: leave out --baseline, --paper and --overlay")
    try:
        return _answer(options)
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return 130


def _answer(options: argparse.Namespace) -> int:
    # Imported here so that --help and a mistyped option answer at once.
    from experiments.report import build as _report
    from experiments.report import overlay
    from experiments.report import page as _page
    from experiments.report.paper import exports, methods
    from experiments.rows import results as _results
    from experiments.runs import status
    from experiments.statistics import claims as _claims

    if signal.getsignal(signal.SIGINT) is _end_at_once:  # all is imported
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if options.status:
            print(status.text(options.folder))
            return 0
        if options.against:
            return _compare(options.folder, options.against)
        with _left_alone():
            results = _results.load(options.folder)
        baselines = _report.find_baselines(results, options.baseline)
        claims = _claims.load()
        published = [overlay.read(path) for path in options.overlay]
    except (ValueError, OSError) as error:
        return _refuse(error)

    def build() -> Page:
        page = _report.build(results, baselines, claims)
        page.method, settings = methods.paragraph(results, page.method)
        if settings is not None:
            page.sections.insert(0, _page.Section("Settings and lengths of each task", parts=[settings], level=3))
        overlay.draw(page, published)
        return _page.with_names_of_their_own(page)

    try:
        page = build()
        folder = options.folder / "report"
        index = _page.write(page, folder)
        exports.write_texts(page, results, folder)
        exports.remove_paper(folder)
        if options.paper:
            with exports.laid_out_for_single():
                narrow = build()
            exports.write_paper(page, narrow, folder)
    except (ValueError, OSError) as error:
        return _refuse(error)
    print("\n\n".join([*(f"warning: {warning}" for warning in page.warnings), *page.summary]))
    print(f"\n{index}" + (f"\n{folder / 'report.tex'}" if options.paper else ""))
    return 0


@contextmanager
def _left_alone() -> Iterator[None]:
    """What is made in here is not looked through for garbage again and again: of many runs that takes seconds."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="report.py", description="Compare the runs of a folder on one page.")
    parser.add_argument("folder", type=Path, help="results/<name>, as run.py has written it")
    parser.add_argument(
        "against", type=Path, nargs="?", help="another such folder: what changed from it, in <folder>/report/against"
    )
    parser.add_argument("--baseline", help="label or encoder to compare with (default: none, else the first)")
    parser.add_argument(
        "--paper",
        action="store_true",
        help="figures as SVG, PDF and PNG in single and double column width too, and report.tex; takes much longer",
    )
    parser.add_argument(
        "--overlay",
        type=Path,
        action="append",
        default=[],
        metavar="CSV",
        help="published rows, in the columns of rows.csv, to be drawn over ours (more than once: several files)",
    )
    parser.add_argument("--status", action="store_true", help="how far its runs are, and nothing else")
    return parser


def _compare(folder: Path, against: Path) -> int:
    from experiments.report import comparison
    from experiments.report import page as _page
    from experiments.rows import results as _results

    page = comparison.build(_results.load(folder), _results.load(against))
    index = _page.write(page, comparison.place(folder, against))
    print("\n\n".join([*(f"warning: {warning}" for warning in page.warnings), *page.summary]))
    print(f"\n{index}")
    return 0


def _refuse(error: Exception) -> int:
    from experiments.rows.untrusted import message_of

    print(f"error: {message_of(error)}", file=sys.stderr)
    return 2


def _end_at_once(signum: int, _: FrameType | None) -> None:
    """Ctrl-C while modules are imported, which some of them would take for an error of their own."""
    print(INTERRUPTED, file=sys.stderr, flush=True)
    os._exit(128 + signum)


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as in the background
        signal.signal(signal.SIGINT, _end_at_once)
    sys.exit(main())
