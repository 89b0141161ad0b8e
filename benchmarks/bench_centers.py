"""Centres by randomly pivoted Cholesky: pivots in rounds, by rejection, and one pivot at a time."""

import math
from functools import partial

import numpy as np
import torch

from harness import Contest, warm
from rfteach.kernels import Gaussian
from rfteach.rbf import rpcholesky

TITLE = "Pivots of randomly pivoted Cholesky with their factor, in rounds and one by one, float64 and float32"


def settings(quick=False):
    """The sizes to try: n rows of d inputs, m pivots."""
    sizes = [dict(n=300, d=5, m=20)] if quick else [dict(n=20_000, d=10, m=500)]
    return [dict(size, dtype=dtype) for size in sizes for dtype in ("float64", "float32")]


def one_by_one(kernel, X, m, rng):
    """Equation (5.8) one pivot after the other: a product of F with a vector for each."""
    n, tolerance, pivots = len(X), 100 * torch.finfo(X.dtype).eps, []
    delta, F = X.new_ones(n), torch.from_numpy(np.empty((m, n), str(X.dtype).removeprefix("torch.")))
    while len(pivots) < m and delta.max() > tolerance:
        total = delta.cumsum(0, dtype=torch.float64)
        p = min(int(torch.searchsorted(total, rng.random() * total[-1], right=True)), n - 1)
        g, j = kernel.gram(X, X[p:p + 1])[:, 0], len(pivots)
        if j:
            g.addmv_(F[:j].T, F[:j, p], alpha=-1)
        if g[p] > tolerance:
            torch.div(g, g[p].sqrt(), out=F[j])
            delta.addcmul_(F[j], F[j], value=-1).clamp_(min=0)
            pivots.append(p)
        delta[p] = 0
    return pivots, F[:len(pivots)].T


def contest(n, d, m, dtype):
    """Both ways on normal rows, with the Gaussian whose bandwidth is their median distance, about √(2d)."""
    X = torch.from_numpy(np.random.default_rng(0).standard_normal((n, d)).astype(dtype))
    k, block = Gaussian(math.sqrt(2 * d)), 100
    F, U, pivots = warm((m, n), dtype), X[:m], {}
    left, product = warm((block, m), dtype), warm((block, 2000), dtype)

    def factor(way):
        pivots[way], result = way(k, X, m, np.random.default_rng(0))
        return result

    def limit():
        tile = k.tile(U, X)
        for i in range(0, m, block):
            new = slice(i, min(i + block, m))
            both = left[:new.stop - i, :new.stop].copy_(F[new, :new.stop])
            for j in range(0, n, 2000):
                rows = slice(j, min(j + 2000, n))
                tile(new, rows, F[new, rows])
                F[new, rows] = torch.mm(both, F[:new.stop, rows], out=product[:len(both), :rows.stop - j])
        return F

    def error(way, result):
        right, F = k(X.double().numpy(), X[pivots[way]].double().numpy()), result.double().numpy()
        return float(np.abs(F @ F[pivots[way]].T - right).max())

    return Contest(
        cases={"one by one": lambda: factor(one_by_one), "rfteach": lambda: factor(rpcholesky), "limit": limit},
        baseline="one by one", limit=("limit",),
        limit_is="the kernel's columns and the products of F with 100 columns at a time, on memory that is already "
                 "there and for rows that are known before",
        gemm=(block, m // 2, n), errors={"one by one": partial(error, one_by_one), "rfteach": partial(error, rpcholesky)})
