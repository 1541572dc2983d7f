"""One process of spherical k-means by faiss, which prints the seconds of its iterations.

    python research/benchmarks/_kmeans.py ROWS.npy MEMORIES THREADS ITERATIONS

A process of its own, without torch: two libraries of threads would stand in each other's way.
"""

import json
import sys
from itertools import pairwise

import faiss
import numpy as np

rows = np.load(sys.argv[1])
n_memories, threads, n_iter = map(int, sys.argv[2:])
faiss.omp_set_num_threads(threads)
means = faiss.Kmeans(
    rows.shape[1], n_memories, niter=n_iter, spherical=True, seed=1,
    max_points_per_centroid=len(rows), min_points_per_centroid=1,
)  # fmt: skip
means.train(rows)
times = [0.0, *(each["time"] for each in means.iteration_stats)]  # since the first began
print(json.dumps([after - before for before, after in pairwise(times)]))
