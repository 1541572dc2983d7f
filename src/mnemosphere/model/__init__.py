"""Mixture, the single pass and its readings, objectives, curvature, recall."""
