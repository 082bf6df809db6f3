"""Saved runs and studies, checkpoints, and files of other programs."""

from galapax.core import hooks
from galapax.storage import checkpoint, frames

hooks.offer("keeper", checkpoint.keeper)
hooks.offer("frame", frames.frame)
