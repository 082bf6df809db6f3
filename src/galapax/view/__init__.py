"""Views: they draw results and run nothing."""
