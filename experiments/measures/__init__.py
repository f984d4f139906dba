"""The questions asked of a model, a folder each: ``measure.py`` makes rows, ``report.py`` figures and tables."""

from pathlib import Path

from pe_zoo import _catalogue


def entries() -> tuple[_catalogue.Entry, ...]:
    """Every measure, as its source documents it: nothing is imported."""
    return _catalogue.measures(Path(__file__).parent)
