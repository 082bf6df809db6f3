"""galapax as a hyper-parameter search of scikit-learn, against the real package."""

import numpy as np
import pytest
from scipy import stats

import galapax as gx

pytest.importorskip("sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from galapax.compat.sklearn import GalapaxSearchCV


class Landscape(ClassifierMixin, BaseEstimator):
    """Its score is a function of its parameters alone."""

    def __init__(self, a=0.0, b=1.0, kind="flat", depth=1):
        self.a, self.b, self.kind, self.depth = a, b, kind, depth

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def score(self, X, y):
        return -((self.a - 0.3) ** 2) - (np.log10(self.b) - 1) ** 2 - (self.kind != "deep") - abs(self.depth - 7) / 10


X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
SPACE = {
    "a": gx.real(-1, 1),
    "b": stats.loguniform(1e-3, 1e3),
    "kind": ["flat", "deep", None],
    "depth": stats.randint(1, 11),
}


def test_scores_are_better_than_those_of_random_search():
    settings = {"n_iter": 100, "random_state": 1, "cv": 2}
    ours = GalapaxSearchCV(Landscape(), SPACE, **settings).fit(X, Y)
    distributions = SPACE | {"a": stats.uniform(-1, 2)}
    theirs = RandomizedSearchCV(Landscape(), distributions, **settings).fit(X, Y)
    assert ours.best_score_ > theirs.best_score_
    assert ours.best_params_["kind"] == "deep" and isinstance(ours.best_params_["depth"], int)
    assert len(ours.cv_results_["params"]) == 100 and set(ours.cv_results_) == set(theirs.cv_results_)


def test_every_candidate_is_inside_its_space_and_seeds_repeat():
    first, again = (
        GalapaxSearchCV(Landscape(), SPACE, n_iter=30, random_state=4, cv=2).fit(X, Y).cv_results_["params"]
        for _ in range(2)
    )
    assert first == again
    for p in first:
        assert -1 <= p["a"] <= 1 and 1e-3 <= p["b"] <= 1e3 and p["kind"] in SPACE["kind"] and 1 <= p["depth"] <= 10


def test_a_pipeline_is_searched_by_its_parameters_and_predicts():
    model = make_pipeline(StandardScaler(), LogisticRegression())
    search = GalapaxSearchCV(model, {"logisticregression__C": gx.real(1e-3, 1e3, log=True)}, n_iter=12, cv=3).fit(X, Y)
    assert search.predict(X).shape == (60,) and search.score(X, Y) > 0.9
    assert clone(search).get_params()["n_iter"] == 12


def test_splits_are_the_same_for_all_candidates():
    class Sizes(Landscape):
        def score(self, X, y):
            return float(X.sum())

    search = GalapaxSearchCV(Sizes(), {"a": gx.real(0, 1)}, n_iter=12, cv=KFold(3, shuffle=True)).fit(X, Y)
    assert np.ptp(search.cv_results_["split0_test_score"]) == 0


def test_several_metrics_need_the_one_to_optimise():
    metrics = {"one": lambda model, X, y: -(model.a**2), "two": lambda model, X, y: -((model.a - 1) ** 2)}
    space = {"a": gx.real(-1, 1)}
    search = GalapaxSearchCV(Landscape(), space, n_iter=30, cv=2, scoring=metrics, refit="two").fit(X, Y)
    assert search.best_params_["a"] == pytest.approx(1, abs=0.02)
    with pytest.raises(gx.InputError, match="which to optimise: one, two"):
        GalapaxSearchCV(Landscape(), space, n_iter=3, cv=2, scoring=metrics, refit=False).fit(X, Y)


def test_a_candidate_that_fails_is_the_worst():
    class Fragile(Landscape):
        def fit(self, X, y):
            if self.a > 0.5:
                raise ValueError("too large")
            return super().fit(X, y)

    space = {"a": gx.real(-1, 1), "depth": [7]}
    search = GalapaxSearchCV(Fragile(), space, algorithm="de", n_iter=60, population=10, cv=2, random_state=2)
    with pytest.warns(UserWarning, match="non-finite"):
        search.fit(X, Y)
    with pytest.raises(ValueError, match="too large"):
        clone(search).set_params(error_score="raise").fit(X, Y)
    assert search.best_params_["depth"] == 7 and search.best_params_["a"] == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize(
    ("space", "message"),
    [({"a": []}, "empty list"), ({"a": "word"}, "'a' has 'word'; give gx.real"), ({"a": 3}, "'a' has 3")],
)
def test_what_is_no_space_is_refused(space, message):
    with pytest.raises(gx.InputError, match=message):
        GalapaxSearchCV(Landscape(), space).fit(X, Y)


@pytest.mark.slow
@pytest.mark.parametrize("model", [Ridge(), LogisticRegression()], ids=["regressor", "classifier"])
def test_it_passes_the_checks_that_grid_search_passes(model):
    name = "alpha" if isinstance(model, Ridge) else "C"

    def failures(search):
        return {c["check_name"] for c in check_estimator(search, on_fail=None, on_skip=None) if c["status"] == "failed"}

    ours = failures(GalapaxSearchCV(model, {name: gx.real(1e-2, 1e2, log=True)}, n_iter=3, error_score="raise"))
    assert ours <= failures(GridSearchCV(model, {name: [0.1, 1.0]}))
