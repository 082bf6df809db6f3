"""The report of the run that a page shows, and the other runs saved beside it."""

from __future__ import annotations

import json
from pathlib import Path

from galapax.view.live.messages import JsonObject

MAX_LISTED_RUNS = 40
MAX_RESULT_BYTES = 2_000_000  # of a result.json; a larger one is not listed


def find_report(folder: Path | None, name: str) -> Path | None:
    """Find the report of the run called `name` in the folder beside this one; of this one, where no name is given."""
    if folder is None:
        return None
    if name and name not in {run["name"] for run in sibling_runs(folder)}:
        return None  # a name that is none of ours leads nowhere
    page = (folder.parent / name if name else folder) / "report.html"
    return page if page.is_file() else None


def sibling_runs(folder: Path | None) -> list[JsonObject]:
    """Summaries of the runs saved in the same parent folder as this one, the latest first."""
    if folder is None:
        return []
    candidates = []
    try:
        for path in folder.resolve().parent.iterdir():
            file = path / "result.json"
            if file.is_file() and file.stat().st_size < MAX_RESULT_BYTES:
                candidates.append((file.stat().st_mtime, file))
    except OSError:
        return []
    out = []
    for _, file in sorted(candidates, reverse=True)[:MAX_LISTED_RUNS]:
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
            settings = saved["settings"]
            out.append(
                {
                    "name": file.parent.name,
                    "problem": str(settings["problem"]),
                    "algorithm": str(settings["algorithm"]),
                    "fun": saved["fun"],
                    "feasible": bool(saved["feasible"]),
                    "nfev": int(saved["nfev"]),
                    "seed": int(saved["seed"]),
                    "runs": int(settings.get("runs", 1)),
                    "report": (file.parent / "report.html").is_file(),
                    "shown": file.parent.resolve() == folder.resolve(),
                }
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a folder that somebody else wrote, or that is being written
    return out
