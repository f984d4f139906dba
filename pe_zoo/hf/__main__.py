"""Say which families of the installed Transformers take an encoder: ``python -m pe_zoo.hf [FAMILY …]``."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import version

from pe_zoo.hf.families import NAMES, REFUSED, SUPPORTED, UNTESTED, Family, families, tried


def written(found: Iterable[Family]) -> str:
    """Return Markdown: the supported by name, the untested by name, the refused with the reason; none of no family."""
    by_outcome: dict[str, list[Family]] = {SUPPORTED: [], REFUSED: [], UNTESTED: []}
    for family in found:
        by_outcome[family.outcome].append(family)
    named = {outcome: ", ".join(f"`{family.name}`" for family in of) for outcome, of in by_outcome.items()}
    count = {outcome: len(of) for outcome, of in by_outcome.items()}
    parts = {
        SUPPORTED: f"**Supported** ({count[SUPPORTED]}): {named[SUPPORTED]}.",
        UNTESTED: f"**Untested** ({count[UNTESTED]}; no small model could be made): {named[UNTESTED]}.",
        REFUSED: f"**Refused** ({count[REFUSED]}):\n\n| family | why |\n|---|---|\n"
        + "\n".join(f"| `{each.name}` | {each.reason} |" for each in by_outcome[REFUSED]),
    }
    head = f"Transformers {version('transformers')}, each family tried small and with random weights."
    return "\n\n".join([head, *(part for outcome, part in parts.items() if count[outcome])])


def main(names: list[str]) -> int:
    """Print the outcome for the named families, all if none is; return the exit code."""
    for name in names:
        if name not in NAMES:
            near = get_close_matches(name, NAMES) or ["llama", "qwen3", "gpt2"]
            print(f"error: no family named {name!r}; there are {', '.join(near)}, …", file=sys.stderr)  # noqa: T201
            return 2
    print(written(map(tried, names) if names else families()))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
