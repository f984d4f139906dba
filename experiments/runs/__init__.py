"""Runs on disk and on machines: what wraps the pipeline in folders, leases, checkpoints, workers and sweeps."""
