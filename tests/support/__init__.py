"""What several test modules use; pytest puts tests/ on the path (pyproject.toml)."""
