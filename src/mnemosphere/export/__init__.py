"""Layer 3: fitted models handed on, as a page to play with, a model card, an ONNX graph."""

from mnemosphere.export.card import model_card
from mnemosphere.export.onnx_graph import to_onnx
from mnemosphere.export.page import write_page

__all__ = ["model_card", "to_onnx", "write_page"]
