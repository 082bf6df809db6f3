"""Local optimisers: quasi-Newton, augmented Lagrangian, SQP, and the refinement of min-max solutions."""
