"""Layer 3: pictures."""
