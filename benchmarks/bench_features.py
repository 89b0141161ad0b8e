"""Random Fourier features: `RandomFourierFeatures.transform` and scikit-learn's `RBFSampler`."""

import math

import numpy as np
import torch
from sklearn.kernel_approximation import RBFSampler

from harness import Contest, convolved, warm
from rfteach.features import RandomFourierFeatures

TITLE = "Random Fourier features against scikit-learn's RBFSampler, NumPy in and out"


def settings(quick=False):
    """The sizes to try: samples n, inputs d, features N."""
    sizes = dict(n=300, d=5, N=40) if quick else dict(n=20_000, d=100, N=2000)
    return [dict(sizes, dtype=dtype) for dtype in ("float64", "float32")]


def contest(n, d, N, dtype):
    """Both transformers with the phase form of the map, on the same data."""
    X = np.random.default_rng(0).standard_normal((n, d)).astype(dtype)
    bandwidth = math.sqrt(d)
    ours = RandomFourierFeatures("gaussian", bandwidth, n_components=N, form="phase", random_state=0).fit(X)
    peer = RBFSampler(gamma=0.5 / bandwidth**2, n_components=N, random_state=0).fit(X)
    draws = {"rfteach": (ours.frequencies_, ours.phases_),
             "scikit-learn": (peer.random_weights_.T, peer.random_offset_)}

    T, W = torch.from_numpy(X), torch.from_numpy(peer.random_weights_.astype(dtype))
    out = warm((n, N), dtype)

    def limit(height):
        for rows, block in zip(T.split(height), out.split(height)):
            torch.mm(rows, W, out=block).cos_()
        return out

    columns = W.T.contiguous()

    def limit_onednn():
        for rows, block in zip(T.split(1024), out.split(1024)):
            torch.cos(convolved(rows, columns), out=block)
        return out

    limits = {"limit, 256 rows": lambda: limit(256), "limit, 1024 rows": lambda: limit(1024)}
    limits |= {"limit, oneDNN": limit_onednn} if dtype == "float32" else {}

    def error(name):
        rows = X[:200].astype(np.float64)
        W, b = (np.asarray(draw, dtype=np.float64) for draw in draws[name])
        exact = math.sqrt(2 / N) * np.cos(rows @ W.T + b)
        return lambda Z: np.abs(Z[:200] - exact).max()

    return Contest(
        cases={"scikit-learn": lambda: peer.transform(X), "rfteach": lambda: ours.transform(X)} | limits,
        baseline="scikit-learn", limit=tuple(limits),
        limit_is="product of X and the frequencies, and cosine, by torch, or in float32 by oneDNN, in blocks of rows, into "
                 "memory that is already there",
        gemm=(n, d, N), errors={name: error(name) for name in draws})
