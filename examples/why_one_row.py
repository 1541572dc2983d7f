"""Why one row got its class, and what would change it

A prediction is a vote of memories. Here: the vote on one wine, a change of few columns that leads to
another class, and how far the wine may move before its class can change at all.
"""

from sklearn.datasets import load_wine

import mnemosphere as mn

wine = load_wine(as_frame=True)
wines, kinds = wine.data, wine.target_names[wine.target]
clf = mn.DAMClassifier(objective="joint", random_state=0).fit(wines[::2], kinds[::2])
row = wines[69:70]
why = clf.explain(row)
print(why)

# %%
# The same as a picture. The page on interpretability tells how to read both.
why.plot(truth=kinds[69]).savefig("why.png")

# %%
# A change of few columns that changes the class; alcohol stays, and magnesium must not fall:
other = clf.counterfactual(row, fixed=["alcohol"], only_rise=["magnesium"])
print(other)
print("predicted for the changed row:", clf.predict(other.rows)[0])

# %%
# A certificate bounds the distance from below, the counterfactual from above.
proven = clf.certified_radius(row)
print(proven.sentence(0, away=clf.counterfactual(row).length(0)))
