"""Local methods that need few evaluations: quadratic models in a trust region, SQP by differences, and what shares them."""
