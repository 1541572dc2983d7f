"""Growth, and the tree of splits

Training starts with four memories. Those that are saddles of the loss split in two, level by level.
"""

import mnemosphere as mn
from mnemosphere.plots.fitted import tree_of

data = mn.load_data("digits")
clf = mn.DAMClassifier(
    16,
    growth=4,
    objective="joint",
    varsigma=0.8,
    geometry="center",
    random_state=0,
).fit(data.x_train, data.y_train)

# %%
# Memories at the end of each level:
print([len(level) for level in clf.lineage_.members])
print(f"accuracy {clf.score(data.x_test, data.y_test):.1%}")

# %%
# The tree: four blurred digits at the top, and below each split memory its two copies.
tree_of(clf.model_, data.image_shape).figure.savefig("tree.png")
# Figure: The tree of splits: each memory above its two copies.
