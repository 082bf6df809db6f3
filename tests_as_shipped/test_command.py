"""The command line, as the package installs it."""

import json

from processes import run_galapax


def test_help_names_the_commands(tmp_path):
    done = run_galapax("--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in ("solve", "sweep", "compare", "view", "resume", "list"))


def test_a_run_is_solved_saved_shown_and_exported(tmp_path):
    done = run_galapax("solve", "branin", "--runs", "5", "-g", "60", "-o", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert abs(json.loads(done.stdout)["fun"] - 0.39788736) < 1e-6
    assert "branin" in (tmp_path / "run/report.html").read_text(encoding="utf-8")
    done = run_galapax("view", "run", cwd=tmp_path)
    assert done.returncode == 0 and "0.3978" in done.stdout, done.stderr
    done = run_galapax("view", "run", "--export", "csv", "-o", "tables", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "tables/runs.csv").exists(), done.stderr


def test_a_problem_in_a_file_is_solved_and_an_error_is_a_sentence(tmp_path):
    (tmp_path / "bowl.py").write_text("def fun(x):\n    return (x**2).sum()\n\nbounds = [(-1, 2)] * 2\n")
    done = run_galapax("solve", "bowl.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_galapax("solve", "bowls.py", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr and "bowls.py" in done.stderr
