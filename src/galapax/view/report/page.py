"""The HTML document of a report: its sections, the JSON that its charts and tables draw, style and script."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from galapax.view.web import page_script, page_style

ChartSpec = dict[str, Any]  # a chart or table as JSON, see web/report.js


class ReportPage:
    """Collects the fragments of a page in order, and the data of its charts and tables."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.fragments: list[str] = []
        self.sections: list[tuple[str, str]] = []
        self.charts: dict[str, ChartSpec] = {}
        self.tables: dict[str, ChartSpec] = {}

    def add(self, *fragments: str) -> None:
        self.fragments += fragments

    def section(self, title: str) -> None:
        name = f"s{len(self.sections) + 1}"
        self.sections.append((name, title))
        self.add(f'<h2 id="{name}">{escape(title)}</h2>')

    def chart(self, spec: ChartSpec, note: str = "", title: str = "", hint: str = "") -> None:
        """Add a figure. note: its caption; hint: what a reader can do with it, left out in print."""
        name = f"c{len(self.charts)}"
        self.charts[name] = spec
        head = f"<h3>{escape(title)}</h3>" if title else ""
        sentences = [escape(note)] * bool(note) + [hint_span(hint)] * bool(hint)
        caption = f"<figcaption>{' '.join(sentences)}</figcaption>" if sentences else ""
        self.add(f'<figure data-chart="{name}">{head}<div class="chart"></div>{caption}</figure>')

    def table(self, name: str, spec: ChartSpec) -> None:
        self.tables[name] = spec
        self.add(f'<div data-table="{escape(name)}"></div>')

    def html(self) -> str:
        style, script = page_style("report"), script_text()
        # nothing but this very script may run here, and nothing may be fetched, whatever a name contains
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        numbers = json.dumps(
            {"charts": self.charts, "tables": self.tables}, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).replace("<", "\\u003c")
        links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in self.sections)
        head, *body = self.fragments
        return "\n".join(
            [
                '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{escape(self.title)}</title>\n<style>{style}</style></head>\n<body>",
                f'<header>{head}<nav aria-label="Sections">{links}</nav></header>\n<main>',
                "<noscript><p class='message failed'>The figures need JavaScript, which is switched off here. "
                "The pictures and CSV files beside this page show the same numbers.</p></noscript>",
                *body,
                f'</main>\n<script type="application/json" id="data">{numbers}</script>',
                f"<script>{script}</script>\n</body></html>\n",
            ]
        )


def hint_span(text: str) -> str:
    """Mark up a hint about interaction, shown on a screen only."""
    return f'<span class="hint">{escape(text)}</span>'


def script_text() -> str:
    """Put the page's script into a scope of its own."""
    return '(() => {\n"use strict";\n' + page_script("report") + "})();\n"


# --- fragments of HTML ------------------------------------------------------------------------------------------------

POSITION_HEADING = "within its bounds"  # a column that a phone has no room for
MAX_UNSCROLLED_ROWS = 16  # rows of a table that are all shown; a longer one scrolls
AXIS_RESOLUTION = 1e4  # along an axis that a figure tells apart, which is many more than a screen has


def fact_list(facts: Iterable[tuple[str, str]]) -> str:
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
        + "</dl>"
    )


def setting_rows(settings: dict[str, object]) -> list[tuple[str, str]]:
    rows = []
    for name, value in settings.items():
        name = name.replace("hyperparameters", "hyper-parameters").replace("_", " ")
        if isinstance(value, dict):
            rows.append((name, ", ".join(f"{k} {v}" for k, v in value.items())))
        elif value is not None:
            is_count = isinstance(value, int) and not isinstance(value, bool) and name != "seed"
            text = f"{value:,}" if is_count else str(value)
            rows.append((name, text if len(text) < 2000 else text[:2000] + " …"))
    return rows


def pair_table(rows: Sequence[tuple[str, str]]) -> str:
    lines = [f'<th scope="row">{escape(a)}</th><td class="setting">{_keep_options_whole(b)}</td>' for a, b in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide pairs"><table><tbody>{body}</tbody></table></div>'


def _keep_options_whole(text: str) -> str:
    """Keep options (`--runs`) from being broken at their hyphens, where a line ends."""
    return " ".join(f"<span>{escape(w)}</span>" if w.startswith("--") else escape(w) for w in text.split(" "))


class Html(str):
    """Text that is markup already and is not escaped."""


def plain_table(head: Sequence[str], rows: list[list[str]], numeric: Iterable[int], sort: bool = False) -> str:
    """Render a table; columns without a single entry are left out."""
    numeric_columns = set(numeric)
    columns = [k for k in range(len(head)) if any(row[k] for row in rows)]

    def css_class(k: int) -> str:
        return ' class="n"' if k in numeric_columns else ' class="place"' if head[k] == POSITION_HEADING else ""

    top = "".join(f'<th scope="col"{css_class(k)}>{escape(head[k])}</th>' for k in columns)
    lines = ("".join(f"<td{css_class(k)}>{_escape_unless_html(row[k])}</td>" for k in columns) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    options = ' class="recipes" data-sort' if sort else ""
    table = f"<table{options}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    scroll = " long" if len(rows) > MAX_UNSCROLLED_ROWS else ""
    return f'<div class="wide{scroll}" tabindex="0">{table}</div>'


def wrap_words(text: str) -> Html:
    """Mark up a cell of several words, which keeps its width on a phone."""
    return Html(f'<span class="words">{escape(text)}</span>')


def _escape_unless_html(text: str) -> str:
    return text if isinstance(text, Html) else escape(text)


def file_section(out: ReportPage, files: dict[str, str]) -> None:
    out.section("Data")
    links = "".join(f'<li><a href="{name}">{name}</a>: {escape(text)}</li>' for name, text in files.items())
    out.add(
        f"<p>{hint_span('“CSV ↓” downloads the numbers of a figure or table, thinned if there are very many.')} "
        f"The complete data are in the folder this page was written to:</p><ul>{links}</ul>"
        '<p class="note">Written by galapax. In Python, gx.load(folder) reads everything back.</p>'
    )


def format_count(count: int, word: str) -> str:
    plural = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{count:,} {word if count == 1 else plural}"


def format_number(value: float, digits: int) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "none"


def format_brief(value: float) -> str:
    text = format_number(value, 8)
    return format_number(value, 4) if "e" in text and text != "none" else text


def json_numbers(values: ArrayLike, digits: int = 7) -> list[float | None]:
    """Round numbers to `digits` significant digits for JSON; null for what is not finite.

    Values that differ by little, beside what they are, keep as many digits more as it takes to tell where each lies
    between the least and the most of them: a figure would show them on a lattice otherwise.
    """
    column = np.asarray(values, np.float64)
    finite = column[np.isfinite(column)]
    step = (
        (float(finite.max()) / AXIS_RESOLUTION - float(finite.min()) / AXIS_RESOLUTION) if finite.size else 0.0
    )  # no overflow
    decimals = math.ceil(-math.log10(step)) if step > 0 else -math.inf  # after the point

    def round_value(v: float) -> float | None:
        if not math.isfinite(v):
            return None
        digits_needed = math.floor(math.log10(abs(v))) + 1 + decimals if v else 0
        return float(f"{v:.{int(min(17, max(digits, digits_needed)))}g}")

    return [round_value(v) for v in column.tolist()]


def image_tag(pixels: np.ndarray, alt: str, kind: str) -> str:
    return f'<img class="{kind}" alt="{escape(alt)}" src="{data_uri(pixels)}">'


def data_uri(pixels: np.ndarray) -> str:
    """Encode pixels as a PNG in a data URI."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
