"""Tasks. A file without a leading underscore registers one, or two that differ in form alone."""

from experiments.tasks.kinds.task import Batch, Task, tasks
from pe_zoo import load_catalogue

__all__ = ["Batch", "Task", "tasks"]

load_catalogue(__name__, __path__)
