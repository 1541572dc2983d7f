"""Layer 1: the model, the single pass over data, objectives, curvature."""
