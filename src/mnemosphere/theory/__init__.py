"""Layer 1: the statistical mechanics of the model."""
