"""Clusters, and how many there are

Chemical analyses of 178 wines of three cultivars. The model does not see the cultivars: it takes
the number of clusters with the highest silhouette.
"""

import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

import mnemosphere as mn

wines, cultivar = load_wine(return_X_y=True, as_frame=True)
clusters = mn.DAMClusterer(random_state=0).fit(wines)
print(pd.crosstab(cultivar, pd.Series(clusters.labels_, name="cluster")))
print(f"adjusted Rand index {adjusted_rand_score(cultivar, clusters.labels_):.2f}")

# %%
# The search: the silhouette by number of clusters, and what the best has over a single cloud.
print(clusters.search_)

# %%
# Two of the 13 features, by cluster. Crosses mark rows whose cluster is less than 90% sure.
with mn.plots.figure_style():
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    ax = figure.subplots()
    x, y = wines["flavanoids"], wines["color_intensity"]
    for k in range(clusters.n_clusters_):
        rows = clusters.labels_ == k
        ax.scatter(
            x[rows],
            y[rows],
            marker="osD^"[k % 4],
            label=f"cluster {k}: {rows.sum()} rows",
        )
    doubt = clusters.predict_proba(wines).max(1) < 0.9
    ax.scatter(
        x[doubt],
        y[doubt],
        marker="x",
        s=70,
        color="black",
        label="less than 90% sure",
    )
    ax.set(xlabel="flavanoids", ylabel="color intensity")
    ax.set_title("clusters of wines; doubtful rows lie between them")
    ax.legend()
    figure.savefig("clusters.png")
    # Figure: Two of the 13 columns, by cluster. Crosses: rows whose cluster is less than 90% sure.
