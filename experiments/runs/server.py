"""Imported by the server that workers are forked from, and by nothing else.

It ends with the process that started it. A signal to a whole group, as of ``timeout``, would end it before its workers,
which could then no longer be waited for.
"""

import signal

import experiments.runs.job  # noqa: F401  what all workers need

signal.signal(signal.SIGTERM, signal.SIG_IGN)
