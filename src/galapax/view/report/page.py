"""The page itself: its parts in their order, the numbers that its figures draw, style and script."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from typing import Any

# one program, in this order
SCRIPTS = ("base.js", "lines.js", "scatter.js", "fronts.js", "tables.js", "preference.js", "start.js")


class Page:
    """The parts of a page in their order, and the numbers that its figures and tables draw."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []
        self.sections: list[tuple[str, str]] = []
        self.charts: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}

    def add(self, *parts: str) -> None:
        self.parts += parts

    def section(self, title: str) -> None:
        name = f"s{len(self.sections) + 1}"
        self.sections.append((name, title))
        self.add(f'<h2 id="{name}">{escape(title)}</h2>')

    def chart(self, spec: dict[str, Any], note: str = "", title: str = "", hint: str = "") -> None:
        """A figure. note: what is said under it; hint: what a reader can do with it, which paper leaves out."""
        name = f"c{len(self.charts)}"
        self.charts[name] = spec
        head = f"<h3>{escape(title)}</h3>" if title else ""
        words = [escape(note)] * bool(note) + [hint_text(hint)] * bool(hint)
        under = f"<figcaption>{' '.join(words)}</figcaption>" if words else ""
        self.add(f'<figure data-chart="{name}">{head}<div class="chart"></div>{under}</figure>')

    def table(self, name: str, spec: dict[str, Any]) -> None:
        self.tables[name] = spec
        self.add(f'<div data-table="{escape(name)}"></div>')

    def html(self) -> str:
        style, script = _asset("report.css"), script_text()
        # nothing but this very script may run here, and nothing may be fetched, whatever a name contains
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        numbers = json.dumps(
            {"charts": self.charts, "tables": self.tables}, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).replace("<", "\\u003c")
        links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in self.sections)
        head, *rest = self.parts
        return "\n".join(
            [
                '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{escape(self.title)}</title>\n<style>{style}</style></head>\n<body>",
                f'<header>{head}<nav aria-label="Sections">{links}</nav></header>\n<main>',
                "<noscript><p class='message failed'>The figures need JavaScript, which is switched off here. "
                "The pictures and CSV files beside this page show the same numbers.</p></noscript>",
                *rest,
                f'</main>\n<script type="application/json" id="data">{numbers}</script>',
                f"<script>{script}</script>\n</body></html>\n",
            ]
        )


def hint_text(words: str) -> str:
    """What a reader can do with a figure or a table: on a screen only."""
    return f'<span class="hint">{escape(words)}</span>'


def script_text() -> str:
    """The script of a page: the files one after the other, in a scope of their own."""
    return "(() => {\n" + '"use strict";\n' + "".join(map(_asset, SCRIPTS)) + "})();\n"


def _asset(name: str) -> str:
    return (files("galapax.view.report") / name).read_text(encoding="utf-8")
