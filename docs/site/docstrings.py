"""Our docstrings say `name: what it is`, one name or several to a line; on the site each becomes an entry of a list."""

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^([a-zA-Z_][\w]*(?:, [a-zA-Z_]\w*)*): (?=\S)")
NEXT = re.compile(r"(?<=[.)]) (?=([a-z_]\w*): \S)")


def single(text: str, names: set[str]) -> str:
    """The docstring with every entry on a line of its own, where a line has several: `seed: ... first_run: ...`."""
    return NEXT.sub(lambda found: "\n" if found[1] in names else " ", text)


def listed(text: str) -> str:
    """The docstring with its entries as a Markdown list, their further lines indented under them."""
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        entry = ENTRY.match(line)
        if entry:
            if not inside:
                out.append("")
            names = ", ".join(f"`{name}`" for name in entry[1].split(", "))
            out.append(f"- {names}: {line[entry.end() :]}")
            inside = True
        elif inside and line.startswith("    "):
            out.append("  " + line.strip())
        else:
            if inside and line.strip():
                out.append("")
            inside = False
            out.append(line)
    return "\n".join(out)


DECLARES_A_FIELD = ("option", "static")  # functions of ours, whose first argument is the default


class Entries(griffe.Extension):
    """Rewrites every docstring as it is read, marks what is experimental, and shows defaults of fields as values."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        if any(str(decorator.value).split("(")[0] == "experimental" for decorator in cls.decorators):
            cls.labels.add("experimental")

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) in DECLARES_A_FIELD:
            attr.value = attr.value.arguments[0]

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if not obj.is_alias and obj.docstring is not None:
            names = set(getattr(obj, "members", {})) | {p.name for p in getattr(obj, "parameters", ())}
            obj.docstring.value = listed(single(obj.docstring.value, names))
