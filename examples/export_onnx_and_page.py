"""One model as a file, an ONNX graph and a page

Each of the three gives the same answers.
"""

from pathlib import Path

import numpy as np
import onnxruntime  # pip install '.[onnx]'
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import mnemosphere as mn

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
y = y.map({0: "malignant", 1: "benign"})
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
clf = mn.DAMClassifier(random_state=0).fit(X, y)
print(f"{clf.n_memories_} memories, accuracy {clf.score(X_test, y_test):.3f}")

# %%
# A model file holds numbers and names, no code. It is checked when it is read.
clf.save("model.safetensors")
same = mn.load("model.safetensors")
print(
    "same answers:",
    (same.predict_proba(X_test) == clf.predict_proba(X_test)).all(),
)

# %%
# An ONNX graph takes raw rows: the geometry is part of it.
mn.to_onnx(clf, "model.onnx")
session = onnxruntime.InferenceSession("model.onnx")
labels, probabilities, *more = session.run(None, {"rows": X_test.to_numpy(np.float64)})
difference = np.abs(probabilities - clf.predict_proba(X_test)).max()
print("same answers:", difference < 1e-5)

# %%
# A page is one HTML file in which the model runs.
clf.explore("page.html", X_test, y_test)
for path in sorted(Path().glob("*.*")):
    print(f"{path.name:20s} {path.stat().st_size // 1000:4d} kB")
