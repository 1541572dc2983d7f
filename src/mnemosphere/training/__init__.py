"""Layer 2: solvers, the training loop, growth, checkpoints."""
