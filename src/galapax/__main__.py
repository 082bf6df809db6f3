"""The `galapax` command, and `python -m galapax`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    gc.disable()  # importing makes objects that all live: looking through them for garbage takes a tenth of the time
    try:
        from galapax.cli.app import app
    except KeyboardInterrupt:  # importing JAX takes a while
        print("galapax: stopped by Ctrl-C before a result was available.", file=sys.stderr)
        sys.exit(130)
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich", "click"):
            raise
        sys.exit(
            "The command line needs typer and rich: pip install 'galapax[cli]' (or 'galapax[all]' to include plots)."
        )
    gc.freeze()
    gc.enable()
    app()


if __name__ == "__main__":
    main()
