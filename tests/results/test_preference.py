"""Choosing from a front: by a point to be near, by levels to reach, by answers; what a step to a neighbour costs."""

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from support.cases import params
from typer.testing import CliRunner

import galapax as gx
from galapax.cli import app as cli
from galapax.cli import output, parsing
from galapax.metrics import indicators
from galapax.results.front import MAX_QUESTIONS, PreferenceSearch, ask_in_terminal, choose, choose_by_asking, trade_offs
from galapax.view import summary_tables

T = np.linspace(0, 1, 101)
CONVEX = np.stack([100 * T**2, 1 - T], axis=1)
CONCAVE = np.stack([100 * T, 1 - T**2], axis=1)
rng = np.random.default_rng(3)
SPHERE = np.abs(rng.normal(size=(300, 3)))
SPHERE /= np.linalg.norm(SPHERE, axis=1, keepdims=True)
SPHERE *= [1.0, 50.0, 0.01]  # units of their own
FRONTS = {"convex": CONVEX, "concave": CONCAVE, "sphere": SPHERE}


def test_a_reference_finds_its_nearest_point_in_units_of_the_front():
    for row in (0, 40, 100):
        assert choose(CONVEX, 1.0, reference=CONVEX[row]) == row
        assert choose(-CONVEX, -1.0, reference=-CONVEX[row]) == row
    # 10 of the first objective are a tenth of its range, 0.3 of the second three tenths
    near = choose(CONCAVE, 1.0, reference=[50.0, 0.75])
    assert np.argmin(np.hypot((CONCAVE[:, 0] - 50) / 100, CONCAVE[:, 1] - 0.75)) == near


@pytest.mark.parametrize("name", FRONTS)
def test_levels_on_the_front_are_reached_there(name):
    front = FRONTS[name]
    for row in range(0, len(front), 17):
        assert choose(front, 1.0, aspiration=front[row]) == row
        assert choose(-front, -1.0, aspiration=-front[row]) == row


def test_levels_that_are_too_good_or_too_modest_are_missed_or_exceeded_evenly():
    for levels in ([-20.0, 0.4], [80.0, 0.95]):
        row = choose(CONCAVE, 1.0, aspiration=levels)
        apart = (CONCAVE[row] - levels) / [100, 1]
        assert abs(apart[0] - apart[1]) < 0.03
    # a weight of 9 on the second makes its shortfall a ninth of the first's
    row = choose(CONCAVE, 1.0, [1, 9], aspiration=[-20.0, 0.1])
    apart = (CONCAVE[row] - [-20.0, 0.1]) / [100, 1]
    assert apart[0] / apart[1] == pytest.approx(9, rel=0.3)


def test_no_dominated_point_is_chosen_by_levels():
    points = np.array([[0.5, 0.5], [0.5, 0.2], [0.0, 1.0], [1.0, 0.0]])
    assert indicators.achieving(points, np.array([0.4, 0.4])) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"reference": [1.0]}, "reference must be 2 finite numbers"),
        ({"reference": [1.0, np.nan]}, "reference must be 2 finite numbers"),
        ({"aspiration": "high"}, "aspiration must be 2 finite numbers"),
        ({"reference": [1, 2], "aspiration": [1, 2]}, "not both"),
        ({"reference": [1, 2], "how": "ideal"}, "reference alone"),
        ({"aspiration": [1, 2], "how": "ideal"}, "not with 'ideal'"),
        ({"aspiration": [1, 2], "how": [1, 0]}, "above 0"),
        ({"how": "elbow"}, "'ask' or one weight"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_cannot_be_chosen_by_is_refused(given, message):
    with pytest.raises(gx.InputError, match=message):
        choose(CONVEX, 1.0, **given)


def taste(front, weights):
    """How little somebody with these weights likes each row."""
    span = np.ptp(front, axis=0)
    return (weights * (front - front.min(axis=0)) / span).max(axis=1)


@pytest.mark.parametrize("name", params(FRONTS, quick={"sphere"}))
def test_honest_answers_lead_close_to_the_favourite(name):
    """Of 4 people each, the loss of what was chosen is within 0.03 of the least, on a scale from 0 to 1."""
    front = FRONTS[name]
    for weights in np.random.default_rng(8).dirichlet(np.ones(front.shape[1]), 4):
        loss, search, asked = taste(front, weights), PreferenceSearch(front), 0
        while (rows := search.next_question()) is not None:
            search.record_answer(rows, rows[0] if loss[rows[0]] <= loss[rows[1]] else rows[1])
            asked += 1
        assert asked <= MAX_QUESTIONS
        assert loss[search.favourite] <= loss.min() + 0.03


def test_one_wrong_answer_does_not_lose_the_way():
    weights = np.array([0.3, 0.7])
    loss, losses = taste(CONVEX, weights), []
    for wrong in range(4):
        search, number = PreferenceSearch(CONVEX), 0
        while (rows := search.next_question()) is not None:
            better, worse = sorted(rows, key=lambda row: loss[row])
            search.record_answer(rows, worse if number == wrong else better)
            number += 1
        losses.append(loss[search.favourite])
    assert max(losses) <= loss.min() + 0.15


def test_questions_are_shown_with_names_and_answered_by_letters():
    asked = []
    answers = iter(["A", "perhaps", " b ", "=", "q"])

    def ask(text):
        asked.append(text)
        return next(answers)

    row = choose_by_asking(-SPHERE, -1.0, ["mass [kg]", "price", "noise"], ask)
    assert 0 <= row < 300 and len(asked) == 5
    assert asked[0].startswith("Question 1, of 10 at most") and "mass [kg]" in asked[0]
    assert "'perhaps' is none of the answers" in asked[2] and "Question 2" in asked[2]
    assert choose_by_asking(SPHERE[:1], 1.0, ["a", "b", "c"], ask) == 0  # there is nothing to ask


def test_maximised_objectives_are_asked_about_alike():
    def first(text):
        return "a"

    assert choose_by_asking(SPHERE, 1.0, "abc", first) == choose_by_asking(-SPHERE, -1.0, "abc", first)


def test_the_terminal_is_asked_and_its_end_stops(monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda: "b")
    assert ask_in_terminal("this or that? ") == "b"
    said = capsys.readouterr()
    assert said.err == "this or that? " and not said.out

    def ends():
        raise EOFError

    monkeypatch.setattr("builtins.input", ends)
    assert ask_in_terminal("?") == "q"


def test_the_neighbour_is_the_nearest_better_one_and_the_change_what_it_costs():
    values = np.array([[0.0, 10.0], [1.0, 4.0], [2.0, 1.0], [4.0, 0.0]])
    neighbours, changes = trade_offs(values, 1.0, range(4))
    assert neighbours.tolist() == [[-1, 1], [0, 2], [1, 3], [2, -1]]
    assert changes[1, 1].tolist() == [1.0, -3.0] and np.isnan(changes[0, 0]).all()
    turned, other = trade_offs(-values, -1.0, range(4))
    assert (turned == neighbours).all() and other[1, 1].tolist() == [-1.0, 3.0]


def test_a_point_that_is_best_in_several_objectives_is_marked_once():
    front = np.array([[0.0, 0.0, 0.0, 0.0, 9.0], [5.0, 5.0, 5.0, 5.0, 0.0], [1.0, 2.0, 1.0, 1.0, 8.0]])
    result = gx.minimize(lambda x: jnp.stack([*[x[0]] * 4, -x[0]]), [(0.0, 1.0)], "nsga2", population=8, generations=2)
    result.update(F=front, X=np.zeros((3, 1)))
    heads, values, _ = summary_tables.front_rows(result)
    assert heads == ["least f1, f2 and 2 more", "least f5", "knee"]
    assert values[1] == ["f2", "", "0", "5", "2"]
    _, steps = summary_tables.step_rows(result)
    # from the second point the third is the nearest better one in all of the first four
    assert [row[1:] for row in steps if row[0].startswith("least f5")] == [
        ["better f1, f2 and 2 more", "-4", "-3", "-4", "-4", "+8"]
    ]


@pytest.mark.slow
def test_the_command_line_asks_and_keeps_what_was_chosen(tmp_path):
    options = ["solve", "zdt1", "-g", "15", "-n", "20", "--dtype", "float64", "-o", str(tmp_path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "console", Console(width=160))
        outcome = CliRunner().invoke(cli.app, [*options, "--choose", "ask"], input="a\nb\na\nq\n")
        assert outcome.exit_code == 0, outcome.output
        assert "which do you prefer?" in outcome.output and "chosen: by answers" in outcome.output
        again = CliRunner().invoke(cli.app, ["view", str(tmp_path)])
        assert "chosen: by answers" in again.output and "which do you like" not in again.output
        outcome = CliRunner().invoke(cli.app, [*options, "--force", "--choose", "near:1,2,3"])
        assert outcome.exit_code == 2
    result = gx.load(tmp_path)
    for text, label in (("near:0.5,0.5", "near 0.5, 0.5"), ("reach:0.2,3", "reaches 0.2, 3"), ("1,2", "1, 2")):
        assert output.mark_chosen(result, parsing.parse_choice(text)) is None
        row = summary_tables.front_points(result)[f"chosen: {label}"]
        given = {"near:0.5,0.5": {"reference": [0.5, 0.5]}, "reach:0.2,3": {"aspiration": [0.2, 3]}}.get(text)
        assert row == (result.choose([1, 2]) if given is None else result.choose(**given))
    assert result.choose(weights=[1, 5]) == result.choose([1, 5]) != result.choose(weights=[5, 1])
    with pytest.raises(gx.InputError, match="how='ideal' and weights both say how to choose: leave one out"):
        result.choose("ideal", weights=[1, 5])
