"""A graphics card: what the estimators do there beside the same written out in torch, and beside the products alone."""

import math

import numpy as np
import torch

import bench_attention
import bench_eigenpro
from harness import Contest, warm
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import RandomFourierFeatures
from rfteach.kernels import Gaussian
from rfteach.pca import GradientPCA
from rfteach.streaming import StreamingRidge

TITLE = "A graphics card: features, kernels, sums, epochs, attention and components, tensors on the card in and out"
PLACE = "cuda" if torch.cuda.is_available() else "cpu"


def settings(quick=False):
    """The sizes to try; none without a card, but for tiny ones."""
    if quick:
        jobs = [dict(what="features", n=300, d=5, N=40), dict(what="kernel", n=200, d=5),
                dict(what="sums", n=900, d=5, N=100), dict(what="components", n=600, d=20, k=3),
                dict(what="epoch", n=600, d=20, B=100), dict(what="attention", heads=2, L=256, E=8, N=16, causal=True)]
    elif PLACE == "cpu":
        return []
    else:
        jobs = [dict(what="features", n=200_000, d=100, N=4096), dict(what="kernel", n=20_000, d=784),
                dict(what="sums", n=500_000, d=20, N=2000), dict(what="components", n=1_000_000, d=500, k=10),
                dict(what="epoch", n=30_000, d=784, B=2000),
                *(dict(what="attention", heads=8, L=L, E=64, N=256, causal=causal)
                  for causal in (False, True) for L in (1024, 16_384, 65_536))]
    both = [] if quick else jobs[:4]
    return [dict(job, dtype="float32") for job in jobs] + [dict(job, dtype="float64") for job in both]


def contest(what, **sizes):
    """All data on the card before the clock runs."""
    if what == "epoch":
        return bench_eigenpro.epoch(**sizes, place=PLACE)
    if what == "attention":
        return bench_attention.contest(**sizes, place=PLACE)
    return {"features": features, "kernel": kernel, "sums": sums, "components": components}[what](**sizes)


def normal(n, d, dtype, seed=0):
    source = torch.Generator(PLACE).manual_seed(seed)
    return torch.randn(n, d, generator=source, dtype=getattr(torch, dtype), device=PLACE)


def features(n, d, N, dtype):
    """Random Fourier features with phases."""
    X = normal(n, d, dtype)
    model = RandomFourierFeatures("gaussian", math.sqrt(d), N, form="phase", random_state=0).fit(X)
    draws = [torch.as_tensor(draw).to(PLACE) for draw in (model.frequencies_, model.phases_)]
    W, b = (draw.to(X) for draw in draws)
    scale, out = math.sqrt(2 / N), warm((n, N), dtype, PLACE)

    def error(Z):
        exact = scale * torch.cos(X[:200].double() @ draws[0].T + draws[1])
        return float((Z[:200] - exact).abs().max())

    return Contest(
        cases={"torch, written out": lambda: scale * torch.cos(X @ W.T + b), "rfteach": lambda: model.transform(X),
               "limit": lambda: torch.mm(X, W.T, out=out).cos_(), "the product alone": lambda: torch.mm(X, W.T, out=out)},
        baseline="torch, written out", limit=("limit",), memory=False, place=PLACE, gemm=(n, d, N),
        limit_is="of features the product of X and the frequencies, and cosine in place",
        errors={"torch, written out": error, "rfteach": error})


def kernel(n, d, dtype):
    """The Gaussian kernel between two sets of points."""
    X, Y = normal(n, d, dtype), normal(n, d, dtype, 1)
    sigma, out = math.sqrt(d), warm((n, n), dtype, PLACE)
    k = Gaussian(sigma)

    def error(K):
        differences = torch.cdist(X[:100].double(), Y.double(), compute_mode="donot_use_mm_for_euclid_dist")
        return float((K[:100] - (-0.5 / sigma**2 * differences.square()).exp()).abs().max())

    return Contest(
        cases={"torch, cdist": lambda: (-0.5 / sigma**2 * torch.cdist(X, Y).square()).exp(),
               "rfteach": lambda: k(X, Y), "limit": lambda: torch.mm(X, Y.T, out=out).exp2_(),
               "the product alone": lambda: torch.mm(X, Y.T, out=out)},
        baseline="torch, cdist", limit=("limit",), memory=False, place=PLACE, gemm=(n, d, n),
        limit_is="of the kernel the product of X and Y, and an exponential to base two in place",
        errors={"torch, cdist": error, "rfteach": error})


def sums(n, d, N, dtype, height=32_768):
    """Ridge regression in one pass over blocks of rows, random features included."""
    X = normal(n, d, dtype)
    y = X[:, 0] + X[:, 1].sin()
    features = RandomFourierFeatures("gaussian", math.sqrt(d), N, random_state=0).fit(X)
    blocks = [slice(a, min(a + height, n)) for a in range(0, n, height)]
    A, G = normal(min(height, n) // 2, N, dtype), warm((N, N), dtype, PLACE)

    def ours():
        model = StreamingRidge(alpha=1.0, fit_intercept=False)
        for rows in blocks:
            model.partial_fit(features.transform(X[rows]), y[rows])
        return model.coef_

    def whole():
        waves = RandomFourierFeatures("gaussian", math.sqrt(d), N, random_state=0)
        return RandomFeatureRidge(waves, alpha=1.0, fit_intercept=False).fit(X, y).coef_

    def written_out(X=X, y=y):
        total, right = torch.zeros(N, N).to(X), torch.zeros(N).to(X)
        for rows in blocks:
            A = features.transform(X[rows])
            total += A.T @ A
            right += A.T @ y[rows]
        total.diagonal().add_(1.0)
        return torch.cholesky_solve(right[:, None], torch.linalg.cholesky(total))

    def limit():
        for rows in blocks:
            half = A[:(rows.stop - rows.start) // 2]
            torch.mm(half.T, half, out=G)
        return G

    some = features.transform(X[:20_000].double())
    exact = (some @ written_out(X.double(), y.double())).ravel()

    def error(c):
        """Of the fitted values at some rows, relative, against float64."""
        values = some @ torch.as_tensor(c, dtype=torch.float64, device=PLACE).ravel()
        return float((values - exact).abs().max() / exact.abs().max())

    cases = {"torch, written out": written_out, "rfteach": ours, "rfteach, all rows at once": whole}
    return Contest(
        cases=cases | {"limit": limit}, baseline="torch, written out", limit=("limit",), memory=False, place=PLACE,
        gemm=(N, height, N), limit_is="of sums half of the product of the features with themselves",
        errors=dict.fromkeys(cases, error))


def components(n, d, k, dtype):
    """Leading components of rows whose standard deviations fall like 1/j along random directions."""
    B = np.linalg.qr(np.random.default_rng(1).standard_normal((d, d)))[0] / np.arange(1, d + 1)[:, None]
    X = normal(n, d, dtype) @ torch.from_numpy(B.astype(dtype)).to(PLACE) + 1
    out = warm((d, d), dtype, PLACE)

    def by_eigh(X):
        centred = X - X.mean(0)
        return torch.linalg.eigh(centred.T @ centred)[1].flip(1)[:, :k].T

    exact = by_eigh(X.double())

    def error(U):
        U = torch.linalg.qr(torch.as_tensor(U, dtype=torch.float64, device=PLACE).T)[0]
        return float(torch.linalg.matrix_norm(U - exact.T @ (exact @ U), 2))

    return Contest(
        cases={"torch, eigh": lambda: by_eigh(X),
               "rfteach": lambda: GradientPCA(k, standardize=False, tol=1e-7).fit(X).components_,
               "limit": lambda: torch.mm(X.T, X, out=out)},
        baseline="torch, eigh", limit=("limit",), memory=False, place=PLACE, gemm=(d, n, d),
        limit_is="of components the product of the data with itself",
        errors={"torch, eigh": error, "rfteach": error})
