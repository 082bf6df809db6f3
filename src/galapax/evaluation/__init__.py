"""From a user's functions to an Evaluation."""
