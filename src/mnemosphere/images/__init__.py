"""Images as soft counts of patch memories."""

from mnemosphere.images.encoder import PatchEncoder

__all__ = ["PatchEncoder"]
