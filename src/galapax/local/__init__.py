"""Local optimisers: by gradients (L-BFGS, augmented Lagrangian, SQP), and by models where evaluations are few."""
