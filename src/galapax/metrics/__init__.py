"""Indicators and statistics: pure functions of arrays."""
