"""Pictures. Arrays in, axes or figures out; no global state of matplotlib is touched."""

from mnemosphere.base.machine import import_extra

import_extra("matplotlib")  # says how to install it

from mnemosphere.plots.columns import column_curves, importance  # noqa: E402
from mnemosphere.plots.functions import memory_curves  # noqa: E402
from mnemosphere.plots.gallery import memories  # noqa: E402
from mnemosphere.plots.output import save  # noqa: E402
from mnemosphere.plots.recall import recall_strips  # noqa: E402
from mnemosphere.plots.style import figure_style  # noqa: E402

__all__ = [
    "column_curves", "figure_style", "importance", "memories", "memory_curves",
    "recall_strips", "save",
]  # fmt: skip
