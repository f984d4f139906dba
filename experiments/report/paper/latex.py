"""LaTeX that compiles, whatever names somebody gave: text, the main table, and a document that shows everything."""

import unicodedata
from collections.abc import Mapping, Sequence

MATH = r"\pm \times \cdot - \leq \geq \neq \approx \infty \surd \rightarrow \leftarrow \| ^\circ ^1 ^2 ^3 _2 < > |"
TEXT = r"\textbackslash{} \textasciitilde{} \textasciicircum{} \char96{} '' \ldots{} \S{} \dag{} -- --- ` ' `` ''"
SIGNS = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"${command}$" for sign, command in zip("±×·−≤≥≠≈∞√→←‖°¹²³₂<>|", MATH.split(), strict=True)},
    **dict(zip('\\~^`"…§†\u2013\u2014\u2018\u2019\u201c\u201d', TEXT.split(), strict=True)),
}
"""What stands for signs that LaTeX takes for commands, or that its usual fonts lack."""
ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"
"""Accents that LaTeX puts on any letter."""
GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
CAPITALS = "gamma delta theta lambda xi pi sigma upsilon phi psi omega"


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


PREAMBLE = r"""% Compiles as it is: pdflatex report && bibtex report && pdflatex report && pdflatex report
\documentclass[10pt,twocolumn]{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\extrafloats{1000}
"""


FITTED = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{"
"""Narrows what is too wide for the page, and nothing else."""


def main_table(heads: Sequence[str], lines: Sequence[str], caption: str, label: str) -> str:
    """Return a float with caption and label; heads and lines are LaTeX, the caption is text."""
    rows = [" & ".join(heads) + r" \\", r"\midrule", *lines, r"\bottomrule", r"\end{tabular}}"]
    opening = [r"\begin{table*}[t]", r"\centering", r"\setlength{\belowcaptionskip}{6pt}"]
    opening += [rf"\caption{{{escape(caption)}}}", rf"\label{{{label}}}"]
    opening.append(rf"{FITTED}\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}")
    return "\n".join([*opening, r"\toprule", *rows, r"\end{table*}", ""])


def document(title: str, figures: Mapping[str, str]) -> str:
    """Return a document with the methods, the main table, the figures (stem -> caption), and the references."""
    parts = [PREAMBLE, rf"\title{{{escape(title)}}}", r"\date{}", r"\begin{document}", r"\maketitle"]
    parts += [r"\section*{Methods}", r"\input{methods}", r"\nocite{*}", r"\input{paper/table}"]
    for stem, caption in figures.items():
        parts += [r"\begin{figure}[tbp]", r"\centering", rf"\includegraphics[width=\linewidth]{{paper/{stem}.pdf}}"]
        parts += [rf"\caption{{{escape(caption)}}}", rf"\label{{fig:{stem}}}", r"\end{figure}"]
    parts += [r"\clearpage", r"\bibliographystyle{plain}", r"\bibliography{references}", r"\end{document}"]
    return "\n".join([*parts, ""])
