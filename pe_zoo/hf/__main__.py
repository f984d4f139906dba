"""Say which families of the installed Transformers take an encoder: ``python -m pe_zoo.hf [FAMILY …]``."""

import sys
from importlib.metadata import version

from pe_zoo.hf.families import families, tried


def main(names: list[str]) -> int:
    """Print a Markdown table, a row for each family as it has been tried."""
    print(f"Transformers {version('transformers')}, tried with random weights by `python -m pe_zoo.hf`.\n")  # noqa: T201
    print("| family | outcome | why |\n|---|---|---|")  # noqa: T201
    for family in map(tried, names) if names else families():
        print(f"| {family.name} | {family.outcome} | {family.reason} |", flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
