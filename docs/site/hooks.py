"""What the site does beyond Markdown: equations become MathML, which browsers draw themselves, and links to files that
are not pages become their names. Every page shows the version.
"""

import os
import re
from pathlib import Path
from typing import Any

import latex2mathml.converter

VERSION = re.compile(r'__version__ = "([^"]+)"')
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?:examples/|src/|benchmarks/|[A-Z]+\.md)[^)]*\)")


MATH = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def math(found: re.Match[str]) -> str:
    """A fenced block of LaTeX, as MathML; the hosts of repositories draw such blocks themselves.

    Formulas with a `\\qquad` between them become elements of their own: on a phone they stand below each other.
    """
    formulas = [""]
    for piece in re.split(r"(\\qquad)", found[1].strip()):
        formulas[-1] += piece if piece != r"\qquad" or not is_complete(formulas[-1]) else ""
        if piece == r"\qquad" and is_complete(formulas[-1]):
            formulas.append("")
    drawn = "".join(latex2mathml.converter.convert(formula.strip(), display="block") for formula in formulas)
    return f'<div class="math">{drawn}</div>'


def is_complete(formula: str) -> bool:
    """Whether all groups and environments of a piece of LaTeX are closed."""
    groups = formula.replace(r"\{", "").replace(r"\}", "")
    return groups.count("{") == groups.count("}") and all(
        formula.count(begin) == formula.count(end) for begin, end in ((r"\begin", r"\end"), (r"\left", r"\right"))
    )


def on_config(config: Any) -> Any:
    """The foot of every page names the version that it describes; a site of several versions has a menu of them."""
    source = Path(__file__).parents[2] / "src/galapax/version.py"
    found = VERSION.search(source.read_text(encoding="utf-8"))
    assert found is not None
    config.copyright = f"galapax {found[1]}"
    if os.environ.get("MIKE_DOCS_VERSION"):
        config.extra["version"] = {"provider": "mike", "default": "latest"}
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    return MATH.sub(math, OUTSIDE.sub(r"`\1`", markdown))
