"""Studies of the theory: what they compute, and their pictures.

A function that computes returns a frozen dataclass of plain arrays, or JSON; `draw` returns axes.
"""
