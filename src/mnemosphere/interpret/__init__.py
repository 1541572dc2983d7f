"""Functions of a fitted model, and of rows: reasons, counterfactuals, memories, edits, recall."""

from mnemosphere.interpret.certified import CertifiedRadius, certified_radius
from mnemosphere.interpret.certify import Certificate, certify
from mnemosphere.interpret.counterfactual import Counterfactual, counterfactual
from mnemosphere.interpret.decision import DecisionSummary, decision_summary
from mnemosphere.interpret.density import is_novel, novelty, rejection_threshold, score_samples
from mnemosphere.interpret.editing import (
    at_level,
    from_parameters,
    relabel_memory,
    shrink,
    with_class_prior,
    with_memories,
    without_memories,
)
from mnemosphere.interpret.evaluation import evaluate
from mnemosphere.interpret.exemplars import (
    memory_table,
    name_features,
    name_rows,
    relevances,
    strongest_features,
    strongest_pairs,
)
from mnemosphere.interpret.explanation import Explanation, Reason, explain
from mnemosphere.interpret.feature_contributions import FeatureContributions
from mnemosphere.interpret.images import ImageExplanation, explain_images, memory_pictures
from mnemosphere.interpret.recall import RecallPath, decode, encode, recall, recall_path, sample

__all__ = [
    "Certificate",
    "CertifiedRadius",
    "Counterfactual",
    "DecisionSummary",
    "Explanation",
    "FeatureContributions",
    "ImageExplanation",
    "Reason",
    "RecallPath",
    "at_level",
    "certified_radius",
    "certify",
    "counterfactual",
    "decision_summary",
    "decode",
    "encode",
    "evaluate",
    "explain",
    "explain_images",
    "from_parameters",
    "is_novel",
    "memory_pictures",
    "memory_table",
    "name_features",
    "name_rows",
    "novelty",
    "recall",
    "recall_path",
    "rejection_threshold",
    "relabel_memory",
    "relevances",
    "sample",
    "score_samples",
    "shrink",
    "strongest_features",
    "strongest_pairs",
    "with_class_prior",
    "with_memories",
    "without_memories",
]
