"""The median heuristic: `median_bandwidth` and NumPy's median of SciPy's pairwise distances."""

import math

import numpy as np
import torch
from scipy.spatial.distance import pdist

from harness import Contest, warm
from rfteach.bandwidth import median_bandwidth

TITLE = "Median distance over all pairs, against numpy.median(scipy.spatial.distance.pdist(X))"


def settings(quick=False):
    """The sizes to try: points n, inputs d."""
    sizes = dict(n=400, d=5) if quick else dict(n=20_000, d=20)
    return [dict(sizes, dtype=dtype) for dtype in ("float64", "float32")]


def contest(n, d, dtype):
    """All pairs by both, a sample of pairs, and the products of the upper triangle alone.

    Numbers come as `numpy.float64`, so that a result has a size in bytes.
    """
    X = np.random.default_rng(0).standard_normal((n, d)).astype(dtype)
    exact = []  # the baseline's result, once somebody needs it

    def error(value):
        if not exact:
            exact.append(np.median(pdist(X)))
        return abs(value - exact[0])

    T = torch.from_numpy(X)
    strips = warm((2**23 // X.itemsize,), dtype)

    def limit(height):
        width = len(strips) // height
        for i in range(0, n, height):
            for j in range(i, n, width):
                a, b = T[i : i + height], T[j : j + width]
                torch.mm(a, b.T, out=strips[: len(a) * len(b)].view(len(a), len(b)))
        return np.float64(0)

    square = math.isqrt(len(strips))
    return Contest(
        cases={"pdist + np.median": lambda: np.median(pdist(X)),
               "rfteach exact": lambda: np.float64(median_bandwidth(X, method="exact")),
               "rfteach subsample": lambda: np.float64(median_bandwidth(X, method="subsample")),
               "limit, 512 rows": lambda: limit(512), "limit, square": lambda: limit(square)},
        baseline="pdist + np.median", limit=("limit, 512 rows", "limit, square"),
        limit_is="scalar products of the pairs above the diagonal, by torch in strips of 8 MiB of memory that is "
                 "already there",
        gemm=(min(n, square), d, min(n, square)),
        errors={"rfteach exact": error, "rfteach subsample": error})
