"""Saved runs and studies, checkpoints, and files of other programs."""

from galapax.core import hooks

hooks.offer("keeper", "galapax.storage.checkpoint", "keeper")
hooks.offer("frame", "galapax.storage.frames", "frame")
