"""Signs that command a terminal, or turn the order of a line, are shown and not obeyed."""

import numpy as np
import pandas as pd

import mnemosphere as mn


def test_what_is_printed_of_strange_names_is_printable():
    rng = np.random.default_rng(0)
    names = ["width\x1b[2J", "\u202ehtgneh", "plain"]
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=names)
    y = np.where(frame["plain"] > 0, "ant\x1b[31m", "bee\u2066\r")
    clf = mn.DAMClassifier(4, search=None, max_iter=3, random_state=0).fit(frame, y)
    for shown in (clf.explain(frame[:2]), clf.counterfactual(frame[:2])):
        for text in (str(shown), shown._repr_html_()):
            assert text.replace("\n", "").isprintable()
            assert r"ant\x1b[31m" in text
            assert r"bee\u2066" in text
