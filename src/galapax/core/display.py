"""How problems and results appear in notebooks."""

from __future__ import annotations


class HTMLRepr:
    """A base class whose instances notebooks show as a small table with a picture."""

    def _repr_html_(self) -> str:
        from galapax.view.notebook import to_html  # only notebooks need it

        return to_html(self)
