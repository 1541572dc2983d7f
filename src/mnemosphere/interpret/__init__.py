"""Functions of a fitted model and rows that say why a prediction is what it is."""
