"""Gram matrices of the Gaussian kernel: `rfteach.kernels.Gaussian` and scikit-learn's `rbf_kernel`."""

import math

import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import rbf_kernel

from harness import Contest, convolved, warm
from rfteach.kernels import Gaussian

TITLE = "Gram matrix of the Gaussian kernel against scikit-learn's rbf_kernel, NumPy in and out"


def settings(quick=False):
    """The sizes to try: n samples of d inputs; k(X), symmetric, and k(X, Y)."""
    sizes = [dict(n=200, d=5)] if quick else [dict(n=5000, d=100), dict(n=5000, d=784)]
    return [dict(size, call=call, dtype=dtype)
            for size in sizes for call in ("k(X)", "k(X, Y)") for dtype in ("float64", "float32")]


def contest(n, d, call, dtype):
    """Both kernels on the same data, which holds a row twice."""
    rng = np.random.default_rng(0)
    X, Y = (rng.standard_normal((n, d)).astype(dtype) for _ in range(2))
    X[1] = Y[1] = Y[0] = X[0]
    Y = None if call == "k(X)" else Y
    bandwidth = math.sqrt(d)
    k, gamma = Gaussian(bandwidth), 0.5 / bandwidth**2

    A = torch.from_numpy(X / bandwidth)
    B = A if Y is None else torch.from_numpy(Y / bandwidth)
    out = warm((n, n), dtype)

    def limit_torch():
        for i in range(0, n, 256):
            first = i if Y is None else 0
            torch.mm(A[i:i + 256], B[first:].T, out=out[i:i + 256, first:]).exp2_()
        return out

    def limit_numpy():
        np.dot(A.numpy(), B.numpy().T, out=out.numpy())  # half the work, too, if both are the same
        return out.exp2_()

    def limit_onednn():
        for i in range(0, n, 512):
            first = i if Y is None else 0
            torch.exp2(convolved(A[i:i + 512], B[first:]), out=out[i:i + 512, first:])
        return out

    limits = {"limit, torch": limit_torch, "limit, NumPy": limit_numpy}
    limits |= {"limit, oneDNN": limit_onednn} if dtype == "float32" else {}

    def error(K):
        right = X if Y is None else Y
        s2 = cdist(X[:100].astype(np.float64), right.astype(np.float64), "sqeuclidean")
        return np.abs(K[:100] - np.exp(-gamma * s2)).max()

    half = "the upper half, diagonal included, of " if Y is None else ""
    return Contest(
        cases={"scikit-learn": lambda: rbf_kernel(X, Y, gamma=gamma), "rfteach": lambda: k(X, Y)} | limits,
        baseline="scikit-learn", limit=tuple(limits),
        limit_is=f"{half}the product and an exponential, the faster one to base two, into memory that is already "
                 "there; by torch in blocks of 256 rows, by oneDNN in blocks of 512, or the whole product by NumPy",
        gemm=(n, d, n), errors={"scikit-learn": error, "rfteach": error})
