"""The lines that apply the recommended method to a model of Transformers, and the command to type next."""

import json
import shlex

from experiments.measures.context_extension import NAME, WINDOW
from experiments.measures.context_extension.ranking import Ranking

USE = 'pe_zoo.hf.use(model, "{name}"{more})'
BEFORE = [
    "import pe_zoo.hf",
    "from transformers import AutoModelForCausalLM, AutoTokenizer",
    "",
    "model = AutoModelForCausalLM.from_pretrained({place})",
]
AFTER = [
    "model.config.max_position_embeddings = {length}  # without it, generate warns of longer texts",
    'model.save_pretrained("longer")',
    'AutoTokenizer.from_pretrained({place}).save_pretrained("longer")',
    '# pe_zoo.hf.load("longer") reads it again; plain from_pretrained loses the change without a word',
]
"""How the lines that apply a method begin and end."""


def code(main: Ranking, window: int, place: str) -> list[str]:
    """Return the lines that apply the best replacement, and a window where that is as good or better: one or other."""
    limit = USE.format(name="rope", more=f", sliding_window={window}")
    lines = {WINDOW: [f"# attends to the last {window} tokens", limit]} if main.plain and WINDOW in main.better else {}
    if main.chosen:
        factor = main.line(main.chosen)["factor"]
        more = f", train_length={window}" + ("" if factor != factor else f", factor={factor!r}")
        lines[main.chosen] = ["# attends to all of the text", USE.format(name=main.chosen, more=more)]
        if WINDOW not in (main.best, *main.alike):
            lines.pop(WINDOW, None)
    if not lines:
        return []
    first, *others = lines.values() if main.first == WINDOW else reversed(lines.values())
    instead = [f"# or, instead: {note.removeprefix('# ')}\n# {line}".splitlines() for note, line in others]
    whole = [*BEFORE, *(first if others else first[1:]), *(line for each in instead for line in each), *AFTER]
    written = json.dumps(place, ensure_ascii=False)
    return [line.replace("{place}", written).replace("{length}", str(main.length)) for line in whole]


def next_command(main: Ranking, place: str, text: str) -> list[str]:
    """Return the command that measures under each method what share of facts in a long text is found."""
    words = ["python", "run.py", f"checkpoint={place}", "task=needles", text, f"experiment={NAME}"]
    words += [f"{NAME}.multiples=[1,{main.multiple:g}]", "name=found"]
    return ["# next: under each method, does the model find a fact anywhere in a long text?", shlex.join(words)]
