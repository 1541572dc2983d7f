"""Functions of a fitted model, and of rows: reasons, counterfactuals, memories, edits, recall."""

from mnemosphere.fitted.exemplars import name_rows
from mnemosphere.fitted.pulls import Pull
from mnemosphere.interpret.certify import Certificate, certify
from mnemosphere.interpret.classes import add_class, add_examples, map_classes
from mnemosphere.interpret.counterfactual import ColumnChange, Counterfactual, counterfactual
from mnemosphere.interpret.drift import Drift, compare
from mnemosphere.interpret.editing import relabel_memory, with_class_prior
from mnemosphere.interpret.explanation import Explanation, Reason, SimilarRow, explain
from mnemosphere.interpret.memory_table import memory_table, weak_spots
from mnemosphere.interpret.radius import CertifiedRadius, certified_radius
from mnemosphere.interpret.recall import RecallPath, decode, encode, recall, sample, score_samples
from mnemosphere.interpret.rejection import (
    Rejections,
    accuracy_threshold,
    calibrate,
    predict_set,
    rejection_score,
    rejection_threshold,
    rejections,
)

__all__ = [
    "Certificate", "CertifiedRadius", "ColumnChange", "Counterfactual",
    "Drift", "Explanation", "Pull", "Reason", "RecallPath",
    "Rejections", "SimilarRow", "accuracy_threshold", "add_class", "add_examples", "calibrate",
    "certified_radius", "certify", "compare", "counterfactual",
    "decode", "encode", "explain", "map_classes",
    "memory_table", "name_rows", "predict_set", "recall",
    "rejection_score", "rejection_threshold", "rejections", "relabel_memory", "sample",
    "score_samples", "weak_spots", "with_class_prior",
]  # fmt: skip
