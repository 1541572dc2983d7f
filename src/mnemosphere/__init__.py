"""Dense associative memory on the sphere."""
