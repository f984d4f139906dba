"""Why: what each way of reading has, how they differ, and who gains from distant text, in sentences."""

from experiments.figures import words
from experiments.measures.context_extension import AS_TRAINED, LIMITS
from experiments.measures.context_extension.conditions import UNCHANGED, named
from experiments.measures.context_extension.ranking import Ranking, content, difference, least, level, number, shown
from experiments.rows.row import is_share, metric_of
from experiments.rows.stretches import ENOUGH

RISES, FALLS, UNSHOWN = "rise with", "fall with", "may stay the same with"
"""What bits per byte do where other text stands in the place of distant text."""


def levels(main: Ranking, metric: str, window: int) -> list[str]:
    """Say what the best, the one to use and the unchanged model have."""
    label = metric_of(metric).label
    names = dict.fromkeys([main.best, *([main.chosen] if main.chosen else []), AS_TRAINED])
    each = [
        f"{level(main.line(name), metric)} {'' if name == AS_TRAINED else 'with '}{named(name, window)}"
        for name in names
    ]
    unit = f"{label[0].upper()}{label[1:]}{', %,' * is_share(metric)}"
    return [f"{unit} at {main.length}: {words.listed(each)} (95 % intervals over {main.blocks} blocks of the text)."]


def inside(own: Ranking | None, metric: str) -> list[str]:
    """Say what the model has at its training length."""
    if own is None:
        return []
    unit = " %" if is_share(metric) else f" {metric_of(metric).label}"
    return [f"At its training length, {own.length}, the model has {level(own.line(AS_TRAINED), metric)}{unit}."]


def differences(main: Ranking, other: Ranking, metric: str, window: int, trained: int) -> list[str]:
    """Say how the ways of reading differ where the answer is, and, in brief, at another length."""
    here = [*_changes(main, metric, window), *_short(main, metric, trained), *_gain(main, metric, window)]
    return [*here, *_distant(main, window), *(_elsewhere(other, metric, window) if other is not main else [])]


def _changes(main: Ranking, metric: str, window: int) -> list[str]:
    of = "paired by block; tests with Holm's correction over the methods, intervals without"
    others = [f"{named(name, window)} ({difference(main.line(name), 'best_', metric)})" for name in main.alike]
    best = named(main.best, window)
    if others:
        return [f"No significant difference from {best}: {words.few(others)} ({of})."]
    if len(main.table) < 2:
        return []
    second = str(main.table.index[1])
    less = difference(main.line(second), "best_", metric)
    few = f" on these {main.windows} pieces, which are few" * (0 < main.windows < ENOUGH)
    small = main.best != AS_TRAINED and not main.first
    ahead = f"is {'ahead of' if small else 'better than'} every other way"
    ahead += " by too little to change the model for" * small
    text = f"{best[0].upper()}{best[1:]} {ahead}{few}: the next, {named(second, window)}, is at {less} ({of})."
    return [text + f" Below {least(metric)} no change is advised." * small]


def _short(main: Ranking, metric: str, trained: int) -> list[str]:
    """Say what the method that is saved for a long text costs in a short one, where that is shown."""
    if main.chosen is None:
        return []
    line = main.line(main.chosen)
    worse = (line["saved_difference"] < 0) == metric_of(metric).higher_is_better
    if not worse or not shown(line, "saved_"):
        return []
    text = f"As saved for {main.length}, {main.chosen} reads {trained} tokens worse than {UNCHANGED}: "
    unit = "" if is_share(metric) else f" {metric_of(metric).label}"
    return [f"{text}{difference(line, 'saved_', metric)}{unit}. For texts of that length, keep the model as it is."]


def _gain(main: Ranking, metric: str, window: int) -> list[str]:
    """Say whether any way of reading gains from text that a window does not see, where each has most text before it."""
    others = sorted(main.known("window_difference"), key=lambda name: main.line(name)["window_difference"])
    if not others:
        return []

    def told(name: str) -> str:
        return f"{_way(name, window)} ({difference(main.line(name), 'window_', metric)})"

    distant = f"ext further back than {window} tokens"
    how = f"bits per byte in the last quarter of each piece of {main.length}, less those of a window of {window}, "
    how += "no layer of which attends to it"
    better = [name for name in others if main.gains(name)]
    if better:
        return [f"T{distant} helps {words.few(map(told, better))}: {how}."]
    if main.line(others[0])["window_difference"] >= 0:
        return [f"No method gains from t{distant}; {told(others[0])} loses least ({how})."]
    p = words.p_value(main.line(others[0])["window_p_holm"])
    sure = f"p {p if p.startswith('<') else f'= {p}'} after Holm's correction"
    return [f"No method is shown to gain from t{distant}: at best {told(others[0])}, {sure} ({how})."]


def _distant(main: Ranking, window: int) -> list[str]:
    """Say which ways of reading use distant text.

    The unchanged model is left out where a method is better: it loses most by other text, since it reads all badly.
    """
    measured = main.known("content")
    known = [name for name in measured if name != AS_TRAINED or not main.better]
    if not known:
        return []
    told: dict[str, list[str]] = {RISES: [], FALLS: [], UNSHOWN: []}
    for name in known:
        line = main.line(name)
        verdict = RISES if line["content_low"] > 0 else FALLS if line["content_high"] < 0 else UNSHOWN
        told[verdict].append(f"{_way(name, window)} ({content(line)})")
    if not (told[RISES] or told[FALLS]):
        return []
    with_each = [f"{verdict} {words.listed(each)}" for verdict, each in told.items() if each]
    others = f"these and {UNCHANGED}" if len(known) < len(measured) else "these"
    corrected = f", with Bonferroni's correction over {others}" * (len(measured) > 1)
    text = (
        f"Where other text takes the place of all further back than {window} tokens, bits per byte "
        f"{'; they '.join(with_each)}"
    )
    none = main.limit in main.table.index and not any(main.gains(name) for name in known)
    but = f"Methods that use distant text need more bits here than a window of {window}, which does not. "
    below = " A layer of a window passes on what the layers below saw, so that some distant text comes through."
    reaches = any(name in LIMITS for name in known if main.line(name)["content_low"] > 0)
    return [f"{but * (none and bool(told[RISES]))}{text} (95 % intervals{corrected}).{below * reaches}"]


def _way(name: str, window: int) -> str:
    return f"the model {UNCHANGED}" if name == AS_TRAINED else named(name, window)


def _elsewhere(other: Ranking, metric: str, window: int) -> list[str]:
    line, others = other.line(other.best), [named(name, window) for name in other.alike]
    less = "" if other.best == AS_TRAINED else f", {difference(line, 'trained_', metric)} against {UNCHANGED}"
    text = f"At {other.length} ({other.multiple:g} times), {named(other.best, window)} is best: "
    text += number(line["value"], metric)
    return [text + less + (f"; no significant difference: {words.listed(others)}." if others else ".")]
