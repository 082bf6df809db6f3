"""The `galapax` command, and `python -m galapax`."""

from __future__ import annotations

import sys

from galapax import starting


def main() -> None:
    try:
        from galapax.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich", "click"):
            raise
        sys.exit(
            "The command line needs typer and rich: pip install 'galapax[cli]' (or 'galapax[all]' to include plots)."
        )
    starting.release()
    app()


if __name__ == "__main__":
    main()
