"""Run a reproduction on CPU and accelerator, and save its tables, figures and page."""

from __future__ import annotations

import argparse
import base64
import importlib
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from galapax.execution.assemble import versions
from galapax.numerics import devices
from galapax.papers import PAPERS
from galapax.storage import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measurement = dict[str, Any]
Log = Callable[[str], None]


class Paper(NamedTuple):
    """A reproduction: how to measure on the device JAX uses here, and how to tabulate and plot it."""

    module: str  # `python -m` runs it
    title: str
    measure: Callable[[bool, Log], Measurement]  # (quick, log)
    tables: Callable[[dict[str, Measurement]], str]  # {"CPU": ..., "GPU": ...}, those that there are
    figures: Callable[[dict[str, Measurement]], dict[str, Figure]]  # {file name: figure}


def load_paper(name: str) -> Paper:
    """Import a reproduction by its name in PAPERS."""
    module_name, title = PAPERS[name]
    module = importlib.import_module(module_name)
    return Paper(module_name, title, module.measure, module.tables, module.figures)


def describe_machine() -> Measurement:
    """Return the device, machine and library versions of a measurement."""
    return {
        "device": devices.device_name(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": versions(),
    }


def reproduce(paper: Paper, quick: bool, folder: Path | None, log: Log = print) -> str:
    """Measure on the CPU and, where there is one, on the accelerator; save and return the tables."""
    measurement = paper.measure(quick, log)
    measurements = {"CPU": measurement}
    if measurement["device"] != "CPU":
        log("the same on the CPU:")
        command = [sys.executable, "-m", paper.module, "--json", *(["--quick"] if quick else [])]
        answer = subprocess.run(command, env=os.environ | {"JAX_PLATFORMS": "cpu"}, stdout=subprocess.PIPE, check=True)
        measurements = {"CPU": json.loads(answer.stdout), "GPU": measurement}
    text = paper.tables(measurements)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(folder / "tables.txt", text.encode(), b"\n")
        atomic.write_bytes(folder / "measured.json", json.dumps(measurements).encode(), b"\n")
        try:
            figures = paper.figures(measurements)
        except ModuleNotFoundError:
            log("The figures need matplotlib: pip install 'galapax[view]'.")
        else:
            for name, figure in figures.items():
                atomic.write_by(folder / name, partial(figure.savefig, format=Path(name).suffix[1:], dpi=110))
            atomic.write_bytes(folder / "report.html", _render_page(paper.title, figures, text).encode())
    return text


def _render_page(title: str, figures: dict[str, Figure], text: str) -> str:
    pictures = []
    for name, figure in figures.items():
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=90)
        data = base64.b64encode(file.getvalue()).decode()
        pictures.append(f'<p><img style="max-width:100%" alt="{escape(name)}" src="data:image/png;base64,{data}"></p>')
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
        f'<body style="font-family:system-ui;margin:2rem"><h1>{escape(title)}</h1>{"".join(pictures)}'
        f"<pre>{escape(text)}</pre></body></html>"
    )


def main(name: str) -> None:
    """Run the command line of one reproduction, for installations without the extras of `galapax`'s own."""
    paper = load_paper(name)
    parser = argparse.ArgumentParser(prog=f"python -m {paper.module}", description=paper.title)
    parser.add_argument("--quick", action="store_true", help="less of everything, under a minute")
    parser.add_argument("--out", type=Path, help="save tables, figures and page to this folder")
    parser.add_argument("--json", action="store_true", help="measure on this device alone and print the numbers")
    options = parser.parse_args()
    if options.json:
        print(json.dumps(paper.measure(options.quick, lambda line: print(line, file=sys.stderr))))
    else:
        print(reproduce(paper, options.quick, options.out))
