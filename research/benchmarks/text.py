"""Text: sections of Debian packages from their descriptions, TF-IDF rows that stay sparse.

Rows are the packages that `apt-cache dumpavail` knows: their descriptions, less their own names, as
words and pairs of words. Packages of one source are all trained on or all held out, so that
nothing leaks.
"""

from __future__ import annotations

import re
import resource
import subprocess
import time
import zlib
from collections.abc import Iterator

import numpy as np

import mnemosphere as mn
from research import report
from research.benchmarks._options import parser

TERMS, SHOWN = 50_000, ("games", "python", "science", "sound", "web")
_LEAST = 200  # packages of a section


def packages() -> Iterator[tuple[str, str, str]]:
    """(source, section, description) of every package."""
    told = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True)
    for entry in told.stdout.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): ?((?:.*)(?:\n .*)*)", entry, re.MULTILINE))
        text = fields.get("Description-en") or fields.get("Description")
        if text is None or "Section" not in fields:
            continue
        name = fields["Package"]
        source = fields.get("Source", name).split()[0]
        # The longest first: what is left of a word does not depend on an order then.
        words = {name, source, *re.split(r"[-+.]", name)} - {""}
        for word in sorted(words, key=lambda word: (-len(word), word)):
            text = re.sub(rf"\b{re.escape(word)}\b", " ", text, flags=re.IGNORECASE)
        yield source, fields["Section"].split("/")[-1], text


def main(argv: list[str]) -> None:
    """Measure, print, store."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB

    made = parser(__doc__, "text")
    made.add_argument("--memories", type=int, default=84)
    made.add_argument("--most", type=int, help="so many packages, for a quick look")
    args = made.parse_args(argv)
    found = list(packages())[: args.most]
    sections, counts = np.unique([section for _, section, _ in found], return_counts=True)
    kept = set(sections[counts >= (_LEAST if args.most is None else 20)].tolist())
    found = [entry for entry in found if entry[1] in kept]
    y = np.array([section for _, section, _ in found])
    # A fifth of the sources, by a checksum of their names.
    test = np.array([zlib.crc32(source.encode()) % 5 == 0 for source, *_ in found])
    texts = np.array([text for *_, text in found], dtype=object)
    vectorizer = TfidfVectorizer(
        max_features=TERMS, sublinear_tf=True, ngram_range=(1, 2), dtype=np.float32
    )
    x, x_test = vectorizer.fit_transform(texts[~test]), vectorizer.transform(texts[test])
    terms = vectorizer.get_feature_names_out()
    ours = {
        objective: mn.DAMClassifier(
            args.memories, normalize="unit", random_state=0, device="cpu", objective=objective
        )
        for objective in ("conditional", "joint")
    }
    others = {
        "logistic regression": LogisticRegression(C=10.0, max_iter=200),
        "multinomial naive Bayes": MultinomialNB(alpha=0.1),
        "nearest centroid": None,  # by cosine, below
    }
    rows = []
    strongest = {}
    for name, model in {**ours, **others}.items():
        began = time.perf_counter()
        if model is None:
            centers = np.stack([np.asarray(x[y[~test] == c].mean(axis=0))[0] for c in sorted(kept)])
            centers /= np.linalg.norm(centers, axis=1, keepdims=True)
            answer = np.array(sorted(kept))[np.asarray(x_test @ centers.T).argmax(axis=1)]
        else:
            answer = model.fit(x, y[~test]).predict(x_test)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append({"model": name, "accuracy": float(np.mean(answer == y[test])),
                     "seconds": time.perf_counter() - began,
                     "resident_megabytes_so_far": peak})  # fmt: skip
        print(rows[-1], flush=True)
        if name == "conditional":
            table = mn.interpret.strongest_features(
                mn.interpret.name_features(model.model_, terms), 8
            )
            share = dict(zip(range(args.memories), model.support_, strict=True))
            for section in SHOWN:
                own = table[table["label"] == section]
                memories = sorted(
                    own["memory"].unique(), key=lambda m: -share[int(m.removeprefix("#"))]
                )[:3]
                strongest[section] = [
                    [term if weight > 0 else f"−{term}" for term, weight in
                     own[own["memory"] == m][["feature", "weight"]].itertuples(index=False)]
                    for m in memories
                ]  # fmt: skip
    content = {
        **report.head(report.command_line(["text", *argv])),
        "packages": len(y), "train": int((~test).sum()), "test": int(test.sum()),
        "sections": len(kept), "terms": len(terms), "entries": int(x.nnz),
        "memories": args.memories,
        "varsigma": {name: model.varsigma_ for name, model in ours.items()},
        "models": rows, "strongest": strongest,
    }  # fmt: skip
    report.write(args.out, content)
