"""Rows -> tables, figures and one page: ``python report.py results/<name>``. Reads only what is on disk."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Write ``<folder>/report``; 0, or 2 where the request was at fault, with one line that says how."""
    parser = argparse.ArgumentParser(prog="report.py", description="Compare the runs of a folder on one page.")
    parser.add_argument("folder", type=Path, help="results/<name>, as run.py has written it")
    parser.add_argument("--baseline", help="label or encoder to compare with (default: none, else the first)")
    parser.add_argument("--status", action="store_true", help="how far its runs are, and nothing else")
    options = parser.parse_args(arguments)
    # Imported here so that --help and a mistyped option answer at once.
    from experiments import _claims, _page, _report, _results, _status

    try:
        if options.status:
            print(_status.text(options.folder))
            return 0
        results = _results.load(options.folder)
        baselines = _report.find_baselines(results, options.baseline)
        claims = _claims.load()
    except (ValueError, OSError) as error:
        return _refuse(error)
    page = _report.build(results, baselines, claims)
    try:
        index = _page.write(page, options.folder / "report")
    except (ValueError, OSError) as error:
        return _refuse(error)
    print("\n\n".join([*(f"warning: {warning}" for warning in page.warnings), *page.summary]))
    print(f"\n{index}")
    return 0


def _refuse(error: Exception) -> int:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
