"""Hyper-parameters of a classifier: `python examples/plug_ins/sklearn_search.py`."""

from scipy import stats
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import galapax as gx
from galapax.compat.sklearn import GalapaxSearchCV

X, y = load_digits(return_X_y=True)
search = GalapaxSearchCV(
    make_pipeline(StandardScaler(), SVC()),
    {
        "svc__C": gx.real(1e-2, 1e3, log=True),
        "svc__gamma": stats.loguniform(1e-5, 1.0),
        "svc__kernel": ["rbf", "sigmoid"],
    },
    n_iter=40,
    cv=3,
    random_state=1,
).fit(X[:600], y[:600])
print(f"accuracy {search.best_score_:.3f}", search.best_params_["svc__kernel"])
