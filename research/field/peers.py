"""Baselines that scikit-learn does not have whole: calibrated scores, tuned k-NN, novelty by distance."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import Pipeline

Floats = NDArray[np.float64]


class Calibrated(ClassifierMixin, BaseEstimator):
    """Decisions of an estimator; probabilities by a logistic regression on scores of rows left out.

    For two classes this is Platt's.
    """

    def __init__(self, estimator: Any, folds: int = 5) -> None:
        self.estimator, self.folds = estimator, folds

    def fit(self, X: Floats, y: NDArray[Any]) -> Self:
        self.classes_, index = np.unique(y, return_inverse=True)
        self.model_ = clone(self.estimator).fit(X, y)
        parts = StratifiedKFold(self.folds, shuffle=True, random_state=0).split(X, index)
        scores, labels = [], []
        for train, test in parts:
            model = clone(self.estimator).fit(X[train], y[train])
            known = np.searchsorted(self.classes_, model.classes_)
            scores.append(self._scores(model, X[test], known))
            labels.append(y[test])
        found = np.concatenate(scores)
        self.scale_ = float(found.std()) or 1.0
        self.link_ = LogisticRegression(C=10, max_iter=1000)
        self.link_.fit(found / self.scale_, np.concatenate(labels))
        return self

    def _scores(self, model: Any, X: Floats, known: NDArray[np.int64]) -> Floats:
        """Scores of the classes in `known`; the others get the lowest there is."""
        s = np.asarray(model.decision_function(X), float)
        if s.ndim == 1:
            s = np.stack([-s, s], axis=1)
        if len(known) == len(self.classes_):
            return s
        whole = np.full((len(s), len(self.classes_)), s.min())
        whole[:, known] = s
        return whole

    def predict(self, X: Floats) -> NDArray[Any]:
        return self.model_.predict(X)

    def predict_proba(self, X: Floats) -> Floats:
        s = self._scores(self.model_, X, np.arange(len(self.classes_)))
        p = np.zeros((len(X), len(self.classes_)))
        known = np.searchsorted(self.classes_, self.link_.classes_)
        p[:, known] = self.link_.predict_proba(s / self.scale_)
        return p


class TunedNeighbors(ClassifierMixin, BaseEstimator):
    """k-NN on standardized rows, k by cross-validation on the training rows.

    Its frequencies are drawn towards those of all rows, as by m further neighbors: no class is ever
    given zero, for which the log-loss would be without measure. m by leaving out one row at a time.
    """

    NEIGHBORS = (1, 3, 5, 7, 11, 15, 25)
    FURTHER = (0.03, 0.1, 0.3, 1.0, 3.0)

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler

    def fit(self, X: Floats, y: NDArray[Any]) -> Self:
        steps = [("scale", clone(self.scaler)), ("knn", KNeighborsClassifier())]
        few = [k for k in self.NEIGHBORS if k <= 0.6 * len(X)]
        search = GridSearchCV(
            Pipeline(steps), {"knn__n_neighbors": few},
            cv=StratifiedKFold(5, shuffle=True, random_state=0),
        )  # fmt: skip
        self.model_ = search.fit(X, y).best_estimator_
        self.classes_, index, counts = np.unique(y, return_inverse=True, return_counts=True)
        self.prior_ = counts / len(y)
        others = self.model_["knn"].kneighbors(return_distance=False)  # of training rows: not self
        own = (index[others] == index[:, None]).sum(1)  # neighbors of the row's own class
        k, prior = others.shape[1], self.prior_[index]
        loss = [-np.log((own + m * prior) / (k + m)).mean() for m in self.FURTHER]
        self.further_ = self.FURTHER[int(np.argmin(loss))]
        return self

    def predict(self, X: Floats) -> NDArray[Any]:
        return self.model_.predict(X)

    def predict_proba(self, X: Floats) -> Floats:
        k, m = self.model_["knn"].n_neighbors, self.further_
        return (k * self.model_.predict_proba(X) + m * self.prior_) / (k + m)


class NeighborDistance(BaseEstimator):
    """Novelty as the distance to the fifth nearest training row."""

    def fit(self, X: Floats, y: Any = None) -> Self:
        self.neighbors_ = NearestNeighbors(n_neighbors=min(5, len(X))).fit(X)
        return self

    def score_samples(self, X: Floats) -> Floats:
        return -self.neighbors_.kneighbors(X)[0][:, -1]
