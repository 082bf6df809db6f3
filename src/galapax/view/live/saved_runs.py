"""The report of the run that a page shows, and the other runs saved beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MOST = 40  # runs listed, the latest first
LARGEST = 2_000_000  # bytes of a result.json that are read


def report_of(folder: Path | None, name: str) -> Path | None:
    """The report of a run in the folder beside this one; of this one, where no name is given."""
    if folder is None:
        return None
    if name and name not in {run["name"] for run in runs_beside(folder)}:
        return None  # a name that is none of ours leads nowhere
    page = (folder.parent / name if name else folder) / "report.html"
    return page if page.is_file() else None


def runs_beside(folder: Path | None) -> list[dict[str, Any]]:
    """The runs saved in the same folder as this one, the latest first, with what they came to."""
    if folder is None:
        return []
    found = []
    try:
        for place in folder.resolve().parent.iterdir():
            about = place / "result.json"
            if about.is_file() and about.stat().st_size < LARGEST:
                found.append((about.stat().st_mtime, about))
    except OSError:
        return []
    out = []
    for _, about in sorted(found, reverse=True)[:MOST]:
        try:
            told = json.loads(about.read_text(encoding="utf-8"))
            settings = told["settings"]
            out.append(
                {
                    "name": about.parent.name,
                    "problem": str(settings["problem"]),
                    "algorithm": str(settings["algorithm"]),
                    "fun": told["fun"],
                    "feasible": bool(told["feasible"]),
                    "nfev": int(told["nfev"]),
                    "seed": int(told["seed"]),
                    "runs": int(settings.get("runs", 1)),
                    "report": (about.parent / "report.html").is_file(),
                    "shown": about.parent.resolve() == folder.resolve(),
                }
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a folder that somebody else wrote, or that is being written
    return out
