"""What benchmarks/bbob.py makes of a run: evaluations until targets, expected running times, COCO's folders."""

import math
import sys

import pytest
from support.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the benchmarks are part of the repository alone")
if BENCHMARKS.is_dir():
    sys.path.append(str(BENCHMARKS))
    import bbob
    import bbob_report as report
    import bbob_runs


def a_run(instance, *rows, evaluations):
    counts, bests = zip(*rows, strict=True)
    return bbob_runs.record(8, 5, instance, counts, bests, evaluations, 0.5)


SOLVED = ((100, 50.0), (200, 3.0), (300, 2.95), (400, 1e-3), (500, 5e-9))
MISSED = ((100, 300.0), (400, 2.0))


def test_a_record_says_when_each_target_was_first_reached():
    run = a_run(1, *SOLVED, evaluations=500)
    hits = dict(zip(bbob_runs.TARGETS, run["hits"], strict=True))
    assert len(hits) == 51 and max(hits) == 100.0 and min(hits) == pytest.approx(1e-8)
    assert hits[100.0] == 100 and hits[10.0] == 200 and hits[1.0] == 400 and hits[min(hits)] == 500
    assert [count for count, _ in run["trace"]] == [100, 200, 400, 500]  # 2.95 passes no twentieth of a decade
    assert a_run(2, *MISSED, evaluations=400)["hits"][-1] is None


def test_expected_running_time_counts_the_runs_that_failed():
    runs = [a_run(1, *SOLVED, evaluations=500), a_run(2, *MISSED, evaluations=400)]
    assert report.ert(runs, 10.0) == (200 + 400) / 2
    assert report.ert(runs, 1e-8) == 500 + 400
    assert math.isinf(report.ert(runs[1:], 1e-8))
    assert report.solved(runs, [10.0, 1e-8]) == 0.75


def test_tables_stand_beside_the_anchors():
    runs = [a_run(1, *SOLVED, evaluations=500), a_run(2, *MISSED, evaluations=400)]
    text = report.tables([{"label": "mine", "runs": runs, "budget": 100}])
    assert "BIPOP-CMA-ES-2009" in text and "mine: targets" in text
    row = next(line for line in text.splitlines() if line.startswith("|  8"))
    assert [cell.strip() for cell in row.split("|")][2:6] == ["55%", "1/2", "900", "422"]


def test_a_coco_folder_has_an_index_and_two_logs_a_function(tmp_path):
    runs = [a_run(1, *SOLVED, evaluations=500), a_run(2, *MISSED, evaluations=450)]
    report.write_coco({"label": "mine", "about": "a test", "runs": runs}, tmp_path)
    index = (tmp_path / "bbobexp_f8.info").read_text().splitlines()
    assert index[0].startswith("suite = 'bbob', funcId = 8, DIM = 5, Precision = 1.000e-08, algId = 'mine'")
    assert index[2] == "data_f8/bbobexp_f8_DIM5.dat, 1:500|5.0e-09, 2:450|2.0e+00"
    log = (tmp_path / "data_f8" / "bbobexp_f8_DIM5.dat").read_text().splitlines()
    assert sum(line.startswith("%") for line in log) == 2 and "Fopt (1.491500000000e+02)" in log[0]
    assert log[1] == "100 0 +5.000000000e+01 +1.991500000e+02 +1.991500000e+02"
    assert log[-1].startswith("450 0 +2.0")
    assert (tmp_path / "data_f8" / "bbobexp_f8_DIM5.tdat").read_text().count("%") == 2


def test_a_peer_is_stopped_at_its_budget_and_at_the_last_target():
    counted = bbob_runs.Counted(lambda x: (x**2).sum(axis=1) + 7.0, 7.0, budget=5)
    assert counted([[1.0, 0.0], [2.0, 0.0]]) == [8.0, 11.0]
    with pytest.raises(bbob_runs.Ended):
        counted([[3.0, 0.0]] * 10)
    assert (counted.count, counted.counts, counted.bests) == (5, [1], [1.0])
    with pytest.raises(bbob_runs.Ended):
        bbob_runs.Counted(lambda x: (x**2).sum(axis=1), 0.0, budget=5)([0.0, 0.0])


def test_instances_are_cut_only_where_processes_would_be_idle():
    assert bbob.pieces([5], [1, 24], [1, 2, 3], jobs=2) == [(24, 5, [1, 2, 3]), (1, 5, [1, 2, 3])]
    assert len(bbob.pieces([5], [1], [1, 2, 3], jobs=2)) == 2
