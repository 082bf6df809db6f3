"""While the `galapax` command is loading, which takes a while: Ctrl-C ends it with a sentence, not with a traceback,
and no garbage is looked for.

The package is loaded before the command's first line, so this is imported first of all. In any other program, where
signals are not ours, it does nothing.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # what shells give for Ctrl-C
SENTENCE = "galapax: stopped by Ctrl-C before a result was available.\n"


def is_command() -> bool:
    """Whether this process is `galapax` or `python -m galapax`: while Python looks for that, "-m" stands for it."""
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    return os.path.splitext(program)[0] == "galapax" or (program == "-m" and "galapax" in sys.orig_argv)


def _leave(signum: int, frame: FrameType | None) -> None:
    os.write(2, SENTENCE.encode())
    os._exit(INTERRUPTED)  # at once: an exception in the midst of a library's start can end in a crash


def guard() -> None:
    if not is_command():
        return
    gc.disable()  # what is loaded stays: looking through it again and again takes a tenth of the time
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def release() -> None:
    """All is loaded: from here on Ctrl-C and garbage are what they usually are."""
    gc.freeze()
    gc.enable()
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


guard()
