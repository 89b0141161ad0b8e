"""Products in float32: inner products of rows and half of a Gram matrix, by torch, NumPy or SciPy, and `rfteach.products`."""

import numpy as np
import torch
from scipy.linalg.blas import ssyrk

from harness import Contest, convolved, warm
from rfteach.products import add_gram, add_products

TITLE = "Products that are added to what is there, in float32"


def settings(quick=False):
    """Inner products of n rows with m others, of k terms each; BᵀB of k rows with n columns."""
    tile = dict(n=300, m=200, k=300) if quick else dict(n=2000, m=4000, k=784)
    half = dict(n=300, k=200) if quick else dict(n=2000, k=4096)
    return [dict(what="inner products", **tile, dtype="float32"), dict(what="half of a Gram matrix", **half, dtype="float32")]


def contest(what, **sizes):
    """Normal rows."""
    return {"inner products": inner, "half of a Gram matrix": gram}[what](**sizes)


def normal(n, k, seed, dtype):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, k)).astype(dtype))


def inner(n, m, k, dtype):
    """X Yᵀ is added, from nothing, so that it can be compared."""
    X, Y, out = normal(n, k, 0, dtype), normal(m, k, 1, dtype), warm((n, m), dtype)

    def numpy():
        O = out.zero_().numpy()
        np.add(O, X.numpy() @ Y.numpy().T, out=O)
        return out

    def rfteach():
        add_products(out.zero_(), X, Y)
        return out

    exact = X.double() @ Y.double().T
    cases = {"torch": lambda: out.zero_().addmm_(X, Y.T), "NumPy": numpy, "rfteach": rfteach}
    limits = {"limit, torch": lambda: torch.mm(X, Y.T, out=out), "limit, NumPy": lambda: np.dot(X.numpy(), Y.numpy().T, out=out.numpy()),
              "limit, oneDNN": lambda: convolved(X, Y)}
    return Contest(cases=cases | limits, baseline="torch", limit=tuple(limits), gemm=(n, k, m),
                   limit_is="the product alone, into memory that is already there but for oneDNN",
                   errors={name: lambda G: float((G - exact).abs().max() / exact.abs().max()) for name in cases})


def gram(n, k, dtype):
    """The lower triangle."""
    B, G = normal(k, n, 0, dtype), warm((n, n), dtype)
    columns, F = np.asfortranarray(B.numpy()).T, np.zeros((n, n), dtype, order="F")

    def rfteach():
        add_gram(G.zero_(), B)
        return G

    def scipy():
        return ssyrk(1.0, B.numpy().T, beta=1.0, c=F, overwrite_c=1, lower=1)

    def strips():
        C = torch.from_numpy(columns)
        for i in range(0, n, 96):
            G[i:, i:i + 96] = convolved(C[i:], C[i:i + 96])

    exact = B.double().T @ B.double()
    largest = exact.abs().max()
    cases = {"torch, all of it": lambda: torch.mm(B.T, B, out=G), "rfteach": rfteach}
    limits = {"limit, SciPy": scipy, "limit, oneDNN": strips}
    return Contest(cases=cases | limits, baseline="torch, all of it", limit=tuple(limits), gemm=(n, k, n),
                   limit_is="the symmetric update by SciPy, or oneDNN's products of the columns, which lie in rows, with strips of 96",
                   errors={name: lambda G: float((G - exact).tril().abs().max() / largest) for name in cases})
