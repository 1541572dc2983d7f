"""The paper measured again, studies of its theory, benchmarks, and the pages made from them.

Not part of the installed package. `python -m research` lists everything there is.
"""
