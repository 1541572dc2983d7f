"""What a fitted classifier answers: classes, probabilities, another prior, the reasons."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.rows import StoredRows
from mnemosphere.data.source import Dataset
from mnemosphere.data.streamed import SourceDataset
from mnemosphere.estimators.base import (
    Floats,
    as_numpy,
    check_whole,
    like,
    relative,
    sample_weights,
)
from mnemosphere.estimators.editing import given_parameters
from mnemosphere.estimators.from_files import accuracy, learn_labeled, sample_rows, scan
from mnemosphere.estimators.labels import (
    Encoded,
    as_labels,
    class_index,
    class_weights,
    encode,
)
from mnemosphere.estimators.portable_model import PortableModel
from mnemosphere.estimators.progress import looking
from mnemosphere.estimators.remarks import (
    about_labels,
    check_worth_it,
)
from mnemosphere.model.class_reading import (
    at_temperature,
    best_temperature,
    net_class_weights,
    precise,
)
from mnemosphere.model.metric import relevances, strongest_pairs
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.prior import with_class_prior
from mnemosphere.numerics.bessel import log_omega_ratio
from mnemosphere.schema import Array, Check, items, mapping, maybe, number, scalars
from mnemosphere.training.callbacks import Callback


class ClassModel(PortableModel, ABC):
    """All that reads a fitted model and knows of classes."""

    temperature_: float  # of the shares of memories in a class, set by `fit` or `calibrate`
    n_memories: int | str
    label_smoothing: float
    unlabeled: object
    class_weight: dict[Any, float] | str | None
    _net_class_weights: Tensor  # p net of label smoothing
    selection_: list[dict[str, Any]]
    _label_mass: Tensor

    _HEADER: ClassVar[dict[str, Check]] = PortableModel._HEADER | {
        "own": mapping({
            "selection": items(scalars),
            "temperature": number(0, 1e300, above=True),
            "novelty_threshold": maybe(number()),
        })
    }  # fmt: skip
    _OWN: ClassVar[dict[str, Array]] = {
        "label_mass": Array("C", None, low=0), "net_class_weights": Array("Q C", None, low=0),
        "log_ratio": Array(optional=True),
    }  # fmt: skip

    @property
    def relevances_(self) -> Floats:
        """How much each feature counts in the model's metric, (features as numbers,), 1 on average.

        The diagonal of AᵀA, in standard units of the features; all 1 where there is no metric.
        """
        a, n = self._normalizer.metric, self._n_numbers
        return np.ones(n) if a is None else as_numpy(relevances(a[:, :n]))

    def strongest_pairs(self, n_pairs: int = 10) -> Any:
        """The pairs of features that count together most in the metric, as a pandas frame.

        One line per pair: feature, other, relevance. That is the entry of AᵀA in the scale of
        `relevances_`: above zero what counts is the sum of the two, below zero their difference.
        Empty where there is no metric.
        """
        import pandas as pd

        check_is_fitted(self, "params_")
        check_whole(n_pairs, "n_pairs", 1)
        a, n = self._normalizer.metric, self._n_numbers
        called = self._feature_names() or range(n)
        found = [] if a is None else strongest_pairs(a[:, :n], n_pairs)
        lines = [(called[i], called[j], value) for i, j, value in found]
        return pd.DataFrame(lines, columns=["feature", "other", "relevance"])

    def _encode(
        self, y: Any, stored: StoredRows, classes: NDArray[Any] | None, *, require_label: bool
    ) -> Encoded:
        """The labels as indices and weights; sets classes_."""
        coded = encode(
            y, stored.n_rows, classes, unlabeled=self.unlabeled, smoothing=self._smoothing,
            require_label=require_label, device=stored.device,
        )  # fmt: skip
        self.classes_ = coded.classes
        if classes is None:
            labeled = coded.index[coded.index >= 0]
            counts = torch.bincount(labeled, minlength=len(coded.classes)).cpu().numpy()
            weighted = self.class_weight is not None
            # Rows without label are learned from as well.
            width = self.n_memories if len(labeled) == stored.n_rows else "auto"
            for note in about_labels(coded.classes, counts, width, weighted=weighted):
                warnings.warn(note, UserWarning, stacklevel=3)
            if self.n_memories == "auto":
                check_worth_it(len(coded.classes), len(labeled))
        return coded

    def _weights(self, coded: Encoded, sample_weight: Any, stored: StoredRows) -> Tensor | None:
        """Sample weight times class weight; None where all are 1."""
        weight = sample_weights(sample_weight, stored.n_rows, stored.device)
        if self.class_weight is None:
            return weight
        if weight is None:
            weight = torch.ones(stored.n_rows, dtype=torch.float64, device=stored.device)
        each = class_weights(self.class_weight, self.classes_, coded.index, weight)
        weight = torch.where(coded.index >= 0, weight * each[coded.index], weight)
        if not bool(weight.sum() > 0):
            raise ValueError("all weights are zero: give some rows a sample_weight above 0")
        return relative(weight)

    @abstractmethod
    def _resolve_auto(
        self, stored: StoredRows, targets: Tensor, weight: Tensor | None, seed: int
    ) -> ArrayDataset:
        """Settle everything that is "auto"; return the rows on the sphere."""

    def _learn_from(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[StoredRows, Tensor | None, ArrayDataset | SourceDataset, int, list[Callback]]:
        """(rows as stored or some, their weights, all rows to train on, the seed, callbacks)."""
        classes = None
        if isinstance(X, Dataset):
            if not X.fits:
                seed, callbacks = self._begin(X)
                with looking(X, callbacks):
                    learned = learn_labeled(self, X, seed)
                return learned.rows.rows, learned.weight, learned.dataset, seed, callbacks
            given, (X, y, sample_weight) = X, X.read()
            if y is not None and y.ndim == 1:
                classes = scan(given, self.unlabeled).classes  # an error names the file
        stored = self._stored(X, reset=True)
        coded = self._encode(y, stored, classes, require_label=True)
        weight = self._weights(coded, sample_weight, stored)
        seed, callbacks = self._begin(stored, targets=coded.targets, weight=weight)
        dataset = self._resolve_auto(stored, coded.targets, weight, seed)
        return stored, weight, dataset, seed, callbacks

    def _set_params(self, params: Parameters) -> None:
        super()._set_params(params)
        self.temperature_ = 1.0
        self._net_class_weights = net_class_weights(params, self.label_smoothing)

    @property
    def _class_params(self) -> Parameters:
        """Net of smoothing, at the temperature: see `model.class_reading`."""
        p = self._net_class_weights
        net = self.params_.replace(p=p, p_h=p.sum(1), p_q=p.sum(0))
        return at_temperature(precise(net), self.temperature_)

    @property
    def _smoothing(self) -> float:
        # So little of it would vanish in products: it is none.
        return float(self.label_smoothing) if self.label_smoothing > 1e-30 else 0.0

    def _own(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header = {
            "selection": self.selection_,
            "temperature": self.temperature_,
            "novelty_threshold": self.novelty_threshold_,
        }
        tensors = {"label_mass": self._label_mass, "net_class_weights": self._net_class_weights}
        # With it a file can be read where there are no Bessel functions.
        beta = self.params_.beta.double().cpu()
        tensors["log_ratio"] = log_omega_ratio(beta, self.params_.n_features)
        return header, tensors

    def _set_own(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        net = arrays["net_class_weights"]
        self._label_mass = torch.from_numpy(arrays["label_mass"])
        self._net_class_weights = torch.from_numpy(net).to(self.params_.p)
        self.selection_ = header["selection"]
        self.temperature_ = float(header["temperature"])
        threshold = header["novelty_threshold"]
        self.novelty_threshold_ = None if threshold is None else float(threshold)

    def _class_index(self, y: Any) -> Tensor:
        labels = as_labels(y)
        return class_index(labels.reshape(-1), self.classes_, self.params_.w.device)[1]

    def _rows_to_judge(self, X: Any, y: Any, sample_weight: Any) -> ArrayDataset:
        if isinstance(X, Dataset):
            X, y, sample_weight = sample_rows(X, 0)
        stored = self._stored(X, reset=False, gaps=True)
        coded = self._encode(y, stored, self.classes_, require_label=False)
        return self._judged(X, coded.targets, self._weights(coded, sample_weight, stored))

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Log of `predict_proba`, (n, C)."""
        check_is_fitted(self, "params_")
        params = self._class_params
        log_joint = self._log_joint(params)
        log_proba: Floats = self._over_rows(
            X, lambda x, lost: log_joint(x, lost)[:, :-1].double().log_softmax(1), params.w.dtype
        )
        return log_proba

    def predict_proba(self, X: ArrayLike) -> Floats:
        """P(y | x, y is one of the C classes), (n, C).

        Σ over memories of share × soft label, net of label smoothing, the shares at the
        temperature that `fit` found on rows set apart, or `calibrate` on rows of yours. `explain`
        shows the same shares and soft labels.
        """
        proba: Floats = like(X, torch.as_tensor(self.predict_log_proba(X)).exp())
        return proba

    def decision_function(self, X: ArrayLike) -> Floats:
        """Log-odds of the second class (n,) for two classes, else log P(y|x) (n, C)."""
        scores = self.predict_log_proba(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row; a tensor where X is one and labels are numbers."""
        best = self.predict_log_proba(X).argmax(1)
        if isinstance(best, Tensor):
            if self.classes_.dtype.kind in "biuf":
                labels: Any = torch.from_numpy(self.classes_).to(best.device)[best]
                answer: NDArray[Any] = labels
                return answer
            best = best.cpu().numpy()
        found: NDArray[Any] = self.classes_[best]
        return found

    def score(
        self,
        X: ArrayLike | Dataset,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Accuracy on (X, y), or on a `Dataset` with labels."""
        if isinstance(X, Dataset):
            return accuracy(self, X)
        own: float = super().score(X, y, sample_weight)
        return own

    def predict_or_reject(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row, None where the row is novel; an array of objects."""
        answer = as_numpy(self.predict(X)).astype(object)
        answer[as_numpy(self.is_novel(X))] = None
        return answer

    def calibrate(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Set `temperature_` to the one with the least log-loss of the classes of (X, y).

        Pass labeled rows that were not trained on. `fit` does so by itself; rows of another
        source, or many more of them, may tell it better. Further training, shrinking and the like
        start again at 1.
        """
        check_is_fitted(self, "params_")
        judged = self._rows_to_judge(X, y, sample_weight).rows
        labeled = judged.targets.sum(1) > 0
        if not bool(labeled.any()):
            raise ValueError("no row of y has a label: pass labeled rows to calibrate")
        net = self.params_.replace(p=self._net_class_weights)
        self.temperature_ = best_temperature([(net, judged.take(labeled))])
        return self

    def with_class_prior(
        self, prior: Mapping[Any, float] | ArrayLike, *, memory_weights: str = "follow"
    ) -> Self:
        """A fitted classifier with other class frequencies and the same memories, not retrained.

        prior: {label: weight} with every class, or weights (C,) in the order of `classes_`; they
        are scaled to sum to 1. The class "none of them" keeps its share.

        memory_weights: "follow", Bayes' rule: probabilities are reweighted by new over old prior,
        and the weights of memories follow. "hold" keeps the weights of memories: p is scaled to
        its new column sums within the polytope of the old row sums, so memories take other soft
        labels. See the user guide for when that is wanted.
        """
        check_is_fitted(self, "params_")
        weights = self._prior_weights(prior)
        p_q = self.params_.p_q.double()
        new = torch.from_numpy(weights / weights.sum()).to(p_q) * p_q[:-1].sum()
        ratio = torch.cat([new / p_q[:-1].clamp_min(1e-300), p_q.new_ones(1)])
        p_q = torch.cat([new, p_q[-1:]])
        other = self._copy_with(with_class_prior(self.params_, p_q, memory_weights))
        # The same change for the weights that classes are read from.
        net = self.params_.replace(p=self._net_class_weights)
        changed = self._net_class_weights.double().sum(0) * ratio
        other._net_class_weights = with_class_prior(net, changed, memory_weights).p
        other.temperature_ = self.temperature_
        return other

    def _prior_weights(self, prior: Mapping[Any, float] | ArrayLike) -> NDArray[np.float64]:
        names = self.classes_.tolist()
        if isinstance(prior, Mapping):
            if sorted(map(str, prior)) != sorted(map(str, names)):
                raise ValueError(
                    f"prior must name every class once, {names}, got {list(prior)}: "
                    "weights are relative, so pass all of them"
                )
            index = as_numpy(self._class_index(np.array(list(prior))))
            weights = np.empty(len(names))
            weights[index] = np.array(list(prior.values()), dtype=np.float64)
        else:
            weights = as_numpy(prior).astype(np.float64)
        if weights.shape != (len(names),) or not (
            np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0
        ):
            raise ValueError(
                f"prior must be {len(names)} finite weights >= 0, not all 0, got {weights.tolist()}"
            )
        return weights

    @classmethod
    def from_parameters(
        cls,
        memories: ArrayLike,
        class_weights: ArrayLike,
        *,
        beta: float,
        varsigma: float = 1.0,
        classes: ArrayLike | None = None,
        normalize: str = "unit",
        mean: ArrayLike | None = None,
        scale: ArrayLike | None = None,
        label_smoothing: float = 0.0,
        temperature: float = 1.0,
    ) -> Self:
        """A fitted classifier out of numbers, such as the attributes of another one.

        memories (P, N) as in `memories_`; class_weights (P+1, C+1) as in `class_weights_`, scaled
        to sum to 1; classes (C,), 0 to C − 1 if None. mean and scale (N,) of the features, with
        normalize="standard". label_smoothing: what the class weights contain of it.
        """
        model: Self = cls(
            len(as_numpy(memories)), beta=beta, varsigma=varsigma, normalize=normalize,
            label_smoothing=label_smoothing,
        )  # fmt: skip
        given = (
            None if v is None else torch.from_numpy(as_numpy(v).astype(np.float64))
            for v in (mean, scale)
        )
        normalizer = Normalizer(normalize, *given)
        given_parameters(model, memories, class_weights, classes, normalizer)
        model.temperature_ = float(temperature)
        model.selection_, model._label_mass = [], model.params_.p_q.clone()
        return model
