"""Saved runs and studies, checkpoints, and files of other programs."""
