"""Fitted models handed on: model files, ONNX graphs, a page to play with, a torch layer."""

from mnemosphere.export.module import DAMModule
from mnemosphere.export.onnx_graph import register_converter, to_onnx
from mnemosphere.export.page import Page, explore

__all__ = ["DAMModule", "Page", "explore", "register_converter", "to_onnx"]
