"""Streaming ridge regression: features and sums of a million rows against the symmetric product alone."""

from functools import partial

import numpy as np
import torch
from scipy.linalg.blas import dsyrk, ssyrk
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler

from harness import Contest, convolved
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import RandomFourierFeatures
from rfteach.streaming import StreamingRidge

TITLE = "Ridge regression in one pass over the rows, random features included, NumPy in and out"
BLOCK = 4096  # rows in one update of the limit
CHECKED = 50_000  # rows of the fits whose errors are measured


def settings(quick=False):
    """The sizes to try: samples n, inputs d, features N."""
    many = [dict(n=1500, d=5, N=300)] if quick else [dict(n=100_000, d=20, N=2000), dict(n=1_000_000, d=20, N=2000)]
    return [dict(sizes, dtype=dtype) for sizes in many for dtype in ("float64", "float32")]


def contest(n, d, N, dtype):
    """Sums for n rows; up to 100 000 also as one would take them with scikit-learn and NumPy."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    y = X[:, 0] + rng.standard_normal(n).astype(dtype)
    features = RandomFourierFeatures("gaussian", np.sqrt(d), n_components=N, random_state=0).fit(X)
    peer = RBFSampler(gamma=0.5 / d, n_components=N, random_state=0).fit(X)
    height = 2**24 // (N * X.itemsize)  # rows that a caller hands over at once: 16 MiB of features
    blocks = lambda n: (slice(start, min(start + height, n)) for start in range(0, n, height))

    def handed_over(n):
        model = StreamingRidge(alpha=1.0)
        for rows in blocks(n):
            model.partial_fit(features.transform(X[rows]), y[rows])
        return model.coef_

    def inside(n):
        return RandomFeatureRidge(clone(features), alpha=1.0, solver="gram").fit(X[:n], y[:n]).coef_

    def peers(n):
        G, b = np.zeros((N, N), dtype), np.zeros(N, dtype)
        for rows in blocks(n):
            A = peer.transform(X[rows])
            G += A.T @ A
            b += A.T @ y[rows]
        return np.linalg.solve(G + np.eye(N, dtype=dtype), b)

    update = dsyrk if dtype == "float64" else ssyrk
    A = np.asfortranarray(rng.standard_normal((N, BLOCK)).astype(dtype))
    G = np.zeros((N, N), dtype, order="F")

    def syrk(m):
        update(1.0, A[:, :m], beta=1.0, c=G, overwrite_c=1)

    columns, lower = torch.from_numpy(np.ascontiguousarray(A)), torch.zeros(N, N, dtype=getattr(torch, dtype))

    def strips(m):
        for i in range(0, N, 96):
            lower[i:, i:i + 96].add_(convolved(columns[i:, :m], columns[i:i + 96, :m]))

    rows_of_A, Xt = torch.from_numpy(A.T), torch.from_numpy(X)
    W, phases = (torch.from_numpy(T.astype(dtype)) for T in (features.frequencies_, features.phases_))

    def limit(products, with_features=False):
        for start in range(0, n if with_features else 0, BLOCK):  # first, for threads of torch and SciPy disturb each other
            rows = Xt[start : start + BLOCK]
            torch.addmm(phases, rows, W.T, out=rows_of_A[: len(rows)]).cos_()
        for start in range(0, n, BLOCK):
            products(min(BLOCK, n - start))

    by = {"SciPy": syrk} | ({"oneDNN": strips} if dtype == "float32" else {})
    limits = {f"limit, {name}": partial(limit, products) for name, products in by.items()}
    parts = {f"limit, {name}, and features": partial(limit, products, with_features=True) for name, products in by.items()}

    m = min(n, CHECKED)

    def error(fit, _):
        """Of the fitted values at m rows, relative, against features in float64 and normal equations by NumPy."""
        A, t = (peer if fit is peers else features).transform(X[:m].astype(np.float64)), y[:m].astype(np.float64)
        if fit is not peers:  # ours have an intercept
            A -= A.mean(0)
        exact = A @ np.linalg.solve(A.T @ A + np.eye(N), A.T @ t)
        return np.abs(A @ fit(m) - exact).max() / np.abs(exact).max()

    fits = {"scikit-learn": peers} if n <= 100_000 else {}
    fits |= {"rfteach, features handed over": handed_over, "rfteach, features inside": inside}
    return Contest(
        cases={name: partial(fit, n) for name, fit in fits.items()}
        | limits | parts,
        baseline=next(iter(fits)), limit=tuple(limits), parts=tuple(parts),
        limit_is="SciPy's symmetric update of a Gram matrix by blocks of rows in memory that is already there, or oneDNN's "
                 "products of their columns with strips of 96: half of "
                 "the work of a product, no features, no right-hand side; and with the features, by torch in that memory; "
                 f"the errors are those of fits to {m} rows",
        gemm=(N, BLOCK, N), errors={name: partial(error, fit) for name, fit in fits.items()})
