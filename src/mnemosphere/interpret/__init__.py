"""Functions of a fitted model, and of rows: reasons, counterfactuals, memories, edits, recall."""

from mnemosphere.fitted.exemplars import name_features, name_rows
from mnemosphere.fitted.pulls import Pull
from mnemosphere.interpret.certify import Certificate, certify
from mnemosphere.interpret.classes import (
    add_class,
    add_examples,
    merge_classes,
    remove_class,
    remove_examples,
    rename_class,
)
from mnemosphere.interpret.counterfactual import ColumnChange, Counterfactual, counterfactual
from mnemosphere.interpret.decision import DecisionSummary, decision_summary
from mnemosphere.interpret.density import novelty, score_samples
from mnemosphere.interpret.discovery import ProposedClass, discover
from mnemosphere.interpret.editing import (
    at_level,
    relabel_memory,
    shrink,
    with_class_prior,
    without_memories,
)
from mnemosphere.interpret.evaluation import ClassificationReport, classification_report, evaluate
from mnemosphere.interpret.explanation import Explanation, Reason, explain
from mnemosphere.interpret.memory_table import memory_table, strongest_features
from mnemosphere.interpret.radius import CertifiedRadius, certified_radius
from mnemosphere.interpret.recall import RecallPath, decode, encode, recall, recall_path, sample
from mnemosphere.interpret.records import Drift, compare, record_of, weak_spots
from mnemosphere.interpret.rejection import (
    Rejections,
    accuracy_threshold,
    calibrate,
    is_novel,
    predict_set,
    rejection_score,
    rejection_threshold,
    rejections,
)

__all__ = [
    "Certificate", "CertifiedRadius", "ClassificationReport", "ColumnChange", "Counterfactual",
    "DecisionSummary", "Drift", "Explanation", "ProposedClass", "Pull",
    "Reason", "RecallPath", "Rejections", "accuracy_threshold", "add_class", "add_examples",
    "at_level", "calibrate", "certified_radius", "certify", "classification_report", "compare",
    "counterfactual", "decision_summary", "decode", "discover", "encode", "evaluate", "explain",
    "is_novel", "memory_table", "merge_classes",
    "name_features", "name_rows", "novelty", "predict_set", "recall", "recall_path", "record_of",
    "rejection_score", "rejection_threshold", "rejections", "relabel_memory", "remove_class",
    "remove_examples", "rename_class", "sample", "score_samples", "shrink", "strongest_features",
    "weak_spots", "with_class_prior", "without_memories",
]  # fmt: skip
