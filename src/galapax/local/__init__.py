"""Local methods for few evaluations: quadratic models in a trust region, SQP by differences, and their portfolio."""
