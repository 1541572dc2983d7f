"""One color per class, the same in plots, notebooks and pages."""

from __future__ import annotations

from colorsys import hls_to_rgb

# Okabe and Ito's palette, distinct with any common color vision; brown for yellow, which is faint on white.
BASIC = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#7F4F1E")
_FURTHER = ("#882255", "#999933", "#332288")  # wine, olive, indigo
_GOLDEN = 0.618034  # of a circle: hues that follow each other differ most


def category_colors(n: int) -> list[str]:
    """Colors of n categories, no two alike; the color of a category does not depend on n."""
    fixed = (*BASIC, *_FURTHER)
    more = (hls_to_rgb(_GOLDEN * k % 1, 0.35 + 0.1 * (k % 3), 0.6) for k in range(n - len(fixed)))
    made = ("#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in more)
    return [*fixed[:n], *made]
