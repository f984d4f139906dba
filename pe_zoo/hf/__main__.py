"""Say which families of the installed Transformers take an encoder: ``python -m pe_zoo.hf [FAMILY …]``."""

import sys
from collections.abc import Iterable
from importlib.metadata import version

from pe_zoo.hf.families import REFUSED, SUPPORTED, UNTESTED, Family, families, tried


def written(found: Iterable[Family]) -> str:
    """Return Markdown: the supported by name, the refused with the reason, the untested by name."""
    by_outcome: dict[str, list[Family]] = {SUPPORTED: [], REFUSED: [], UNTESTED: []}
    for family in found:
        by_outcome[family.outcome].append(family)
    named = {outcome: ", ".join(f"`{family.name}`" for family in of) for outcome, of in by_outcome.items()}
    parts = [
        f"Transformers {version('transformers')}, each family tried small and with random weights.",
        f"**Supported** ({len(by_outcome[SUPPORTED])}): {named[SUPPORTED]}.",
        f"**Untested** ({len(by_outcome[UNTESTED])}; no small model could be made): {named[UNTESTED]}.",
        f"**Refused** ({len(by_outcome[REFUSED])}):",
        "| family | why |\n|---|---|\n"
        + "\n".join(f"| `{each.name}` | {each.reason} |" for each in by_outcome[REFUSED]),
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(written(map(tried, sys.argv[1:]) if sys.argv[1:] else families()))  # noqa: T201
