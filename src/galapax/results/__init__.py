"""Results of runs and studies, as plain data."""
