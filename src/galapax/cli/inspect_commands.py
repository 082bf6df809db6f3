"""The commands that inspect: saved runs, algorithms and problems, this machine, published tables."""

from __future__ import annotations

import importlib
import json
import sys
import time

import jax
import typer

from galapax.cli import error_report, output
from galapax.cli import shell_options as options
from galapax.cli.selftest import checks as run_checks
from galapax.core.errors import InputError
from galapax.numerics import devices, disk_cache
from galapax.papers import PAPERS
from galapax.results.result import Result
from galapax.results.study import Study
from galapax.storage import gagpu
from galapax.storage.export import write_csv_files, write_json_file
from galapax.storage.result_folder import load
from galapax.version import __version__
from galapax.view import terminal


def view(
    folder: options.SavedFolder,
    open_page: options.OpenReport = False,
    png: options.Png = False,
    gif: options.Gif = False,
    form: options.Form = "genome",
    export: options.Export = None,
    out: options.WriteTo = None,
    live: options.Replayed = False,
    port: options.Port = None,
    host: options.Host = None,
) -> None:
    """Show a saved run, open its report, replay it in the browser, draw its figures, or export it to files."""
    with error_report.report_errors():
        if export not in (None, "csv", "json", "gagpu"):
            raise InputError(f"--export takes csv, json or gagpu; got {export!r}.")
        saved = load(folder)
        if isinstance(saved, Study) and (gif or export == "gagpu"):
            what = "moving maps show one run" if gif else "GAGPU's files describe the runs of one setting"
            raise InputError(f"{folder} holds a {saved.kind}; {what}.")
        files = []
        if open_page:
            output.open_report(folder)
        if png:
            drawn, missing = output.draw_pictures(saved, out or folder / "pictures")
            files += drawn
            for name, why in missing.items():
                output.print_line(f"No {name}.png: {why}", style="dim")
        if gif and isinstance(saved, Result):
            target = out or folder
            files.append(saved.plot.gif(target if target.suffix == ".gif" else target / "maps.gif", form=form))
        if export == "csv":
            tables = write_csv_files(saved, out or folder)
            output.print_line(f"Tables saved in {tables[0].parent}: {', '.join(t.name for t in tables)}")
        elif export == "json":
            target = out or folder
            files.append(target if target.suffix == ".json" else target / "export.json")
            write_json_file(saved, files[-1])
        elif export == "gagpu" and isinstance(saved, Result):
            files += gagpu.export(saved, out or folder)
        output.print_written_files(files)
        page = output.parse_live(live, port, host, True, False, False)
        if page is not None:
            if isinstance(saved, Study):
                raise InputError(f"{folder} holds a {saved.kind}; --live replays a single result.")
            output.replay_on_page(page, saved, folder)
            return
        if not (open_page or png or gif or export):
            output.console.print(output.build_tables(saved))


def list_(what: options.Listed = "all", as_json: options.AsJson = False) -> None:
    """Show the algorithms and the built-in problems, with their key facts."""
    with error_report.report_errors():
        if what not in ("all", "algorithms", "problems"):
            raise InputError(f"list takes algorithms, problems or all; got {what!r}.")
        facts = {
            name: table
            for name, table in (("algorithms", terminal.algorithm_facts), ("problems", terminal.problem_facts))
            if what in ("all", name)
        }
        for name, table in facts.items():
            if as_json:
                print(json.dumps({name: table()}, indent=1))
            else:
                output.console.print(terminal.fact_table(name, table()))


def selftest(as_json: options.AsJson = False, quiet: options.Quiet = False) -> None:
    """Check galapax on this machine: known optima, operators, CPU against device, resume after a kill, speed."""
    with error_report.report_errors():
        disk_cache.enable()
        checks, began = [], time.perf_counter()
        for check in run_checks():
            checks.append(check)
            if not (as_json or quiet):
                mark = "[green]✓[/]" if check.passed else "[red]✗[/]"
                output.console.print(f"{mark} {check.what}: {check.found}", highlight=False)
        failed = sum(not check.passed for check in checks)
        if as_json:
            print(
                json.dumps({"device": devices.device_name(), "checks": [check._asdict() for check in checks]}, indent=1)
            )
        elif not quiet:
            verdict = "all checks passed" if not failed else f"{failed} of {len(checks)} failed"
            where = f"{devices.device_name()}, jax {jax.__version__}, galapax {__version__}"
            output.console.print(f"{verdict} ({where}, {time.perf_counter() - began:.0f} s)", highlight=False)
        raise typer.Exit(1 if failed else 0)


def reproduce(paper: options.PaperName, quick: options.Quick = False, out: options.PaperOut = None) -> None:
    """Reproduce published results and print our tables next to the published ones."""
    with error_report.report_errors():
        if paper not in (*PAPERS, "all"):
            raise InputError(f"reproduce takes {', '.join(PAPERS)} or all; got {paper!r}.")
        output.check_folder(out, force=True)
        disk_cache.enable()
        run_paper = importlib.import_module(
            "galapax.papers.reproduction"
        ).reproduce  # by name: papers build on the rest
        for name in PAPERS if paper == "all" else (paper,):
            module = importlib.import_module(PAPERS[name])
            folder = out / name if out is not None and paper == "all" else out
            print(run_paper(module.PAPER, quick, folder, lambda line: print(line, file=sys.stderr)))
