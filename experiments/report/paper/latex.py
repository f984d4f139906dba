"""LaTeX that compiles as it is, whatever names somebody gave: text, tables, and a document that shows them all."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

import pandas as pd

LONG = 32
"""Characters from which on a cell is set as a paragraph."""
PARAGRAPH = "p{5.5cm}"

_SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\char96{}",
    '"': "''",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "\N{EN DASH}": "--",
    "\N{EM DASH}": "---",
    "\N{LEFT SINGLE QUOTATION MARK}": "`",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": "``",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "''",
    "\N{NO-BREAK SPACE}": "~",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "†": r"\dag{}",
    "§": r"\S{}",
    "°": r"$^\circ$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "‖": r"$\|$",
    "¹": "$^1$",
    "²": "$^2$",
    "³": "$^3$",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`",
    "\N{COMBINING ACUTE ACCENT}": "'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": "^",
    "\N{COMBINING TILDE}": "~",
    "\N{COMBINING DIAERESIS}": '"',
    "\N{COMBINING MACRON}": "=",
    "\N{COMBINING DOT ABOVE}": ".",
    "\N{COMBINING RING ABOVE}": "r",
    "\N{COMBINING CEDILLA}": "c",
    "\N{COMBINING CARON}": "v",
    "\N{COMBINING BREVE}": "u",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": "H",
}
_CAPITALS = {"GAMMA", "DELTA", "THETA", "XI", "PI", "SIGMA", "PHI", "PSI", "OMEGA"}
_GREEK = _CAPITALS | {
    "ALPHA",
    "BETA",
    "EPSILON",
    "ZETA",
    "ETA",
    "IOTA",
    "KAPPA",
    "MU",
    "NU",
    "RHO",
    "TAU",
    "UPSILON",
    "CHI",
}
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(e[-+]?\d+)?( ± [-+]?[\d.]+)?")


def escape(text: object) -> str:
    """Text that LaTeX sets as it is read; a sign that its usual fonts lack becomes a box with the sign's number."""
    return "".join(map(_sign, str(text)))


def _sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if " " <= sign <= "~":
        return sign
    if sign.isspace():
        return " "
    parts = unicodedata.normalize("NFD", sign)
    if len(parts) == 2 and parts[1] in _ACCENTS and parts[0].isascii():
        return rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    greek = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(sign, ""))
    if greek and greek[2] in (_GREEK if greek[1] == "SMALL" else _CAPITALS):
        name = greek[2].lower()
        return rf"$\{name if greek[1] == 'SMALL' else name.capitalize()}$"
    return rf"\fbox{{\tiny {ord(sign):04X}}}"


def tabular(cells: pd.DataFrame) -> str:
    """A booktabs tabular of cells: numbers to the right, text to the left, long text as paragraphs."""
    plain = cells.rename(columns=str).map(str)
    spec = "".join(_alignment(list(plain.iloc[:, place])) for place in range(len(plain.columns)))
    lines = [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", _line(plain.columns), r"\midrule"]
    lines += [_line(line) for line in plain.itertuples(index=False, name=None)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _alignment(column: list[str]) -> str:
    if any(len(cell) > LONG for cell in column):
        return PARAGRAPH
    filled = [cell for cell in column if cell]
    return "r" if filled and all(_NUMBER.fullmatch(cell) for cell in filled) else "l"


def _line(cells: tuple[str, ...] | pd.Index[str]) -> str:
    # A bracket or star at the start of a line would be taken for an argument of the end of the line before.
    return "{}" + " & ".join(map(_cell, cells)) + r" \\"


def _cell(cell: str) -> str:
    written = escape(cell)
    return re.sub(r"(?<![\w.)])-(?=\d)", "$-$", written) if _NUMBER.search(cell) else written


PREAMBLE = r"""% Compiles as it is: pdflatex report && bibtex report && pdflatex report && pdflatex report
\documentclass[10pt]{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\extrafloats{1000}
\newsavebox{\tablebox}
% A table as it is where it fits, and smaller where it does not.
\newcommand{\fitted}[1]{%
  \footnotesize\setlength{\tabcolsep}{3pt}%
  \sbox{\tablebox}{\input{#1}}%
  \ifdim\wd\tablebox>\linewidth\sbox{\tablebox}{\resizebox{\linewidth}{!}{\usebox{\tablebox}}}\fi
  \ifdim\dimexpr\ht\tablebox+\dp\tablebox>.8\textheight
    \sbox{\tablebox}{\resizebox{!}{.8\textheight}{\usebox{\tablebox}}}\fi
  \usebox{\tablebox}}
"""


def document(title: str, tables: Mapping[str, str], figures: Mapping[str, str]) -> str:
    """A document with the methods, every table and figure, and the references.

    Args:
        title: of the document.
        tables: stem -> caption, of ``tables/<stem>.tex``.
        figures: stem -> caption, of ``figures/double/<stem>.pdf``.
    """
    parts = [PREAMBLE, rf"\title{{{escape(title)}}}", r"\date{}", r"\begin{document}", r"\maketitle"]
    parts += [r"\section*{Methods}", r"\input{methods}", r"\nocite{*}"]
    for stem, caption in figures.items():
        shown = rf"\includegraphics[width=\linewidth]{{figures/double/{stem}.pdf}}"
        parts.append(_float("figure", stem, caption, shown))
    for stem, caption in tables.items():
        parts.append(_float("table", stem, caption, rf"\fitted{{tables/{stem}.tex}}"))
    return (
        "\n".join(
            [*parts, r"\clearpage", r"\bibliographystyle{plain}", r"\bibliography{references}", r"\end{document}"]
        )
        + "\n"
    )


def figures(document: str) -> set[str]:
    """The stems of the figures that a document of ours shows."""
    return set(re.findall(r"\\includegraphics\[width=\\linewidth\]\{figures/double/([^/{}]+)\.pdf\}", document))


def _float(kind: str, stem: str, caption: str, shown: str) -> str:
    lines = [rf"\begin{{{kind}}}[tbp]", r"\centering", shown, rf"\caption{{{escape(caption)}}}"]
    lines += [rf"\label{{{kind[:3]}:{stem}}}", rf"\end{{{kind}}}"]
    return "\n".join(lines)
