"""Sparse polynomial chaos, kernel PCA and learned sets: a path against refits, components and errors against scikit-learn's."""

from unittest.mock import patch

import numpy as np
import torch
from numpy.polynomial.legendre import legvander
from sklearn.datasets import make_friedman1
from sklearn.decomposition import KernelPCA
from sklearn.ensemble import HistGradientBoostingRegressor

from harness import Contest, warm
from rfteach import waves
from rfteach.adaptive import AdaptiveFeatureRegressor
from rfteach.chaos import legendre_basis, loo_path, multi_indices
from rfteach.kpca import AnisotropicKernelPCA

TITLE = ("Supports with their leave-one-out errors against least squares on each support; a Legendre basis against "
         "NumPy's; leading eigenvectors of kernel PCA against scikit-learn's; learned sets on Friedman's function")


def settings(quick=False):
    """The sizes to try: rows n, inputs d, degrees in one and two inputs, terms k, components m."""
    path = dict(n=60, d=4, degree=5, pairs=3, k=10) if quick else dict(n=800, d=20, degree=14, pairs=6, k=100)
    basis = {name: path[name] for name in ("n", "d", "degree", "pairs")}
    pca = dict(n=80, m=3) if quick else dict(n=800, m=8)
    jobs = [dict(job=job, **sizes, dtype=dtype) for dtype in ("float64", "float32")
            for job, sizes in (("path", path), ("basis", basis), ("eigenvectors", pca))]
    return [*jobs, dict(job="learned sets", n=300 if quick else 5000, dtype="float64")]


def contest(job, n, dtype, d=20, degree=0, pairs=0, k=0, m=0):
    """One of the four jobs, on uniform points."""
    rng = np.random.default_rng(0)
    if job == "learned sets":
        return learned_sets(n)
    if job == "eigenvectors":
        return components(rng.random((n, d)).astype(dtype), m)
    X = rng.random((n, d)).astype(dtype)
    terms = multi_indices(d, (degree, pairs))
    return basis(X, terms, dtype) if job == "basis" else path(X, terms[1:], k, dtype, rng)


def path(X, terms, k, dtype, rng):
    A = legendre_basis(X, terms)
    y = (A[:, : 2 * k] @ rng.standard_normal(2 * k)).astype(dtype)
    order = loo_path(A, y, max_terms=k).order
    n = len(y)

    def refits():
        """The errors by (10.9), with a factorisation of its own for each support."""
        errors = []
        for size in range(len(order) + 1):
            B = np.column_stack([np.ones(n), A[:, order[:size]].astype(np.float64)])
            Q = np.linalg.qr(B)[0]
            r = y - Q @ (Q.T @ y)
            errors.append(np.mean((r / (1 - np.square(Q).sum(1))) ** 2))
        return np.array(errors)

    exact, transposed, out = [], np.ascontiguousarray(A.T), np.zeros(len(terms), dtype)

    def error(values):
        if not exact:
            exact.append(refits())
        return float(abs(values / exact[0] - 1).max())

    def limit():
        for _ in range(len(order)):
            np.dot(transposed, y, out=out)
        return out

    return Contest(
        cases={"refit each support, its order given": refits,
               "rfteach, order and errors": lambda: loo_path(A, y, max_terms=k).loo, "products with Aᵀ": limit},
        baseline="refit each support, its order given", limit=("products with Aᵀ",),
        limit_is="one product of the transposed matrix with a vector per term, by NumPy",
        gemm=(len(terms), n, 8), errors={"rfteach, order and errors": error})


def basis(X, terms, dtype):
    U, p = 2 * X - 1, int(terms.max())
    lengths = np.sqrt(2 * np.arange(p + 1) + 1)

    def numpys(U=U):
        tables = [legvander(u, p) * lengths.astype(U.dtype) for u in U.T]
        columns = np.ones((len(U), len(terms)), U.dtype)
        for j, table in enumerate(tables):
            used = terms[:, j] > 0
            columns[:, used] *= table[:, terms[used, j]]
        return columns

    exact = numpys(2 * X.astype(np.float64) - 1)
    out = warm((len(terms), len(X)), dtype)
    return Contest(
        cases={"numpy legvander, products by input": numpys, "rfteach": lambda: legendre_basis(X, terms),
               "fill the result": lambda: out.fill_(1.0)},
        baseline="numpy legvander, products by input", limit=("fill the result",),
        limit_is="writing the result once, into memory that is already there", gemm=(len(X), 8, len(terms)),
        errors={"rfteach": lambda A: float(abs(A - exact).max() / abs(exact).max())})


def components(X, m):
    ell = np.geomspace(0.5, 50, X.shape[1]).astype(X.dtype)
    scaled = X / ell
    exact = KernelPCA(m, kernel="rbf", gamma=0.5, eigen_solver="dense").fit(scaled.astype(np.float64)).eigenvalues_

    def peer(solver):
        return lambda: KernelPCA(m, kernel="rbf", gamma=0.5, eigen_solver=solver, random_state=0).fit(
            scaled).eigenvalues_

    def ours(solver):
        return lambda: AnisotropicKernelPCA(m, bandwidth=ell, solver=solver).fit(X).eigenvalues_

    def error(values):
        return float(abs(values / exact - 1).max())

    T = torch.from_numpy(scaled)
    K = warm((len(X), len(X)), str(X.dtype))
    cases = {"KernelPCA, auto": peer("auto"), "KernelPCA, randomized": peer("randomized"),
             "rfteach, randomized": ours("randomized"), "rfteach, eigh": ours("eigh"),
             "Gram matrix alone": lambda: torch.mm(T, T.T, out=K)}
    return Contest(cases, baseline="KernelPCA, auto", limit=("Gram matrix alone",),
                   limit_is="the scalar products of the rows", gemm=(len(X), X.shape[1], len(X)),
                   errors={name: error for name in cases if "alone" not in name})


def learned_sets(n):
    """Fits to Friedman's function with noise; the error is the root mean square at 2000 new points, without noise."""
    X, y = make_friedman1(n, noise=1.0, random_state=0)
    X_test, f = make_friedman1(2000, random_state=1)

    def fitted(model):
        return model.fit(X, y).predict(X_test)

    def all_waves():
        with patch.object(waves, "_KEPT", 0.0):
            return fitted(AdaptiveFeatureRegressor(random_state=0))

    cases = {"boosted trees": lambda: fitted(HistGradientBoostingRegressor(random_state=0)),
             "rfteach": lambda: fitted(AdaptiveFeatureRegressor(random_state=0)),
             "rfteach, as many waves as it may": all_waves}
    return Contest(cases, baseline="boosted trees",
                   errors={name: lambda found: float(np.sqrt(np.mean((found - f) ** 2))) for name in cases})
