"""Peers that scikit-learn does not have whole: LVQ, k-means prototypes, calibrated scores."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import Pipeline

Floats = NDArray[np.float64]


class Prototypes(ClassifierMixin, BaseEstimator):
    """Nearest prototype; `decision_function` takes the squared distance to each class's nearest.

    It is −d_c/Σ d: for two classes their difference is the relative distance that GLVQ is trained
    by, and far rows have no larger scores than near ones. A subclass sets `prototypes_` and
    `labels_` (numbers of classes), and `omega_` for a metric.
    """

    omega_: Floats | None = None

    def decision_function(self, X: Floats) -> Floats:
        rows, prototypes = X, self.prototypes_
        if self.omega_ is not None:
            rows, prototypes = rows @ self.omega_, prototypes @ self.omega_
        d = pairwise_distances(rows, prototypes, metric="sqeuclidean")
        parts = [d[:, self.labels_ == c].min(1) for c in range(len(self.classes_))]
        nearest = np.stack(parts, axis=1)  # (rows, classes)
        return -nearest / np.maximum(nearest.sum(1, keepdims=True), 1e-300)

    def predict(self, X: Floats) -> NDArray[Any]:
        return self.classes_[self.decision_function(X).argmax(1)]


class KMeansPrototypes(Prototypes):
    """The centers of k-means within each class, as many per class as its share of the rows."""

    def __init__(self, n_prototypes: int = 10, random_state: int = 0) -> None:
        self.n_prototypes, self.random_state = n_prototypes, random_state

    def fit(self, X: Floats, y: NDArray[Any]) -> Self:
        self.classes_, index = np.unique(y, return_inverse=True)
        centers, labels = [], []
        for c in range(len(self.classes_)):
            rows = X[index == c]
            wanted = max(1, round(self.n_prototypes * len(rows) / len(X)))
            n = min(wanted, len(np.unique(rows, axis=0)))
            found = KMeans(n, n_init=1, random_state=self.random_state).fit(rows)
            centers.append(found.cluster_centers_)
            labels += [c] * n
        self.prototypes_, self.labels_ = np.concatenate(centers), np.array(labels)
        return self


class LVQ(Prototypes):
    """GLVQ and GMLVQ of prosemble with its defaults, but for the number of prototypes.

    Five per class do better than its one on most tables. A full matrix of relevances costs
    rows × prototypes × features² per step: from 50 features on, GMLVQ has one per class, and where
    there are more features than rows it works in the space that the rows span.
    """

    def __init__(self, matrix: bool = False, per_class: int = 5, random_state: int = 0) -> None:
        self.matrix, self.per_class, self.random_state = matrix, per_class, random_state

    def fit(self, X: Floats, y: NDArray[Any]) -> Self:
        from prosemble.models import GLVQ, GMLVQ

        self.classes_, index = np.unique(y, return_inverse=True)
        n = 1 if self.matrix and X.shape[1] >= 50 else self.per_class
        n = min(n, int(np.bincount(index).min()))
        span = np.eye(X.shape[1])
        if self.matrix and X.shape[1] > len(X):
            span = np.linalg.svd(X, full_matrices=False)[2].T  # (features, rows)
        model = (GMLVQ if self.matrix else GLVQ)(
            n_prototypes_per_class=n, random_seed=self.random_state
        )
        model.fit((X @ span).astype(np.float32), index)
        self.prototypes_ = np.asarray(model.prototypes_, float) @ span.T
        self.labels_ = np.asarray(model.prototype_labels_)
        self.omega_ = span @ np.asarray(model.omega_, float) if self.matrix else None
        return self


class Calibrated(ClassifierMixin, BaseEstimator):
    """Decisions of an estimator; probabilities by a logistic regression on scores of rows left out.

    For two classes this is Platt's. `folds` = 0 takes the rows that one bootstrap leaves out: a
    single fit more, of as many rows, for methods that are compiled for every shape.
    """

    def __init__(self, estimator: Any, folds: int = 5) -> None:
        self.estimator, self.folds = estimator, folds

    def fit(self, X: Floats, y: NDArray[Any]) -> Self:
        self.classes_, index = np.unique(y, return_inverse=True)
        self.model_ = clone(self.estimator).fit(X, y)
        if self.folds:
            parts = list(StratifiedKFold(self.folds, shuffle=True, random_state=0).split(X, index))
        else:
            rng = np.random.default_rng(0)
            rows = [np.flatnonzero(index == c) for c in range(len(self.classes_))]
            train = np.concatenate([rng.choice(mine, len(mine)) for mine in rows])
            parts = [(train, np.setdiff1d(np.arange(len(X)), train))]
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
