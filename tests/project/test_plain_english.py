"""What users read is plain English, without phrases that international readers stumbled over."""

import ast
import re

from support.paths import ROOT

STUMBLED = re.compile(
    r"\bso many\b|\bbesides\b|\banew\b|\bof now\b|\bone a (row|column)\b|\b(row|pixel) an individual\b"
    r"|\b(evaluations|kernels|time) a (generation|variable|second)\b|\ba (line|dot) a point\b",
    re.I,
)


def literals(file):
    """The string literals of a module that are no docstrings, with their lines."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.lineno, node.value


def test_messages_and_pages_avoid_phrases_that_readers_stumble_over():
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text}"
        for file in (ROOT / "src/galapax").rglob("*.py")
        for line, text in literals(file)
        if " " in text and STUMBLED.search(text)
    ]
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")):
        lines = page.read_text(encoding="utf-8").splitlines()
        found += [f"{page.name}:{n + 1}: {text}" for n, text in enumerate(lines) if STUMBLED.search(text)]
    assert not found, "\n".join(found)
