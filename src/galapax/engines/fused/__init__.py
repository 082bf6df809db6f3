"""Whole runs in one kernel: from the jaxpr of a generation to C text, for a GPU or for the host's compiler."""
