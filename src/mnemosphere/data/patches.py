"""Small square patches of images, for learning local features without labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False, repr=False)
class Patches:
    """Square patches of images as rows, with the places that they were cut from.

    Attributes
    ----------
    x : ndarray of shape (m, size²)
        Pixels of each patch, row by row.
    image : ndarray of int of shape (m,)
        Number of the image.
    row : ndarray of int of shape (m,)
        Row of the top left pixel.
    column : ndarray of int of shape (m,)
        Column of the top left pixel.
    size : int
        Side of a patch in pixels.
    """

    x: NDArray[Any]
    image: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    size: int

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"Patches({len(self)} of {self.size}x{self.size})"


def extract_patches(
    images: ArrayLike,
    size: int = 6,
    stride: int = 2,
    *,
    image_shape: tuple[int, int] | None = None,
    drop_blank: bool = True,
) -> Patches:
    """Cut the square patches whose corners lie on a grid out of images.

    Patches come in order of image, row and column.

    Parameters
    ----------
    images : array-like of shape (n, H, W) or (n, H·W)
        Images.
    size : int, default 6
        Side of a patch in pixels.
    stride : int, default 2
        Pixels from one patch to the next.
    image_shape : (H, W), default None
        Shape of an image, if rows are flat.
    drop_blank : bool, default True
        Leave out patches of one value, which have no direction on the sphere once centered.

    Returns
    -------
    Patches
        The patches and their places.
    """
    stack = _as_stack(np.asarray(images), image_shape)
    _, height, width = stack.shape
    if not 1 <= size <= min(height, width):
        raise ValueError(f"size must be 1 to {min(height, width)} for these images, got {size}")
    if stride < 1:
        raise ValueError(f"stride must be at least 1, got {stride}")

    windows = np.lib.stride_tricks.sliding_window_view(stack, (size, size), axis=(1, 2))
    windows = windows[:, ::stride, ::stride]  # (n, rows, columns, size, size), still a view
    keep = np.full(windows.shape[:3], not drop_blank)
    if drop_blank:
        # One pixel at a time: no copy of all patches, of which many may be dropped.
        for i, j in np.ndindex(size, size):
            keep |= windows[..., i, j] != windows[..., 0, 0]
    image, row, column = np.nonzero(keep)
    return Patches(
        x=windows[keep].reshape(-1, size * size),
        image=image.astype(np.int64),
        row=row.astype(np.int64) * stride,
        column=column.astype(np.int64) * stride,
        size=size,
    )


def _as_stack(images: NDArray[Any], image_shape: tuple[int, int] | None) -> NDArray[Any]:
    """Bring images to (n, H, W)."""
    if images.ndim == 2 and image_shape is not None:
        height, width = image_shape
        if images.shape[1] != height * width:
            raise ValueError(
                f"image_shape {height}x{width} needs rows of {height * width} pixels, "
                f"got {images.shape[1]}"
            )
        return images.reshape(-1, height, width)
    if images.ndim == 2:
        raise ValueError("flat images need image_shape=(rows, columns)")
    if images.ndim != 3:
        raise ValueError(
            f"images must be (n, H, W), or (n, H*W) with image_shape, got shape {images.shape}"
        )
    if image_shape is not None and images.shape[1:] != tuple(image_shape):
        raise ValueError(f"image_shape is {image_shape}, but the images are {images.shape[1:]}")
    return images
