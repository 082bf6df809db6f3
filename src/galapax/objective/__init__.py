"""From the user's functions to evaluations: traced by JAX, called here, or called by workers."""
