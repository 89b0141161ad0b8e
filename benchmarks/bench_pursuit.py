"""Hard thresholding pursuit: `harfe` and the rule of the public HARFE code on the function of its README."""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from harness import Contest
from rfteach.orderq import feature_matrix, sparse_frequencies
from rfteach.pursuit import cosamp, harfe

TITLE = "HARFE against the rule of its public code (AᵀA formed, a pseudoinverse at each step)"


def settings(quick=False):
    """The sizes to try: rows m, features N, features to keep s."""
    sizes = dict(m=60, N=200, s=10) if quick else dict(m=500, N=5000, s=75)
    return [dict(sizes, dtype=dtype) for dtype in ("float64", "float32")]


def problem(m, N, dtype, seed=0):
    """The function of the README, f(x) = x₂² + x₆x₈ + cos x₁₀ in ten dimensions; sines of order 2, columns of norm 1.

    Weights are from N(0, 1); the README draws them from N(-1, 1).
    """
    X = np.random.default_rng(seed).uniform(-1, 1, (m + 2000, 10))
    y = X[:, 1] ** 2 + X[:, 5] * X[:, 7] + np.cos(X[:, 9])
    W, b = sparse_frequencies(N, 10, 2, phases=True, random_state=seed)
    A = feature_matrix(X, W, b)
    A /= np.linalg.norm(A[:m], axis=0)
    return A[:m].astype(dtype), y[:m].astype(dtype), A[m:], y[m:]


def public_rule(A, y, s, lam=1e-4, mu=0.1, max_iter=200, tol=5e-3, tol_coef=1e-5):
    """Signed selection by the s-th largest magnitude, ridge by a pseudoinverse, with AᵀA in memory."""
    G, v, c = A.T @ A, A.T @ y, np.zeros(A.shape[1], A.dtype)
    for _ in range(max_iter):
        z = (1 - mu * lam) * c + mu * (v - G @ c)
        S = np.flatnonzero(z >= np.sort(abs(z))[-s])
        last, c = c, np.zeros_like(c)
        c[S] = np.linalg.pinv(G[np.ix_(S, S)] + lam * np.eye(len(S), dtype=A.dtype)) @ v[S]
        if np.linalg.norm(y - A @ c) <= tol * np.linalg.norm(y) or np.linalg.norm(c - last) <= tol_coef:
            break
    return c


def contest(m, N, s, dtype):
    """The public rule, its steps by `harfe`, and what `harfe` and `cosamp` do by default with the same penalty."""
    A, y, A_test, y_test = problem(m, N, dtype)
    lam = 1e-4 / m
    found = harfe(A, y, s, lam)
    products = 1 + len(np.unique(found.residuals))  # a support that is not taken leaves the residual
    out, B = np.zeros(N, dtype), A.T[found.support].astype(np.float64)
    G, v = B @ B.T + m * lam * np.eye(len(B)), B @ y.astype(np.float64)

    def limit():
        for _ in range(products):
            np.dot(y, A, out=out)
        return out

    def with_solves():
        for _ in range(found.n_iter):
            y - cho_solve(cho_factor(G), v) @ B
        return limit()

    def gradient(c):
        """Of the objective on the support, in float64, relative to the gradient at zero."""
        S = np.flatnonzero(c)
        B, c = A[:, S].astype(np.float64), c[S].astype(np.float64)
        g = B.T @ (y - B @ c) - m * lam * c
        return np.abs(g).max() / np.abs(B.T @ y).max()

    ours = {"rfteach, the same rule": lambda: harfe(A, y, s, lam, mu=0.1, selection="signed", tol=5e-3).coef,
            "rfteach, harfe": lambda: harfe(A, y, s, lam).coef,
            "rfteach, cosamp": lambda: cosamp(A, y, s, lam, extra=1.0).coef}
    cases = {"public rule": lambda: public_rule(A, y, s)} | ours
    tested = ", ".join(f"{np.linalg.norm(A_test @ case() - y_test) / np.linalg.norm(y_test):.4f} ({name})"
                       for name, case in cases.items())
    return Contest(cases=cases | {"limit": limit, "limit, and solves": with_solves}, baseline="public rule",
                   limit=("limit",), parts=("limit, and solves",),
                   limit_is=f"the {products} products of Aᵀ with a residual that `harfe` needs, by NumPy; and with them the "
                            f"{found.n_iter} systems of its supports, whose Gram matrix is there already; the errors are "
                            f"gradients on the support; relative test errors, without noise: {tested}",
                   gemm=(m, N, s), errors=dict.fromkeys(cases, gradient))
