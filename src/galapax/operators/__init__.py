"""Small pure functions that algorithms are made of: key first, arrays next, numbers last."""
