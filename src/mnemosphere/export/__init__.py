"""Layer 3: fitted models handed on, as a page to play with, a model card, an ONNX graph."""



from mnemosphere.export.page import write_page

__all__ = ["write_page"]
