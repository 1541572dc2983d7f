"""The methods of each part, every one in the pipeline that its users would give it.

A method is made anew for every fold, from what is known of it: `Case`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from sklearn.cluster import HDBSCAN, KMeans
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import LocalOutlierFactor, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC, OneClassSVM

import mnemosphere as mn
from research.field.frames import encoded
from research.field.peers import LVQ, Calibrated, KMeansPrototypes, NeighborDistance, TunedNeighbors

OURS = "dam"
PROTOTYPES = "k-means prototypes"
# Columns of `decision_summary`; the first has an analogue for others.
DECISION = ("memories_for_90", "memories_for_90_high", "same_by_three", "uniform_decides",
            "frequencies_decide", "repeated_memories")  # fmt: skip
NEIGHBORS, LOGISTIC, SVM = "k-NN", "logistic regression", "RBF SVM"
TIMED_BY = (LOGISTIC, NEIGHBORS)  # both together are the measure of what a fit may cost
# Methods whose model is a set of places in the space of rows, each with a label.
PROTOTYPE_TYPE = (OURS, "dam-joint", PROTOTYPES, "nearest centroid", "GLVQ", "GMLVQ")
# What comes with the extra `field`.
NEEDS = {"GLVQ": "prosemble", "GMLVQ": "prosemble", "spherical k-means": "faiss"}


def installed(method: str) -> bool:
    """Can this method be run here?"""
    return method not in NEEDS or find_spec(NEEDS[method]) is not None


@dataclass(frozen=True)
class Case:
    """What a method may know beforehand."""

    n_rows: int
    n_features: int
    n_classes: int
    seed: int
    n_memories: int | None = None  # of ours on the same rows


Make = Callable[[Case], Any]


def scaled(estimator: Any) -> Any:
    return make_pipeline(StandardScaler(), estimator)


def prototypes(case: Case) -> Any:
    """As many as ours has memories, so that the two differ in where and what they are."""
    if case.n_memories is None:
        raise ValueError(f"{PROTOTYPES} needs the number of memories of {OURS}: run {OURS} first")
    return Calibrated(scaled(KMeansPrototypes(case.n_memories, random_state=case.seed)))


CLASSIFIERS: dict[str, Make] = {
    OURS: lambda c: mn.DAMClassifier(random_state=c.seed),
    "dam-joint": lambda c: mn.DAMClassifier(objective="joint", random_state=c.seed),
    NEIGHBORS: lambda c: TunedNeighbors(StandardScaler()),
    LOGISTIC: lambda c: scaled(LogisticRegression(max_iter=1000)),
    SVM: lambda c: Calibrated(scaled(SVC())),
    "random forest": lambda c: RandomForestClassifier(random_state=c.seed),
    "gradient boosting": lambda c: HistGradientBoostingClassifier(random_state=c.seed),
    "Gaussian NB": lambda c: GaussianNB(),
    "nearest centroid": lambda c: scaled(NearestCentroid()),
    "GLVQ": lambda c: Calibrated(scaled(LVQ(random_state=c.seed)), folds=0),
    "GMLVQ": lambda c: Calibrated(scaled(LVQ(matrix=True, random_state=c.seed)), folds=0),
    PROTOTYPES: prototypes,
}


# Of frames: ours takes them as they are, peers behind an encoder.
FRAMES: dict[str, Make] = {
    OURS: CLASSIFIERS[OURS],
    NEIGHBORS: lambda c: encoded(TunedNeighbors(FunctionTransformer())),
    LOGISTIC: lambda c: encoded(LogisticRegression(max_iter=1000)),
    SVM: lambda c: encoded(Calibrated(SVC())),
    "random forest": lambda c: encoded(CLASSIFIERS["random forest"](c)),
    "gradient boosting": lambda c: encoded(CLASSIFIERS["gradient boosting"](c)),
}


BOTH = (OURS, "dam-joint")


class SphericalKMeans:
    """Spherical k-means of faiss: standardized rows on the unit sphere, centers too."""

    def __init__(self, n_clusters: int, seed: int) -> None:
        self.n_clusters, self.seed = n_clusters, seed

    def fit_predict(self, X: Any) -> Any:
        import faiss
        import numpy as np

        x = StandardScaler().fit_transform(X).astype(np.float32)
        faiss.normalize_L2(x)
        found = faiss.Kmeans(
            x.shape[1], self.n_clusters, spherical=True, seed=self.seed, nredo=10,
            min_points_per_centroid=1,
        )  # fmt: skip
        found.train(x)
        return found.index.search(x, 1)[1][:, 0]


def mixture(case: Case) -> Any:
    """Full covariances need more rows per cluster than they have columns; else diagonal ones."""
    enough = case.n_rows >= 5 * case.n_classes * case.n_features
    return GaussianMixture(
        case.n_classes,
        covariance_type="full" if enough else "diag",
        reg_covar=1e-3,
        random_state=case.seed,
    )


CLUSTERERS: dict[str, Make] = {
    OURS: lambda c: mn.DAMClusterer(n_clusters=c.n_classes, random_state=c.seed),
    "dam, number found": lambda c: mn.DAMClusterer(random_state=c.seed),
    "k-means": lambda c: scaled(KMeans(c.n_classes, n_init=10, random_state=c.seed)),
    "spherical k-means": lambda c: SphericalKMeans(c.n_classes, c.seed),
    "Gaussian mixture": lambda c: scaled(mixture(c)),
    "HDBSCAN, number found": lambda c: scaled(HDBSCAN(copy=True)),
}

UNLABELED = -1
# Those that read labeled rows alone are given no others.
ALONE = ("dam, labeled rows alone", "logistic regression, labeled rows alone")
FEW_LABELS: dict[str, Make] = {
    OURS: lambda c: mn.DAMClassifier(unlabeled=UNLABELED, random_state=c.seed),
    ALONE[0]: CLASSIFIERS[OURS],
    ALONE[1]: CLASSIFIERS[LOGISTIC],
    "label spreading": lambda c: scaled(LabelSpreading(kernel="knn")),
    "self-training": lambda c: scaled(SelfTrainingClassifier(LogisticRegression(max_iter=1000))),
}


def without_labels(case: Case) -> Any:
    """One cluster with as many memories as a classifier would take: a density, nothing more."""
    n = max(2, min(1000, case.n_rows // 5))
    return mn.DAMClusterer(1, n_memories=n, random_state=case.seed)


DETECTORS: dict[str, Make] = {
    OURS: CLASSIFIERS[OURS],
    "dam, without labels": without_labels,
    "isolation forest": lambda c: IsolationForest(random_state=c.seed),
    "distance to the fifth neighbor": lambda c: scaled(NeighborDistance()),
    "local outlier factor": lambda c: scaled(LocalOutlierFactor(novelty=True)),
    "one-class SVM": lambda c: scaled(OneClassSVM()),
}
