"""Scripts and styles of the pages: charts.js and charts.css are shared by the report and the live page."""

from __future__ import annotations

from importlib.resources import files

SCRIPTS = {"report": ("charts.js", "report.js", "tables.js"), "live": ("charts.js", "live.js")}  # one program, in order
STYLES = {"report": ("charts.css", "report.css"), "live": ("charts.css", "live.css")}


def read_asset(name: str) -> str:
    """Read a file of this folder."""
    return (files("galapax.view.web") / name).read_text(encoding="utf-8")


def page_script(page: str) -> str:
    """Join the scripts of a page."""
    return "\n".join(map(read_asset, SCRIPTS[page]))


def page_style(page: str) -> str:
    """Join the style sheets of a page."""
    return "\n".join(map(read_asset, STYLES[page]))
