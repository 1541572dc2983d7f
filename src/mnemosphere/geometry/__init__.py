"""How rows get on the sphere, and back."""
