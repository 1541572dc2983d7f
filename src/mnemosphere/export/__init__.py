"""Fitted models handed on: model files, ONNX graphs, a page to play with, a torch layer."""

from mnemosphere.export.module import DAMModule
from mnemosphere.export.onnx_graph import to_onnx
from mnemosphere.export.page import explore

__all__ = ["DAMModule", "explore", "to_onnx"]
