"""Layer 4: the tables and figures of the paper."""
