"""The settings of an estimator as options of `train` and `cluster`, in the order of `--help-all`.

What is allowed is checked by the estimator and its solver.
"""

from dataclasses import dataclass
from typing import Any

from mnemosphere.cli.options import Text, asked, rare


@dataclass
class Training:
    """How both estimators are trained."""

    min_frequency: Text = rare(
        "SHARE",
        "Share of the rows that a level of a category needs for its own column. (default: 0.005)",
    )
    precision: Text = rare(
        "auto|float64|float32",
        "Precision of training; auto: float64 for small data, else float32, bfloat16 on GPUs. (default: auto)",
    )
    device: Text = rare(
        "auto|cpu|cuda", "auto: a GPU if there is one and the data are large. (default: auto)"
    )
    batch_size: Text = rare(
        "N|auto|none",
        "Rows per step; none: all of them. With fixed-point, sgd. (default: auto, 1000 with sgd)",
    )
    half_life: Text = rare(
        "N|none",
        "Rows after which half of the past is forgotten, for streams that drift. With fixed-point. (default: none)",
    )
    tol: Text = rare(
        "NUMBER",
        "Stop if a pass changes the loss by less than this share; 0: never. With fixed-point, sgd. (default: 0.0001)",
    )
    learning_rate: Text = rare("NUMBER", "Rate of the memories and β. With sgd. (default: 0.01)")
    momentum: Text = rare("SHARE", "Share of the last step that is kept. With sgd. (default: 0.99)")
    sweeps: Text = rare(
        "N|none",
        "Sinkhorn–Knopp sweeps per step; none: until class weights add up, ten on a GPU. With sgd. (default: none)",
    )
    validation_fraction: Text = rare(
        "SHARE", "Share of the rows to hold out for early stopping. With sgd. (default: 0.1)"
    )
    patience: Text = rare(
        "N", "Passes without improvement on these rows before stopping. With sgd. (default: 3)"
    )


@dataclass
class ClassTraining(Training):
    """The same with Adam."""

    batch_size: Text = rare(
        "N|auto|none",
        "Rows per step; none: all of them. With fixed-point, sgd, adam. (default: auto, 1000 with sgd and adam)",
    )
    learning_rate: Text = rare(
        "NUMBER",
        "sgd: rate of the memories and β; adam: of class weights and β. With sgd, adam. (default: 0.01)",
    )
    angle: Text = rare("RADIANS", "Largest turn of a memory in one step. With adam. (default: 0.1)")
    noise: Text = rare(
        "NUMBER|auto",
        "Length of the noise on rows, relative to the row. With adam. (default: auto)",
    )


@dataclass
class Classifier:
    """Settings of `DAMClassifier`."""

    memories: Text = asked(
        "N|auto", "Number of memories; auto: as many as predict held-out rows best. (default: auto)"
    )
    objective: Text = asked(
        "auto|joint|conditional",
        "auto: by held-out rows; joint: memories look like typical rows; conditional: trained for accuracy. (default: auto)",
    )
    geometry: Text = asked(
        "auto|center|unit|standard|whitened|circles|none",
        "How rows are put on the sphere; auto: by held-out rows. (default: auto)",
    )
    growth: Text = rare(
        "N|none", "Memories to start with; those that are saddles are split. (default: none)"
    )
    varsigma: Text = rare(
        "NUMBER|auto", "Regularizer ς of the joint likelihood, in (0, 1]; 1: none. (default: auto)"
    )
    beta: Text = rare(
        "learn|NUMBER", "Inverse temperature; a number is held fixed. (default: learn)"
    )
    solver: Text = rare(
        "auto|fixed-point|sgd|adam",
        "auto: fixed-point for the joint likelihood, adam for the conditional one. (default: auto)",
    )
    search: Text = rare(
        "auto|none", "none: no search, plain defaults for settings that are auto. (default: auto)"
    )
    max_iter: Text = rare(
        "N|none", "Passes over the data; none: the solver's usual number. (default: none)"
    )
    label_smoothing: Text = rare(
        "SHARE", "Share of each label that is spread over all classes. (default: 0.1)"
    )
    uniform_weight: Text = rare(
        "NUMBER|auto", "Weight of the uniform component relative to a memory. (default: auto)"
    )
    class_weight: Text = rare(
        "none|balanced|LABEL=NUMBER,…", "Weights of the classes. (default: none)"
    )


@dataclass
class Clusterer:
    """Settings of `DAMClusterer`."""

    clusters: Text = asked(
        "N|auto",
        "Number of clusters; auto: by how well two random halves of the rows agree. (default: auto)",
    )
    memories: Text = asked(
        "N|auto", "Number of memories; auto: one or eight per cluster. (default: auto)"
    )
    geometry: Text = asked(
        "auto|center|unit|standard|circles|none",
        "How rows are put on the sphere; auto: as two halves of the rows agree best. (default: auto)",
    )
    growth: Text = rare(
        "N|none", "Memories to start with; those that are saddles are split. (default: none)"
    )
    varsigma: Text = rare(
        "NUMBER",
        "Regularizer ς, in (0, 1]; 1: the plain likelihood, which BIC needs. (default: 1.0)",
    )
    beta: Text = rare(
        "learn|NUMBER", "Inverse temperature; a number is held fixed. (default: learn)"
    )
    smoothing: Text = rare("SHARE", "How soft the clusters of memories stay. (default: 0.1)")
    solver: Text = rare(
        "fixed-point|sgd", "sgd: the paper's constrained SGD with momentum. (default: fixed-point)"
    )
    max_iter: Text = rare(
        "N|none",
        "Passes for the memories, and again for the clusters; none: the usual number. (default: none)",
    )
    uniform_weight: Text = rare(
        "NUMBER", "Weight of the uniform component relative to a memory. (default: 1.0)"
    )


def typed(*groups: Any) -> dict[str, str]:
    """The settings that were typed."""
    given = {key: value for group in groups for key, value in vars(group).items()}
    return {key: value for key, value in given.items() if value is not None}
