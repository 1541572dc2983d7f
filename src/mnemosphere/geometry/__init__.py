"""How rows get on the sphere, and back."""

from mnemosphere.geometry.base import KINDS, Geometry
from mnemosphere.geometry.circles import Circles
from mnemosphere.geometry.direction import Center, Unit
from mnemosphere.geometry.product import Product
from mnemosphere.geometry.standard import Standard
from mnemosphere.geometry.whitened import Whitened

__all__ = ["KINDS", "Center", "Circles", "Geometry", "Product", "Standard", "Unit", "Whitened"]
