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
# Every level is a model of its own, so one fit shows how many memories are worth having:
for level in range(clf.lineage_.n_levels):
    smaller = mn.as_estimator(mn.interpret.at_level(clf.model_, level))
    print(
        f"{smaller.n_memories_:3d} memories: {smaller.score(data.x_test, data.y_test):.1%}"
    )

# %%
# The tree: four blurred digits at the top, and below each split memory its two copies.
tree_of(clf.model_, data.image_shape).figure.savefig("tree.png")
# Figure: The tree of splits: each memory above its two copies.

# %%
# `shrink` goes the other way: it merges memories whose removal costs least on the rows you pass.
small = mn.as_estimator(
    mn.interpret.shrink(clf.model_, data.x_train, data.y_train, n_memories=10)
)
print(f"{small.n_memories_:3d} memories: {small.score(data.x_test, data.y_test):.1%}")
