"""The methods of each part, every one in the pipeline that its users would give it.

A method is made anew for every fold, from what is known of it: `Case`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from sklearn.cluster import HDBSCAN, KMeans
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC, OneClassSVM

import mnemosphere as mn
from research.field.frames import encoded
from research.field.peers import Calibrated, NeighborDistance, TunedNeighbors

OURS = "dam"
NEIGHBORS, LOGISTIC, SVM = "k-NN", "logistic regression", "RBF SVM"
EXPLAINABLE = "explainable boosting"

LIGHTGBM, CATBOOST = "LightGBM", "CatBoost"

# Training rows and columns beyond which fits of explainable boosting take minutes and hours.
MOST_ROWS, MOST_COLUMNS = 4000, 40
_PACKAGES = {EXPLAINABLE: "interpret", LIGHTGBM: "lightgbm", CATBOOST: "catboost"}


def installed(method: str) -> bool:
    """Can this method be run here?"""
    return method not in _PACKAGES or find_spec(_PACKAGES[method]) is not None


@dataclass(frozen=True)
class Case:
    """What a method may know beforehand."""

    n_rows: int
    n_features: int
    n_classes: int
    seed: int
    frame: bool = False  # columns with names, categories and missing values


Make = Callable[[Case], Any]


def too_long(method: str, case: Case) -> bool:
    """Is a table left out for the time that the method would take?"""
    return method == EXPLAINABLE and (case.n_rows > MOST_ROWS or case.n_features > MOST_COLUMNS)


def scaled(estimator: Any) -> Any:
    return make_pipeline(StandardScaler(), estimator)


def numbers(case: Case, estimator: Any) -> Any:
    """Behind what makes a table standard units: of a frame also medians and indicators."""
    return encoded(estimator) if case.frame else scaled(estimator)


def plain(case: Case, estimator: Any) -> Any:
    """Rows of numbers as they are; frames as numbers."""
    return encoded(estimator) if case.frame else estimator


def boosting_that_explains(case: Case) -> Any:
    """Takes rows and frames as they are."""
    from interpret.glassbox import ExplainableBoostingClassifier

    return ExplainableBoostingClassifier(random_state=case.seed, n_jobs=1)


def lightgbm(case: Case) -> Any:
    """With default settings."""
    from lightgbm import LGBMClassifier

    return plain(case, LGBMClassifier(random_state=case.seed, n_jobs=1, verbosity=-1))


def catboost(case: Case) -> Any:
    """With default settings; it writes no files."""
    from catboost import CatBoostClassifier

    settings = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
    return plain(case, CatBoostClassifier(random_state=case.seed, **settings))


CLASSIFIERS: dict[str, Make] = {
    OURS: lambda c: mn.DAMClassifier(random_state=c.seed),
    NEIGHBORS: lambda c: (
        encoded(TunedNeighbors(FunctionTransformer()))
        if c.frame
        else TunedNeighbors(StandardScaler())
    ),
    LOGISTIC: lambda c: numbers(c, LogisticRegression(max_iter=1000)),
    SVM: lambda c: encoded(Calibrated(SVC())) if c.frame else Calibrated(scaled(SVC())),
    "random forest": lambda c: plain(c, RandomForestClassifier(random_state=c.seed)),
    "gradient boosting": lambda c: plain(c, HistGradientBoostingClassifier(random_state=c.seed)),
    EXPLAINABLE: boosting_that_explains,
    LIGHTGBM: lightgbm,
    CATBOOST: catboost,
}


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
