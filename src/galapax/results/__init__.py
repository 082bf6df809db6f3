"""What comes out of a run, as plain data."""
