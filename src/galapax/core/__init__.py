"""The nouns: what is solved, what an algorithm is, what an evaluation gives, and when a run ends."""
