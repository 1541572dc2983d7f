"""Memories of handwritten digits, as pictures

A memory has as many numbers as a row, so memories of images are images.
"""

import mnemosphere as mn
from mnemosphere.plots.fitted import memories_of

data = mn.load_data("digits")  # 8×8 pixels, from scikit-learn
clf = mn.DAMClassifier(
    n_memories=30,
    objective="joint",
    varsigma=0.8,
    geometry="center",
    random_state=0,
).fit(data.x_train, data.y_train)
print(
    f"{clf.score(data.x_test, data.y_test):.1%} of {len(data.y_test)} held-out digits are right"
)

# %%
# Each memory with its number and the class it votes for: red where a pixel is brighter than the mean
# of the image, blue where it is darker.
memories_of(clf.model_, data.image_shape, count=20).savefig("memories.png")

# %%
# A digit on which the model is least sure, and the memories that vote on it:
k = clf.predict_proba(data.x_test).max(1).argmin()
why = clf.explain(data.x_test[k : k + 1], n_nearest=4)
why.plot(image_shape=data.image_shape, truth=data.y_test[k]).savefig("doubt.png")
print(why)
