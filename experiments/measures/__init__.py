"""The questions that are asked of a model, a folder each: ``measure.py`` makes rows, ``report.py`` figures."""
