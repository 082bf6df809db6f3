"""Small parts of a page: tables, lists, numbers, pictures."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from galapax.view.report.page import Page, hint_text

WITHIN = "within its bounds"  # a column that a phone has no room for
SHORT = 16  # rows of a table that are all shown; a longer one scrolls
PLACES = 1e4  # along an axis that a figure tells apart, which is many more than a screen has


def fact_list(facts: Iterable[tuple[str, str]]) -> str:
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
        + "</dl>"
    )


def setting_rows(settings: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for name, value in settings.items():
        name = name.replace("hyperparameters", "hyper-parameters").replace("_", " ")
        if isinstance(value, dict):
            rows.append((name, ", ".join(f"{k} {v}" for k, v in value.items())))
        elif value is not None:
            text = str(value)
            rows.append((name, text if len(text) < 2000 else text[:2000] + " …"))
    return rows


def pair_table(rows: Sequence[tuple[str, str]]) -> str:
    lines = [f'<th scope="row">{escape(a)}</th><td class="setting">{_words(b)}</td>' for a, b in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide pairs"><table><tbody>{body}</tbody></table></div>'


def _words(text: str) -> str:
    """Text whose options (`--runs`) are not broken at their hyphens, where a line ends."""
    return " ".join(f"<span>{escape(w)}</span>" if w.startswith("--") else escape(w) for w in text.split(" "))


class Html(str):
    """What is markup already."""


def plain_table(head: Sequence[str], rows: list[list[str]], numeric: Iterable[int], sort: bool = False) -> str:
    """A table; columns without a single entry are left out."""
    right = set(numeric)
    kept = [k for k in range(len(head)) if any(row[k] for row in rows)]

    def kind(k: int) -> str:
        return ' class="n"' if k in right else ' class="place"' if head[k] == WITHIN else ""

    top = "".join(f'<th scope="col"{kind(k)}>{escape(head[k])}</th>' for k in kept)
    lines = ("".join(f"<td{kind(k)}>{_markup(row[k])}</td>" for k in kept) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    options = ' class="recipes" data-sort' if sort else ""
    table = f"<table{options}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    long = " long" if len(rows) > SHORT else ""
    return f'<div class="wide{long}" tabindex="0">{table}</div>'


def words(text: str) -> Html:
    """A cell of several words, which keeps its width on a phone."""
    return Html(f'<span class="words">{escape(text)}</span>')


def _markup(text: str) -> str:
    return text if isinstance(text, Html) else escape(text)


def file_section(out: Page, files: dict[str, str]) -> None:
    out.section("Data")
    links = "".join(f'<li><a href="{name}">{name}</a>: {escape(text)}</li>' for name, text in files.items())
    out.add(
        f"<p>{hint_text('“CSV ↓” downloads the numbers of a figure or table, thinned if there are very many.')} "
        f"The complete data are in the folder this page was written to:</p><ul>{links}</ul>"
        '<p class="note">Written by galapax. In Python, gx.load(folder) reads everything back.</p>'
    )


def count(number: int, word: str) -> str:
    many = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{number:,} {word if number == 1 else many}"


def number(value: float, digits: int) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "none"


def brief(value: float) -> str:
    text = number(value, 8)
    return number(value, 4) if "e" in text and text != "none" else text


def numbers(values: Any, digits: int = 7) -> list[Any]:
    """JSON's numbers, rounded to so many digits; null for what is not finite.

    Values that differ by little, beside what they are, keep as many digits more as it takes to tell where each lies
    between the least and the most of them: a figure would show them on a lattice otherwise.
    """
    column = np.asarray(values, np.float64)
    finite = column[np.isfinite(column)]
    step = (float(finite.max()) / PLACES - float(finite.min()) / PLACES) if finite.size else 0.0  # no overflow
    places = math.ceil(-math.log10(step)) if step > 0 else -math.inf  # after the point

    def rounded(v: float) -> float | None:
        if not math.isfinite(v):
            return None
        needed = math.floor(math.log10(abs(v))) + 1 + places if v else 0
        return float(f"{v:.{int(min(17, max(digits, needed)))}g}")

    return [rounded(v) for v in column.tolist()]


def picture(pixels: np.ndarray, alt: str, kind: str) -> str:
    return f'<img class="{kind}" alt="{escape(alt)}" src="{data_address(pixels)}">'


def data_address(pixels: np.ndarray) -> str:
    """A PNG as an address that holds it."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
