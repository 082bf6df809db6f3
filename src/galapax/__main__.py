"""The `galapax` command, and `python -m galapax`."""

from __future__ import annotations

import contextlib
import os
import sys

from galapax import _startup


def main() -> None:
    try:
        from galapax.cli.app import app
        from galapax.cli.output import print_warnings
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich", "click"):
            raise
        sys.exit(
            "The command line needs typer and rich: pip install 'galapax[cli]' (or 'galapax[all]' to include plots)."
        )
    _startup.release()
    print_warnings()
    try:
        app()
    except SystemExit as end:
        if end.code != _startup.INTERRUPTED:
            raise
        # an orderly end would wait for threads that still compile, or crash beside them
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(_startup.INTERRUPTED)


if __name__ == "__main__":
    main()
