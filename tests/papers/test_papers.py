"""Reproductions: what is written down from the paper, and that ours stands beside it."""

import numpy as np
import pytest
from typer.testing import CliRunner

from galapax.cli.app import app
from galapax.papers import gagpu_manual, moea_2015

# printed beside the times in tables 2 to 6: over NSGA-II and over NPGA, by population
PRINTED_SPEEDUPS = {
    "ZDT1": [(23.6, 20.6), (27.4, 24.1), (30.5, 27.6)],
    "ZDT2": [(20.7, 17.4), (24.9, 21.7), (27.3, 24.4)],
    "ZDT3": [(21.5, 19.2), (26.4, 23.9), (31.2, 28.4)],
    "ZDT6": [(20.4, 17.9), (22.6, 20.7), (24.3, 22.5)],
    "blending": [(22.6, 21.8), (24.7, 25.3), (27.1, 30.2)],
}


@pytest.mark.parametrize("name", PRINTED_SPEEDUPS)
def test_times_of_the_moea_paper_give_its_speedups(name):
    times = np.array(moea_2015.MOEA_PAPER_TIMES[name])
    assert np.allclose(times[:, :2] / times[:, 2:], PRINTED_SPEEDUPS[name], atol=0.07)


def made_up(seconds: float) -> dict:
    keys = [
        f"{name} {kind} {n}"
        for name in moea_2015.MOEA_PROBLEMS
        for kind in moea_2015.MOEA_ALGORITHMS
        for n in moea_2015.MOEA_POPULATIONS
    ]
    cell = {"trials": 2, "hypervolume": [0.25, 0.5, 0.75], "igd": 0.125, "igd_plus": 0.0625, "points": 7.0}
    return {
        "device": "d", "machine": "m", "versions": {"jax": "0"}, "trials": 2,
        "minutes": 1.0,
        "cells": {key: cell | {"seconds": seconds * (8 if "NSGA-II" in key else 1)} for key in keys},
        "fronts": {
            f"{name} {kind}": [[0.5, 0.5]]
            for name in moea_2015.MOEA_PROBLEMS
            for kind in moea_2015.MOEA_ALGORITHMS
        },
    }  # fmt: skip


def test_the_moea_tables_divide_the_cpu_s_times_by_the_gpu_s():
    text = moea_2015.tables({"CPU": made_up(10.0), "GPU": made_up(0.5)})
    row = next(line for line in text.splitlines() if "N = 1024, here: CPU, CPU, GPU" in line)
    assert row.split()[-5:] == ["80", "10", "0.5", "160", "20"]
    assert text.count("N = 4096, paper: CPU, CPU, GPU") == 5
    assert "600.9" in text and "590.5" in text  # printed in tables 2 and 6
    assert text.count("50.00%     25.00%     75.00%       0.12      0.062          7          2") == 2 * 6 * 3 * 3


def test_the_moea_figures_are_drawn():
    assert set(moea_2015.figures({"CPU": made_up(10.0)})) == {"fronts.png", "times.png"}


@pytest.mark.slow
def test_a_trial_of_the_moea_paper_is_measured(monkeypatch):
    monkeypatch.setattr(moea_2015, "MOEA_PROBLEMS", {"ZDT1": "moea_zdt1"})
    monkeypatch.setattr(moea_2015, "MOEA_ALGORITHMS", {"MOEA": moea_2015.MOEA_ALGORITHMS["MOEA"]})
    monkeypatch.setattr(moea_2015, "MOEA_POPULATIONS", (64,))
    found = moea_2015.measure(quick=True)
    cell = found["cells"]["ZDT1 MOEA 64"]
    least, median, most = cell["hypervolume"]
    assert 0.5 < least <= median <= most < 1 and least < most  # two seeds, two fronts
    assert 0 < cell["igd_plus"] <= cell["igd"] < 0.2
    assert cell["seconds"] > 0 and cell["trials"] == 2
    assert 1 < len(found["fronts"]["ZDT1 MOEA"]) <= 60


def test_tests_of_the_gagpu_manual_are_measured(monkeypatch):
    monkeypatch.setattr(gagpu_manual, "GAGPU_PROBLEMS", {"Ackley, 2 variables": 2})
    monkeypatch.setattr(gagpu_manual, "FR_SIGMA_PAIRS", gagpu_manual.FR_SIGMA_PAIRS[:2])
    monkeypatch.setattr(gagpu_manual, "N_CHILDREN", 64)
    monkeypatch.setattr(gagpu_manual, "GAGPU_GENERATIONS", 6)
    found = gagpu_manual.measure(quick=True)
    assert len(found["cells"]) == 2 and found["tests"] == 100
    for cell in found["cells"].values():
        assert len(cell["mean"]) == 6 and (np.diff(cell["mean"]) <= 0).all() and cell["device"] > 0
    assert found["alone"]["Ackley, 2 variables"]["run"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["fep", "gagpu", "cde", "moea"])
def test_every_paper_is_reproduced(paper, tmp_path):
    done = CliRunner().invoke(app, ["reproduce", paper, "--quick", "--out", str(tmp_path / paper)])
    assert done.exit_code == 0, done.output
    assert list((tmp_path / paper).iterdir()) and "CPU" in done.output
