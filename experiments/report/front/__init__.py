"""The first screen of a report."""
