"""Views: they draw results and run nothing.

`Result.plot`, `Result.save`, the progress line and the live page import what they need from here when they are used;
what needs matplotlib is imported when a picture is asked for.
"""
