"""`DAMClassifier`: the model as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval, Options, StrOptions

from mnemosphere import interpret
from mnemosphere.base.machine import threads
from mnemosphere.estimators.base import COUNT, ROW_CONSTRAINTS, MemoryEstimator
from mnemosphere.estimators.class_training import train
from mnemosphere.estimators.inputs import check_alone, read_inputs, work_on
from mnemosphere.estimators.label_issues import LabelIssues, label_issues
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.settings import SOLVERS, Settings
from mnemosphere.estimators.setup import sound
from mnemosphere.estimators.streaming import learn_batch
from mnemosphere.fitted.model import FittedModel, Floats, as_numpy, like
from mnemosphere.geometry import KINDS
from mnemosphere.interpret.classes import mapped_columns
from mnemosphere.interpret.rejection import renewed
from mnemosphere.model.one_pass import operands
from mnemosphere.rows.batches import Dataset
from mnemosphere.rows.columns import MIN_FREQUENCY
from mnemosphere.rows.labels import OUT_OF_SCOPE, Labels, sample_weights
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import process_group
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD


@dataclass(eq=False, repr=False)
class DAMClassifier(ClassifierMixin, MemoryEstimator):  # type: ignore[misc]
    """A classifier whose predictions are weighted votes of memories that can be inspected.

    Dense associative memory on the sphere: a class-labeled mixture of von Mises–Fisher distributions
    plus a uniform component. Each memory is a unit vector with a soft label, and a row is classified
    by the memories it resembles.

    Parameters
    ----------
    n_memories : int or "auto", default "auto"
        Number of memories. "auto": one or four per class, then four times as many, and again, while
        that predicts held-out rows better; at most 300, or one for 15 rows if that is more, up to 4000.
    objective : {"auto", "joint", "conditional"}, default "auto"
        The likelihood of rows and classes together, or of the classes given the rows. "joint"
        makes memories prototypical; "conditional" is trained for accuracy. "auto": "conditional"
        if every row has a label, else "joint".
    growth : None or int, default None
        Number of memories to start with; those that are saddles are split. None: all from the start.
    varsigma : float in (0, 1] or "auto", default "auto"
        The regularizer ς of the joint likelihood; 1 is the plain one. "auto": set by how many memories
        share a row. The conditional likelihood does not depend on it.
    beta : "learn" or float, default "learn"
        Inverse temperature; a number is held fixed.
    geometry : {"auto", "center", "unit", "standard", "whitened", "circles", …}, default "auto"
        How rows are put on the sphere; "auto" chooses by held-out log-loss. For texts next to other columns also
        "text20+standard", "text20+circles" and the same with 50 or 80: the percentage of the squared length that texts get.
    solver : {"auto", "fixed-point", "adam", "sgd"} or FixedPoint or SGD or Adam, default "auto"
        "auto" is "fixed-point" for the joint likelihood and "adam", on the sphere, for the conditional
        one. "sgd" is the paper's constrained SGD with momentum, for either. Pass an object to set batch
        size, learning rate and the like.
    search : "auto" or None, default "auto"
        How settings that are "auto" are chosen. "auto": by held-out rows. None: plain defaults (standard
        units, four memories per class).
    max_iter : int or None, default None
        Passes over the data. None: 10 exact or 6 incremental fixed-point passes; up to 300 of SGD; of Adam
        as many as take 40 steps, but at least 5, and twice as many again as often as the search prefers that.
    label_smoothing : float in [0, 1), default 0.1
        ε of the soft labels (1−ε)·onehot + ε/(C+1), by which the joint likelihood is trained. It keeps
        class weights away from 0, so that a few wrong labels cost little and every class can still be
        learned. Predictions are corrected for it. The conditional likelihood has a smoothing of its own, which fades.
    uniform_weight : float or "auto", default "auto"
        Weight P_0 of the uniform component relative to a memory. "auto": 1, as in the paper, or less
        with fewer than 99 memories: at most a hundredth of all weight.
    unlabeled : object or None, default None
        The value of y that marks a row without label; NaN stands for NaN and None. None: every
        row is labeled.
    class_weight : dict or "balanced" or None, default None
        Weights of the classes: {class: weight}; "balanced": all classes get equal total weight;
        None: all 1.
    precision : {"auto", "float64", "float32"}, default "auto"
        Precision of training. "auto": float64 up to 50,000 numbers in X and y and as many pairs of a row and a
        memory, where it costs little, else float32, with bfloat16 operands on a GPU that supports
        them.
    device : str, default "auto"
        "cpu", "cuda", … "auto": the device of a tensor X, else a GPU if there is one and X has a million
        numbers.
    random_state : int or RandomState or None, default None
        Random seed; None: another one each time.
    callbacks : sequence of Callback, default ()
        Called on every pass: `Checkpoint(path)` stores the run and resumes it.
    encoder : None, "wordllama", a function, an object with encode or embed, or a dict, default None
        Turns a list of texts into vectors, if X holds texts. In a frame of several columns it applies to those
        whose texts average 5 words or more; {column: encoder} names the columns. None: X holds no texts.
    categories : sequence of str, default ()
        Columns of a frame to treat as categories whatever they hold, such as numeric codes.
    min_frequency : float in [0, 1), default 0.005
        Share of the rows that a level of a category needs to get a column of its own. If some levels
        have less, all levels of the category are also encoded by the log-odds of the classes in their rows.
    verbose : int, default 0
        0: silent. 1: progress on standard error if a fit takes more than a second: stages of the search,
        then passes with the loss.

    Attributes
    ----------
    model_ : FittedModel
        The fitted model, which the other attributes are read from.
    classes_ : ndarray of shape (C,)
        Labels, sorted.
    memories_ : ndarray of shape (P, N)
        Unit vectors; with geometry="standard", "whitened" and "circles" in the features' units.
    class_weights_ : ndarray of shape (P+1, C+1)
        Weight times soft label of each memory in the votes, corrected for label smoothing. Row 0 is the uniform
        component, the last column the class "none of them".
    memory_prior_ : ndarray of shape (P+1,)
        Weights of the memories, the row sums of `class_weights_`.
    class_prior_ : ndarray of shape (C+1,)
        Class frequencies; the probabilities of rows without direction.
    beta_ : float
        Inverse temperature as trained.
    varsigma_ : float
        The regularizer ς.
    n_memories_ : int
        Number of memories P.
    geometry_ : str
        How rows are put on the sphere.
    objective_ : str
        "joint" or "conditional".
    temperature_ : float
        Trained slope of the votes divided by the slope in use; above 1 it softens probabilities, below 1
        it sharpens them. Found on held-out rows; `calibrate` sets it anew.
    novelty_threshold_ : float or None
        The novelty score that about one held-out row in a hundred exceeds; None if no row could be held out.
    search_ : list of dicts
        Trials of the search; it prints as a table.
    typical_rows_ : ndarray of int of shape (P, 3)
        Numbers of the training rows most typical of each memory, −1 for none.
    support_ : ndarray of shape (P,)
        How many training rows each memory answers for: the sum of its shares.
    history_ : list of dicts
        One for each pass.
    n_iter_ : int
        Number of passes.
    converged_ : bool
        Whether training converged.
    status_ : str
        How training ended.
    lineage_ : Lineage or None
        The tree of splits.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns; only if X had names.

    Examples
    --------
    >>> import mnemosphere as mn
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = mn.DAMClassifier(random_state=0).fit(X[::2], y[::2])
    >>> clf.predict([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]])
    array([0, 2])
    >>> clf.predict_proba(X[[1, 77, 101]]).round(2)
    array([[0.99, 0.01, 0.  ],
           [0.  , 0.65, 0.35],
           [0.  , 0.01, 0.99]])
    >>> clf.n_memories_, clf.geometry_, clf.objective_  # chosen by held-out rows
    (3, 'standard', 'conditional')
    >>> clf.explain(X[:1])[0][0].label  # the memory with the largest share in row 0
    0
    >>> clf.predict_or_reject([[5.1, 3.5, 1.4, 0.2], [0, 50, 0, 50]])
    array([0, None], dtype=object)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = ROW_CONSTRAINTS | {
        "n_memories": [COUNT, StrOptions({"auto"})],
        "objective": [StrOptions({"auto", "joint", "conditional"})],
        "varsigma": [Interval(Real, 0, 1, closed="right"), StrOptions({"auto"})],
        "geometry": [StrOptions({"auto"}), Options(str, KINDS.keys())],
        "solver": [StrOptions({"auto", *SOLVERS}), FixedPoint, SGD, Adam],
        "search": [StrOptions({"auto"}), None],
        "label_smoothing": [Interval(Real, 0, 1, closed="left")],
        "uniform_weight": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "unlabeled": "no_validation",
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    n_memories: int | str = "auto"
    _: KW_ONLY
    objective: str = "auto"
    growth: int | None = None
    varsigma: float | str = "auto"
    beta: float | str = "learn"
    geometry: str = "auto"
    solver: str | FixedPoint | SGD | Adam = "auto"
    search: str | None = "auto"
    max_iter: int | None = None
    label_smoothing: float = 0.1
    uniform_weight: float | str = "auto"
    unlabeled: object = None
    class_weight: dict[Any, float] | str | None = None
    precision: str = "auto"
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    callbacks: Sequence[Callback] = ()
    encoder: Any = None
    categories: Sequence[object] = ()
    min_frequency: float = MIN_FREQUENCY
    verbose: int = 0

    @property
    def temperature_(self) -> float:
        """Trained slope of the votes divided by the slope in use."""
        return self.model_.votes.temperature

    @property
    def objective_(self) -> str:
        """What the model was trained for: "joint" or "conditional"."""
        return self.model_.objective

    # Training.

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn memories and their soft labels.

        Parameters
        ----------
        X : array-like, sparse matrix, frame or tensor of shape (n, N), n texts, or Dataset
            Training rows. Texts need an `encoder`. A `Dataset` has labels and weights of its own and may
            be larger than memory.
        y : array-like of shape (n,) or (n, C), default None
            Labels (numbers, texts or truth values), or soft labels with row sums at most 1. Rows with the label
            `mnemosphere.OUT_OF_SCOPE` belong to no class: `predict_or_reject` rejects rows that are
            more like them than like any class.
        sample_weight : array-like of shape (n,), default None
            Weights of the rows; None: all 1.

        Returns
        -------
        DAMClassifier
            The estimator itself, with `model_`.

        Examples
        --------
        >>> fresh = mn.DAMClassifier(3, objective="joint", geometry="standard", random_state=0)
        >>> fresh.fit(X_train, y_train).memories_.shape
        (3, 4)
        """
        self._validate_params()
        settings = Settings.of(self.get_params(deep=False))
        own = threads(work_on(X))
        with process_group(), operands(self.precision), own, Progress(self.verbose) as progress:
            model = train(read_inputs(settings, X, y, sample_weight, progress))
            names = model.classes.tolist()
            if OUT_OF_SCOPE in names:
                model = sound(mapped_columns(model, {names.index(OUT_OF_SCOPE): OUT_OF_SCOPE}))
            self.model_ = renewed(model)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Take one incremental fixed-point step from a batch, on a fresh or a fitted model.

        On a fresh model the first batch settles what is "auto", the geometry and the first
        memories, so it should look like the rest. The objective is the joint likelihood. A class that
        appears later is added as by `add_class`.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows of the batch.
        y : array-like of shape (n,) or (n, C)
            Their labels.
        classes : array-like of shape (C,), default None
            All classes, for the first batch; None: those of y.
        sample_weight : array-like of shape (n,), default None
            Weights of the rows; None: all 1.

        Returns
        -------
        DAMClassifier
            The estimator itself.

        Examples
        --------
        >>> clf.partial_fit(X_test, y_test).n_memories_
        6
        """
        self._validate_params()
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all rows at once: pass a dict to partial_fit"
            )
        settings = Settings.of(self.get_params(deep=False))
        with operands(self.precision), threads(work_on(X)), Progress(self.verbose) as progress:
            model = self.__dict__.get("model_")
            self.model_ = learn_batch(model, settings, X, y, classes, sample_weight, progress)
        return self

    # Answers.

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Compute the logarithm of `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows.

        Returns
        -------
        ndarray of shape (n, C)
            For a tensor, a tensor.

        Examples
        --------
        >>> np.allclose(np.exp(clf.predict_log_proba(X_test)), clf.predict_proba(X_test))
        True
        """
        return self._rowwise(X, lambda model, rows: like(rows, model.log_proba(rows)))

    def decision_function(self, X: ArrayLike) -> Floats:
        """Compute log P(y|x), or for two classes the log-odds of the second.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows.

        Returns
        -------
        ndarray of shape (n, C), or (n,) for two classes
            For a tensor, a tensor.

        Examples
        --------
        >>> clf.decision_function(X_test).argmax(axis=1)[:5]
        array([0, 2, 1, 0, 1])
        """

        def read(model: FittedModel, rows: Any) -> Any:
            scores = model.log_proba(rows)
            return like(rows, scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores)

        return self._rowwise(X, read)

    def predict_or_reject(
        self,
        X: ArrayLike,
        rate: float | None = None,
        *,
        accuracy: float | None = None,
        confidence_level: float = 0.95,
        ask: bool = False,
    ) -> NDArray[Any]:
        """Predict the most probable class of each row, or None if the row is rejected.

        For a `rate`, a row is rejected if it resembles no memory, if the odds are against its class, or if
        its class barely beats the average class, more so than all but such a share of known rows. For an
        `accuracy`, rows are answered whose classes are the most probable, but no novel ones. By rows that
        the fit held out, rates and accuracies are about right. By rows of `calibrate` they are exact: a row
        of their kind is rejected with probability at most `rate`. With probability `confidence_level` over
        draws of them, there is an error, or an answer to a new row is right with probability at least
        `accuracy`. Rows more like those labeled `OUT_OF_SCOPE` in training than like any class are always
        rejected; rates and accuracies refer to the others.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows.
        rate : float in (0, 1), default None
            Share of known rows that may be rejected; None: 0.05, or as many as `accuracy` needs.
        accuracy : float in (0, 1), default None
            Share of the answers that must be right, instead of a rate; as many rows are answered as the
            held-out rows allow. Held-out rows labeled `OUT_OF_SCOPE` count as wrong answers.
        confidence_level : float in (0, 1), default 0.95
            Probability that the accuracy is kept.
        ask : bool, default False
            Return "ask" instead of None for rejected rows between known classes, which a person or a larger
            model may decide. None is then for rows unlike all known ones.

        Returns
        -------
        ndarray of objects of shape (n,)
            Labels and None, with `ask` also "ask".

        Raises
        ------
        ValueError
            If the model is not calibrated, or if too few held-out rows support this rate or accuracy.

        Examples
        --------
        >>> strange = X_test[:1] * [1, 1, 9, 1]
        >>> clf.predict_or_reject(X_test[:1]), clf.predict_or_reject(strange)
        (array([0], dtype=object), array([None], dtype=object))
        >>> clf.predict_or_reject(strange, ask=True)  # unlike all known rows
        array([None], dtype=object)
        >>> clf.predict_or_reject(X_test[:1], accuracy=0.8)
        array([0], dtype=object)
        """

        def read(model: FittedModel, rows: Any) -> NDArray[Any]:
            found = interpret.rejections(
                model, rows, rate, accuracy=accuracy, confidence_level=confidence_level
            )
            return found.said(ask)

        return self._rowwise(X, read)

    def predict_set(
        self, X: ArrayLike, coverage: float = 0.9, *, at_least_one: bool = True
    ) -> list[NDArray[Any]]:
        """Predict a set of classes for each row that contains the true one as often as asked.

        Conformal prediction sets: the probability is about `coverage` straight after `fit`, and at least
        that for rows like those that `calibrate` was given with labels, on average over draws of them.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows.
        coverage : float in (0, 1), default 0.9
            Probability that the true class is in the set.
        at_least_one : bool, default True
            Whether every set has the most probable class. Else a set may be empty: no class is as probable as
            the true classes of held-out rows are.

        Returns
        -------
        list of n ndarrays
            Labels, most probable first.

        Raises
        ------
        ValueError
            If the model is not calibrated, or without labels.

        Examples
        --------
        >>> clf.predict_set(X_test[:2], coverage=0.9)
        [array([0]), array([2])]
        """

        def read(model: FittedModel, rows: Any) -> list[NDArray[Any]]:
            return interpret.predict_set(model, rows, coverage, at_least_one=at_least_one)

        return self._rowwise(X, read)

    def score(
        self,
        X: ArrayLike | Dataset,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Compute the accuracy.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows; a `Dataset` must have labels.
        y : array-like of shape (n,), default None
            Their labels; None for a `Dataset`.
        sample_weight : array-like of shape (n,), default None
            Weights of the rows; None: all 1.

        Returns
        -------
        float
            Share of the labeled rows whose class is right.

        Examples
        --------
        >>> clf.score(X_test, y_test) > 0.9
        True
        """
        if isinstance(X, Dataset):
            check_alone(y, sample_weight)
        model, unlabeled = self._current(), self.unlabeled
        parts = X if isinstance(X, Dataset) else [(X, y, sample_weight)]
        with threads(work_on(X, model.n_memories)):
            found = np.array([_right(model, unlabeled, *part) for part in parts]).sum(0)
        if not found[1] > 0:
            raise ValueError("no row of y has a label and a weight: pass labeled rows to score")
        return float(found[0] / found[1])

    def label_issues(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        n_folds: int = 5,
    ) -> LabelIssues:
        """Find the rows whose label is probably wrong, by models that did not see them.

        Rows are held out in folds, copies of a row together, and models are trained on the others. Their
        geometry, objective and number of memories are those that `fit` chose, or, before `fit`, those that
        a search finds. The estimator stays as it is.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows, such as the training rows.
        y : array-like of shape (n,)
            Their labels; not soft ones.
        sample_weight : array-like of shape (n,), default None
            Weights of the rows in training; None: all 1.
        n_folds : int, default 5
            Parts that are held out in turn.

        Returns
        -------
        LabelIssues
            Least probable labels first, with the suggested class, and typical rows of the memory that
            contributes most to it.

        Examples
        --------
        >>> issues = clf.label_issues(X_train, y_train)
        >>> bool((issues.given != issues.suggested).all())
        True
        """
        return label_issues(self, X, y, sample_weight, n_folds)

    # Classes.

    def add_class(self, X: ArrayLike, label: object) -> Self:
        """Add a class from a few rows of it, without training.

        Five rows are enough. The other classes keep their memories. Rates and accuracies stay about right.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows of the new class.
        label : object
            Its name.

        Returns
        -------
        DAMClassifier
            The estimator itself, with one more class.

        Examples
        --------
        >>> sweet = X_test[:5] * 3
        >>> clf.add_class(sweet, 3).classes_
        array([0, 1, 2, 3])
        """
        self.model_ = interpret.add_class(self.model_, X, label)
        return self

    def add_examples(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Add rows of known classes as memories, without training.

        Rows like them then get their classes, with little loss for the others. Keep `model_` to go back:
        an edit leaves it as it is and sets another one.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows.
        y : array-like of shape (n,)
            Their classes; `mnemosphere.OUT_OF_SCOPE` for rows of none of them.

        Returns
        -------
        DAMClassifier
            The estimator itself, with more memories.

        Examples
        --------
        >>> odd = X_test[:1] * 3
        >>> clf.add_examples(odd, [1]).predict(odd)
        array([1])
        """
        self.model_ = interpret.add_examples(self.model_, X, y)
        return self

    def map_classes(self, names: Mapping[Any, Any]) -> Self:
        """Rename, merge and remove classes, without training.

        Parameters
        ----------
        names : mapping of labels to labels or None
            New names of some classes. Classes with the same new name become one, and their probabilities
            add up. None: the class is removed, with the memories that are mostly of it.
            `mnemosphere.OUT_OF_SCOPE`: it becomes part of "none of them".

        Returns
        -------
        DAMClassifier
            The estimator itself, with other classes.

        Examples
        --------
        >>> clf.map_classes({1: 2}).classes_  # 1 is merged into 2
        array([0, 2])
        >>> clf.map_classes({2: 7}).classes_  # 2 is renamed
        array([0, 7])
        """
        self.model_ = interpret.map_classes(self.model_, names)
        return self

    # What has been learned, and what is new.

    def compare(self, X: ArrayLike) -> interpret.Drift:
        """Compare new rows with those that the fit held out, memory by memory.

        Parameters
        ----------
        X : array-like of shape (n, N)
            New rows.

        Returns
        -------
        Drift
            Which memories have a different share of the rows, by an exact test, which columns other values, and
            how many rows are unlike all known ones. It prints as a table.

        Examples
        --------
        >>> clf = mn.DAMClassifier(random_state=0).fit(X_train, y_train)
        >>> clf.compare(X_test).drifted
        False
        """
        return interpret.compare(self.model_, X)


def _right(
    model: FittedModel, unlabeled: object, X: Any, y: Any, sample_weight: Any
) -> tuple[float, float]:
    """Weight of the labeled rows whose class is right, and of all of them."""
    best = as_numpy(model.log_proba(X).argmax(1))
    labels = Labels.of(y, len(best), unlabeled=unlabeled)
    labels.check_like(model.classes)
    weight = sample_weights(sample_weight, len(best), torch.device("cpu"))
    each = np.ones(len(best)) if weight is None else as_numpy(weight)
    each = each * (labels.labeled | labels.outside)
    right = best == labels.among(model.classes, unknown=True)
    return float(each[right].sum()), float(each.sum())
