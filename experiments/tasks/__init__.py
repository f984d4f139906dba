"""Tasks. A file without a leading underscore registers one, or two that differ in form alone."""

from experiments.tasks.kinds.grid import Grid
from experiments.tasks.kinds.hidden import Hidden
from experiments.tasks.kinds.hinted import Hinted, Stepwise
from experiments.tasks.kinds.problem import Problem, Question
from experiments.tasks.kinds.task import Batch, Placed, Task, ask, held_out, shuffles, tasks
from experiments.tasks.kinds.transduction import Blanks, Ended, Transduction
from pe_zoo import load_catalogue

__all__ = ["Batch", "Problem", "Question", "Stepwise", "Task", "Transduction", "ask", "held_out", "shuffles", "tasks"]
__all__ += ["Blanks", "Ended", "Grid", "Hidden", "Hinted", "Placed"]

load_catalogue(__name__, __path__)
