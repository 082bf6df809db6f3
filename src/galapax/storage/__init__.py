"""Saved runs and studies, and files of other programs."""
