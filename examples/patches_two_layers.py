"""Two layers: memories of patches, then of images

`PatchEncoder` learns memories of small patches without labels. The classifier on top sees how much
of each patch memory there is in each cell of a coarse grid.
"""

from sklearn.pipeline import make_pipeline

import mnemosphere as mn

data = mn.load_data("digits")
settings = {"objective": "conditional", "random_state": 0}
pixels = mn.DAMClassifier(40, geometry="center", **settings).fit(
    data.x_train, data.y_train
)
layers = make_pipeline(
    mn.PatchEncoder(data.image_shape, patch=4, n_memories=32, random_state=0),
    mn.DAMClassifier(40, geometry="unit", **settings),
).fit(data.x_train, data.y_train)
print(f"pixels: {pixels.score(data.x_test, data.y_test):.1%}")
print(f"two layers: {layers.score(data.x_test, data.y_test):.1%}")

# %%
# The memories of the first layer are strokes:
ax = mn.plots.memories(
    layers[0].patch_memories_[0],
    (4, 4),
    indices=range(32),
    ncols=16,
    title="32 memories of patches: strokes, edges and dots",
)
ax.figure.savefig("strokes.png")

# %%
# Which memories of the second layer decide about an image, and where they agree with it:
k = layers.predict_proba(data.x_test).max(1).argmin()
why = mn.explain_images(layers, data.x_test[k : k + 1], n_nearest=3)
why.plot(truth=data.y_test[k]).savefig("agreement.png")
