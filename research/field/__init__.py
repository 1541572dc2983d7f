"""Ours and the peers on small real data sets: what is measured, on what, and how it is scored."""
