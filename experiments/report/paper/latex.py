"""LaTeX that compiles, whatever names somebody gave: text, tables, and a document that shows them all."""

import re
import unicodedata
from collections.abc import Mapping

import pandas as pd

LONG = 32
"""Characters from which on a cell is set as a paragraph."""
PARAGRAPH = "p{5.5cm}"

MATH = r"\pm \times \cdot - \leq \geq \neq \approx \infty \surd \rightarrow \leftarrow \| ^\circ ^1 ^2 ^3 < > |"
TEXT = r"\textbackslash{} \textasciitilde{} \textasciicircum{} \char96{} '' \ldots{} \S{} \dag{} -- --- ` ' `` ''"
SIGNS = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"${command}$" for sign, command in zip("±×·−≤≥≠≈∞√→←‖°¹²³<>|", MATH.split(), strict=True)},
    **dict(zip('\\~^`"…§†\u2013\u2014\u2018\u2019\u201c\u201d', TEXT.split(), strict=True)),
}
"""What stands for signs that LaTeX takes for commands, or that its usual fonts lack."""
ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"
"""Accents that LaTeX puts on any letter."""
GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
CAPITALS = "gamma delta theta lambda xi pi sigma upsilon phi psi omega"
NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(e[-+]?\d+)?( ± [-+]?[\d.]+)?")


def escape(text: object) -> str:
    """Return text that LaTeX sets as it is read; a sign that its usual fonts lack becomes a box with its number."""
    return "".join(map(_sign, str(text)))


def _sign(sign: str) -> str:
    if sign in SIGNS:
        return SIGNS[sign]
    letter, accent = unicodedata.normalize("NFD", sign)[0], unicodedata.normalize("NFD", sign)[1:]
    accented = letter.isascii() and letter.isalpha() and accent in ACCENTS and sign <= "\u017e"
    if " " <= sign <= "~" or accented or sign in "ßæÆœŒøØłŁ":
        return sign
    greek = unicodedata.name(sign, "").lower().removeprefix("greek small letter ")
    capital = greek.removeprefix("greek capital letter ")
    if greek in GREEK.split():
        return rf"$\{greek}$"
    if capital in CAPITALS.split():
        return rf"$\{capital.capitalize()}$"
    return " " if sign.isspace() else rf"\fbox{{\tiny {ord(sign):04X}}}"


def tabular(cells: pd.DataFrame) -> str:
    """Return a booktabs tabular of cells: numbers to the right, text to the left, long text as paragraphs."""
    plain = cells.map(str).set_axis(range(len(cells.columns)), axis="columns")  # Styler wants unique names
    spec = "".join(_alignment(list(plain[place])) for place in plain)
    names: dict[object, str] = dict(enumerate(map(_cell, cells.columns)))
    styler = plain.style.hide(axis="index").format(_cell).format_index(names.__getitem__, axis="columns")
    return styler.to_latex(column_format=spec, hrules=True)


def _alignment(column: list[str]) -> str:
    if any(len(cell) > LONG for cell in column):
        return PARAGRAPH
    filled = [cell for cell in column if cell]
    return "r" if filled and all(NUMBER.fullmatch(cell) for cell in filled) else "l"


def _cell(cell: object) -> str:
    written = escape(cell)
    written = re.sub(r"(?<![\w.)])-(?=\d)", "$-$", written) if NUMBER.search(str(cell)) else written
    # A bracket or star at the start of a line would be taken for an argument of the line break before.
    return "{}" + written if written.startswith(("[", "*")) else written


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
    """Return a document with the methods, the tables and figures (stem -> caption), and the references."""
    parts = [PREAMBLE, rf"\title{{{escape(title)}}}", r"\date{}", r"\begin{document}", r"\maketitle"]
    parts += [r"\section*{Methods}", r"\input{methods}", r"\nocite{*}"]
    for stem, caption in figures.items():
        shown = rf"\includegraphics[width=\linewidth]{{figures/double/{stem}.pdf}}"
        parts.append(_float("figure", stem, caption, shown))
    for stem, caption in tables.items():
        parts.append(_float("table", stem, caption, rf"\fitted{{tables/{stem}.tex}}"))
    parts += [r"\clearpage", r"\bibliographystyle{plain}", r"\bibliography{references}", r"\end{document}"]
    return "\n".join([*parts, ""])


def figures(document: str) -> set[str]:
    """Return the stems of the figures in a document that `document` made."""
    return set(re.findall(r"\\includegraphics\[width=\\linewidth\]\{figures/double/([^/{}]+)\.pdf\}", document))


def _float(kind: str, stem: str, caption: str, shown: str) -> str:
    lines = [rf"\begin{{{kind}}}[tbp]", r"\centering", shown, rf"\caption{{{escape(caption)}}}"]
    lines += [rf"\label{{{kind[:3]}:{stem}}}", rf"\end{{{kind}}}"]
    return "\n".join(lines)
