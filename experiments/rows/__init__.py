"""Rows: the one thing that every measurement becomes. Written by a run, read by a report."""
