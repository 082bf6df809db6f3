"""The published systems, table by table: settings, runs, and our numbers beside the printed ones."""
