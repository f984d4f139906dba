"""How the changes of a model are named to a reader."""

from experiments.measures.context_extension import AS_TRAINED, DROPPED, FIRST_TOKENS, LIMITS, WINDOW, WITH_FIRST

UNCHANGED = "unchanged"
NAMES = {AS_TRAINED: UNCHANGED, DROPPED: "no encoding"}
"""How conditions are named where no other name says them."""
WAYS = {
    WINDOW: "a window, which ignores what is further back",
    WITH_FIRST: f"a window and the first {FIRST_TOKENS} tokens, which ignores what is between",
}
"""How a heading names a limit."""


def named(condition: str, window: int) -> str:
    """Return how a condition is named to a reader."""
    if condition in LIMITS:
        return f"a window of {window}{f' and the first {FIRST_TOKENS}' * (condition == WITH_FIRST)}"
    return NAMES.get(condition, condition)
