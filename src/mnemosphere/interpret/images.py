"""Why an image got its class: memories of images as pictures, and where they agree with it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.images.encoder import FittedEncoder, as_plane, two_layers, wide
from mnemosphere.interpret.explanation import Explanation, explain

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_ROUNDS = 20  # of sharpening a picture


@dataclass(frozen=True)
class ImageExplanation(Explanation):
    """An `Explanation` of images, with pictures of the memories and where they agree with the image.

    `rows` are the images and `memories` pictures of the memories. An overlap ⟨w, x⟩ is a sum over soft
    counts, so over the cells that they were counted in, so over the image: `agreement` and `elsewhere`
    add up to `overlap`. All other attributes and methods are those of `Explanation`.

    Attributes
    ----------
    images : ndarray of shape (n, pixels)
        The images.
    pictures : ndarray of shape (m, pixels)
        Each of the memories once, as a picture.
    image_shape : tuple of int
        Shape of an image.
    agreement : ndarray of shape (n, k, rows, columns)
        Part of the overlap on each pixel.
    cells : tuple of ndarrays of shape (n, k, down, across)
        Part of the overlap in each cell, for each size of patches.
    elsewhere : ndarray of shape (n, k)
        Part of the coordinate that geometry="standard" and "whitened" append; else 0.

    Examples
    --------
    >>> why = mn.explain_images(pipeline, digits[:2])
    >>> np.allclose(why.agreement.sum((2, 3)) + why.elsewhere, why.overlap)
    True
    """

    images: NDArray[Any]
    pictures: NDArray[Any]
    image_shape: tuple[int, ...]
    agreement: NDArray[Any]
    cells: tuple[NDArray[Any], ...]
    elsewhere: NDArray[Any]

    @property
    def rows(self) -> NDArray[Any]:
        """The images, ndarray of shape (n, pixels)."""
        return self.images

    @property
    def memories(self) -> NDArray[Any]:
        """The memories of each row as pictures, ndarray of shape (n, k, pixels)."""
        _, place = np.unique(self.memory, return_inverse=True)
        return self.pictures[place.reshape(self.memory.shape)]

    def plot(
        self,
        row: int = 0,
        *,
        image_shape: tuple[int, ...] | None = None,
        truth: object = None,
        figure: Figure | SubFigure | None = None,
    ) -> Figure | SubFigure:
        """Draw one row as `Explanation.plot` does, and below each memory where it agrees with the image.

        Parameters
        ----------
        row : int, default 0
            Number of the row.
        image_shape : (rows, columns) or (rows, columns, 3), default None
            How a row is an image; None: as the encoder has it.
        truth : object, default None
            The true class, shown next to the predicted one.
        figure : matplotlib Figure or SubFigure, default None
            Where to draw; None: a new figure.

        Returns
        -------
        matplotlib Figure or SubFigure
            The figure.

        Examples
        --------
        >>> mn.explain_images(pipeline, digits[:1]).plot()
        <Figure ...>
        """
        from mnemosphere.plots.agreement import agreement_figure

        shape = self.image_shape if image_shape is None else image_shape
        return agreement_figure(
            lambda part: Explanation.plot(
                self, row, image_shape=_drawn(shape), truth=truth, figure=part
            ),
            self.rows[row],
            self.agreement[row],
            self.overlap[row],
            _drawn(shape),
            figure=figure,
        )


def explain_images(pipeline: Pipeline, X: Any, n_nearest: int = 5) -> ImageExplanation:
    """Explain the predictions of a pipeline of a `PatchEncoder` and a `DAMClassifier`.

    Parameters
    ----------
    pipeline : sklearn.pipeline.Pipeline
        A fitted encoder and a fitted classifier.
    X : array-like of shape (n, pixels) or (n, *image_shape)
        Images.
    n_nearest : int, default 5
        Memories to show.

    Returns
    -------
    ImageExplanation
        Pictures of the memories and where they agree with the image.

    Examples
    --------
    >>> mn.explain_images(pipeline, digits[:2], n_nearest=3).agreement.shape
    (2, 3, 8, 8)
    """
    encoder, model = two_layers(pipeline)
    if not model.is_classifier:
        raise TypeError(f"a {model.kind} decides about no classes: use DAMClassifier")
    images = encoder.stored(X)
    features = encoder.encode(images, torch.empty(images.n_rows, encoder.n_out, dtype=wide(X)))
    found = explain(model, features, n_nearest)
    geometry, given = model.geometry, model.completed(features).values
    v, length = geometry.parts(given)
    w = geometry.pull_back(model.votes.w)[torch.from_numpy(found.memory).to(v.device)]
    terms, elsewhere = geometry.per_feature((v / length)[:, None] * w)  # (n, k, N'), (n, k)
    cells = encoder.sum_cells(terms)
    rows, columns, _ = as_plane(encoder.image_shape)
    pixels = encoder.spread_cells(cells).reshape(*found.memory.shape, rows, columns)
    grids = [
        part.reshape(*found.memory.shape, *layer.grid)
        for part, layer in zip(cells, encoder.layers, strict=True)
    ]
    known = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    known["overlap"] = as_numpy(terms.sum(-1) + elsewhere)
    return ImageExplanation(
        **known,
        images=as_numpy(X).reshape(len(found), -1).astype(np.float64),
        pictures=_pictures(encoder, model, np.unique(found.memory)),
        image_shape=encoder.image_shape,
        agreement=as_numpy(pixels),
        cells=tuple(as_numpy(grid) for grid in grids),
        elsewhere=as_numpy(elsewhere),
    )


def memory_pictures(pipeline: Pipeline) -> NDArray[Any]:
    """Draw every memory of a pipeline of a `PatchEncoder` and an estimator as a picture.

    Parameters
    ----------
    pipeline : sklearn.pipeline.Pipeline
        A fitted encoder and a fitted classifier or clusterer.

    Returns
    -------
    ndarray of shape (P, pixels)
        Pictures.

    Examples
    --------
    >>> mn.memory_pictures(pipeline).shape
    (20, 64)
    """
    encoder, model = two_layers(pipeline)
    return _pictures(encoder, model, np.arange(model.n_memories))


def _pictures(encoder: FittedEncoder, model: FittedModel, memory: NDArray[Any]) -> NDArray[Any]:
    """Pictures (m, pixels) of these memories."""
    return as_numpy(encoder.pictures(model.memories[memory], _ROUNDS))


def _drawn(image_shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape for a plot, which knows gray and color images; anything else is drawn as a line."""
    if len(image_shape) == 3 and image_shape[2] == 1:
        return image_shape[:2]
    known = len(image_shape) == 2 or (len(image_shape) == 3 and image_shape[2] == 3)
    return image_shape if known else None
