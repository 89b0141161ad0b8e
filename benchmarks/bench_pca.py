"""Gradient PCA: the source's loop, scikit-learn's solvers, and data that is read from a file."""

import shutil
import tempfile
import weakref
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA, IncrementalPCA

from harness import Contest, convolved, warm
from rfteach.evidence.components import source_component
from rfteach.pca import GradientPCA, leading_components

TITLE = "Gradient PCA: the source's loop, scikit-learn's solvers, and rows streamed from a file"


def settings(quick=False):
    """One component of n tumours; k components of n rows in d columns, in memory and from a file."""
    one = dict(n=100, d=8, sweeps=2) if quick else dict(n=569, d=30, sweeps=11)
    many = dict(n=600, d=20, k=3) if quick else dict(n=100_000, d=500, k=10)
    file = dict(n=2_000, d=20, k=3, rows=200) if quick else dict(n=2_000_000, d=100, k=5, rows=20_000)
    return [dict(what="component", **one, dtype="float64"),
            *(dict(what="eigenvectors", **many, dtype=dtype) for dtype in ("float32", "float64")),
            dict(what="streamed eigenvectors, error: variance lost", **file, dtype="float32")]


def contest(what, **sizes):
    """Standardised tumours, or rows whose standard deviations fall like 1/j along random directions."""
    return {"component": component, "eigenvectors": eigenvectors,
            "streamed eigenvectors, error: variance lost": streamed}[what](**sizes)


def distance(U, V):
    """Largest sine of an angle between the spans of the rows of U and V."""
    U, V = (np.linalg.qr(np.asarray(A, dtype=float).T)[0] for A in (U, V))
    return float(np.linalg.norm(U - V @ (V.T @ U), 2))


def component(n, d, sweeps, dtype):
    """The leading component. The source's sequence, or the minimum of what it is meant to minimise."""
    X = load_breast_cancer().data[:n, :d].astype(dtype)
    X = (X - X.mean(0)) / X.std(0)
    n, d = X.shape
    step = 0.1 * n / 569  # that of all rows; 0.1 diverges on few of them

    def loop():
        u = np.ones(d)
        for _ in range(sweeps):
            for x in X:
                for i in range(d):
                    others = 0.0
                    for j in range(d):
                        if j != i:
                            others += u[j] * x[j]
                    rest = x[i] - u[i] * (others + u[i] * x[i])
                    u[i] -= step / n * 2 * (2 * u[i] * x[i] - others) * rest
        return u

    def batch():
        return GradientPCA(1, tol=1e-14).fit(X).components_

    def direct():
        T = torch.from_numpy(X)
        return leading_components(T.T @ T / n, 1, tol=1e-14).vectors.numpy()

    sequence, v = loop(), np.linalg.eigh(X.T @ X)[1][:, -1:].T
    cases = {"source's loop (rewritten)": loop,
             "rfteach, same sequence": lambda: source_component(X, sweeps, step=step),
             "rfteach, GradientPCA": batch, "rfteach, leading_components": direct,
             "PCA of scikit-learn": lambda: PCA(1, svd_solver="covariance_eigh").fit(X).components_}
    exact = {name: lambda u: distance(u, v) for name in list(cases)[2:]}
    return Contest(cases=cases, baseline="source's loop (rewritten)", gemm=(d, n, d),
                   errors={"rfteach, same sequence": lambda u: float(abs(u - sequence).max()), **exact})


def rows_of(n, d, dtype, seed=0):
    rng = np.random.default_rng(seed)
    B = np.linalg.qr(np.random.default_rng(1).standard_normal((d, d)))[0] / np.arange(1, d + 1)[:, None]
    return (rng.standard_normal((n, d)) @ B + 1).astype(dtype)


def covariance(blocks):
    """The covariance matrix in float64."""
    total, squares, n = 0.0, 0.0, 0
    for B in blocks:
        B = B.astype(float) - 1  # the means are near 1
        total, squares, n = total + B.sum(0), squares + B.T @ B, n + len(B)
    return squares / n - np.outer(total, total) / n**2


def leading(C, k):
    """The first k eigenvectors as rows."""
    return np.linalg.eigh(C)[1][:, ::-1][:, :k].T


def variance_lost(U, C):
    """Part of the variance along the leading eigenvectors that the span of the rows of U does not have."""
    Q = np.linalg.qr(np.asarray(U, dtype=float).T)[0]
    most = np.linalg.eigvalsh(C)[-len(U):].sum()
    return float(abs(1 - np.trace(Q.T @ C @ Q) / most))


def eigenvectors(n, d, k, dtype):
    """All in memory. The tolerances make the errors of "randomized" and "tol 1e-7" about equal."""
    X = rows_of(n, d, dtype)
    V = leading(covariance(np.array_split(X, max(1, n // 5000))), k)
    T, product = torch.from_numpy(X), warm((d, d), dtype)
    out = product.numpy()

    def ours(tol):
        return lambda: GradientPCA(k, standardize=False, tol=tol).fit(X).components_

    def peer(**given):
        return lambda: PCA(k, random_state=0, **given).fit(X).components_

    def by_onednn():
        product.zero_()
        for B in T.split(4096):
            columns = B.T.contiguous()
            product.add_(convolved(columns, columns))
        return out

    limits = {"limit by NumPy": lambda: np.dot(X.T, X, out=out), "limit by torch": lambda: torch.mm(T.T, T, out=product)}
    limits |= {"limit by oneDNN": by_onednn} if dtype == "float32" else {}
    cases = {"scikit-learn, randomized": peer(svd_solver="randomized"),
             "scikit-learn, covariance_eigh": peer(svd_solver="covariance_eigh"),
             "the same, rows centred first": lambda: PCA(k, svd_solver="covariance_eigh").fit(X - X.mean(0)).components_,
             "rfteach, tol 1e-7": ours(1e-7), "rfteach, tol 1e-12": ours(1e-12)}
    return Contest(cases=cases | limits, baseline="scikit-learn, randomized", limit=tuple(limits),
                   limit_is="the product of the data with itself into memory that is already there, by oneDNN in blocks of 4096 rows",
                   gemm=(d, n, d), errors={name: lambda U: distance(U, V) for name in cases})


def streamed(n, d, k, rows, dtype):
    """Rows from a file, a block at a time; extra memory shows that the file is not held.

    Two cases are approximate, so the error is the part of the variance that is lost, not an angle.
    """
    folder = tempfile.mkdtemp()
    file = Path(folder) / "rows"
    with file.open("wb") as handle:
        for seed, start in enumerate(range(0, n, rows)):
            rows_of(min(rows, n - start), d, dtype, seed).tofile(handle)

    def blocks():
        with file.open("rb") as handle:
            for start in range(0, n, rows):
                yield np.fromfile(handle, dtype, min(rows, n - start) * d).reshape(-1, d)

    weakref.finalize(blocks, shutil.rmtree, folder)
    C = covariance(blocks())

    def stream(model):
        for block in blocks():
            if len(block) >= k:
                model.partial_fit(block)
        return model.components_

    cases = {"scikit-learn, IncrementalPCA": lambda: stream(IncrementalPCA(k)),
             "scikit-learn, all in memory": lambda: PCA(k, svd_solver="covariance_eigh").fit(
                 np.concatenate(list(blocks()))).components_,
             "rfteach, partial_fit": lambda: stream(GradientPCA(k, standardize=False, tol=1e-7)),
             "rfteach, sgd": lambda: stream(GradientPCA(k, standardize=False, solver="sgd", batch_size=rows // 20)),
             "limit": lambda: sum(float(block[0, 0]) for block in blocks())}
    return Contest(cases=cases, baseline="scikit-learn, IncrementalPCA", limit=("limit",),
                   limit_is="reading the file in blocks", gemm=(d, rows, d),
                   errors={name: lambda U: variance_lost(U, C) for name in list(cases)[:4]})
