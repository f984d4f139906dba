"""What rows can show over seeds: intervals, comparisons, ranks, reach, and verdicts on statements."""
