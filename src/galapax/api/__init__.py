"""The verbs of the library: minimize, minimax, sweep, compare and the Optimizer."""
