"""EigenPro: an epoch beside the public implementation's algorithm, and the leading eigenvectors."""

import numpy as np
import scipy.linalg
import torch
from scipy.sparse.linalg import lobpcg

from harness import Contest, convolved, warm
from rfteach.eigenpro_engine import KernelSpace, Rows
from rfteach.kernels import Gaussian
from rfteach.preconditioning import eigenpro_step, largest_step, preconditioner, top_eigensystem

TITLE = "EigenPro: an epoch against the public algorithm and the products alone; 160 leading eigenvectors"


def settings(quick=False):
    """An epoch on n samples of d inputs with batches of B; k eigenvectors of an m×m Gram matrix."""
    epoch = dict(n=600, d=20, B=100) if quick else dict(n=10_000, d=784, B=500)
    eigen = dict(m=300, k=20, d=20) if quick else dict(m=4800, k=160, d=784)
    return [dict(what="eigenvectors", **eigen, dtype="float32"), dict(what="epoch", **epoch, dtype="float32")]


def contest(what, **sizes):
    """Points with the spectrum of images: a few strong directions and a tail."""
    return (epoch if what == "epoch" else eigenvectors)(**sizes)


def points(n, d, dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * np.linspace(1, d, d) ** -0.5
    return torch.from_numpy((X / X.std(0).mean()).astype(dtype)), float(np.sqrt(d))


def epoch(n, d, B, dtype, outputs=10, m=2000, k=160, place="cpu"):
    """One epoch on ten outputs, the preconditioner given."""
    X, sigma = points(n, d, dtype)
    X = X.to(place)
    Y = X[:, :outputs].tanh().contiguous()
    m, k = min(m, n // 2), min(k, n // 20)
    space = KernelSpace(Gaussian(sigma), X)
    unseen = X[m : 2 * m]
    P = preconditioner(space.gram(X[:m])[0], k).calibrated(*space.gram(unseen, X[:m]))
    step = largest_step(B, P.beta, P.lam) / 2
    c, total = torch.zeros_like(Y), X.double()
    batches = [slice(a, min(a + B, n)) for a in range(0, n, B)]

    def ours(rows, c=c, Y=Y, P=P):
        c.zero_()
        for batch in batches:
            eigenpro_step(c, rows[batch], Y[batch], step * (batch.stop - batch.start) / B, P, batch)
        return c

    def gaussian(A, B):
        d2 = A.square().sum(1, keepdim=True) + B.square().sum(1) - 2 * A @ B.T
        return d2.clamp_(min=0).mul_(-0.5 / sigma**2).exp_()

    def public():
        """Steps as in EigenPro-pytorch: the kernel with the subsample is computed a second time."""
        c.zero_()
        for batch in batches:
            g = gaussian(X[batch], X) @ c - Y[batch]
            c[batch] -= step / B * g
            F = gaussian(X[batch], X[:m]) @ P.vectors
            c[:m] += step / B * P.vectors @ (P.weights[:, None] * (F.T @ g))
        return c

    out = warm((B, n), dtype, place)

    def products():
        for batch in batches:
            rows = out[: batch.stop - batch.start]
            torch.mm(X[batch], X.T, out=rows)
        return out

    def products_onednn():
        for batch in batches:
            last = convolved(X[batch], X)
        return last

    limits = {"limit, torch": products} | ({"limit, oneDNN": products_onednn} if place == "cpu" else {})

    def opened(cache):
        return Rows(space, X, batch=B, cache=cache, limit=2**34)

    later = {cache: opened(cache) for cache in ("full", "half")}
    for rows in later.values():
        ours(rows)
    exact = Gaussian(sigma)(total)
    double = type(P)(P.values.double(), P.vectors.double(), P.weights.double(), P.lam, P.beta)
    reference = ours(exact, torch.zeros_like(Y, dtype=torch.float64), Y.double(), double)
    scale = float(reference.abs().max())

    def error(c):
        return float((c.double() - reference).abs().max()) / scale

    cases = {"public algorithm": public,
             "rfteach, nothing kept": lambda: ours(opened(None)),
             "rfteach, first epoch": lambda: ours(opened("full")),
             "rfteach, first epoch, half precision": lambda: ours(opened("half")),
             "rfteach, later epoch": lambda: ours(later["full"]),
             "rfteach, later epoch, half precision": lambda: ours(later["half"])}
    return Contest(cases=cases | limits, baseline="public algorithm", limit=tuple(limits), memory=False, place=place,
                   limit_is="the products of each batch with all points, by torch into memory that is already there, or by oneDNN",
                   gemm=(B, d, n), errors={name: error for name in cases})


def eigenvectors(m, k, d, dtype):
    """The leading eigenvalues and vectors, with the largest relative error of an eigenvalue."""
    X, sigma = points(m, d, dtype)
    K = Gaussian(sigma)(X)
    exact = scipy.linalg.eigvalsh(K.double().numpy())[::-1][:k].copy()
    start = np.random.default_rng(0).standard_normal((m, k)).astype(dtype)
    cases = {
        "eigh": lambda: top_eigensystem(K, k, method="eigh").values.numpy(),
        "SciPy's eigh, a subset": lambda: scipy.linalg.eigh(K.numpy(), subset_by_index=[m - k, m - 1])[0][::-1],
        "SciPy's LOBPCG": lambda: lobpcg(K.numpy(), start, tol=1e-4 * exact[0], maxiter=100)[0],
        "randomized": lambda: top_eigensystem(K, k, method="randomized").values.numpy(),
    }

    def error(values):
        return float(np.abs(np.sort(values)[::-1] / exact - 1).max())

    return Contest(cases=cases, baseline="eigh", gemm=(m, m, k), errors={name: error for name in cases})
