"""Basis pursuit denoising to a certified optimum: `basis_pursuit_denoising`, scikit-learn's lars_path, Clarabel."""

import clarabel
import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import lars_path

from harness import Contest
from rfteach.bpdn import basis_pursuit_denoising
from rfteach.orderq import feature_matrix, sparse_frequencies

TITLE = "Least l1 norm for a bound on the residual, with the relative duality gap of each result, float64"


def settings(quick=False):
    """The sizes to try: samples m, features N, order q, bound sigma on the residual.

    The full one is the published experiment on sparse random features, d = 10 inputs.
    """
    if quick:
        return [dict(m=40, N=300, q=2, sigma=0.1)]
    return [dict(m=250, N=5000, q=2, sigma=0.01), dict(m=250, N=5000, q=3, sigma=0.01),
            dict(m=250, N=5000, q=2, sigma=0.1)]


def interior_point(A, sigma):
    """A function of y that solves the problem with Clarabel: variables c and t ≥ |c|."""
    m, N = A.shape
    eye = sp.identity(N)
    G = sp.vstack([sp.hstack([eye, -eye]), sp.hstack([-eye, -eye]), sp.csr_matrix((1, 2 * N)),
                   sp.hstack([sp.csr_matrix(-A), sp.csr_matrix((m, N))])]).tocsc()
    P, q = sp.csc_matrix((2 * N, 2 * N)), np.concatenate([np.zeros(N), np.ones(N)])
    cones = [clarabel.NonnegativeConeT(2 * N), clarabel.SecondOrderConeT(m + 1)]
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_rel, options.tol_gap_abs, options.tol_feas = 1e-6, 0.0, 1e-8

    def solve(y):
        h = np.concatenate([np.zeros(2 * N), [sigma], -y])
        return np.array(clarabel.DefaultSolver(P, q, G, h, cones, options).solve().x[:N])

    return solve


def contest(m, N, q, sigma):
    """All three on the same matrix; `lars_path` is told beforehand at which λ to stop.

    It takes differences of λ below 1e-7 for rounding errors, whatever the size of y: hence a large y for it.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (m, 10))
    y = (np.exp(-(X[:, :-1] ** 2)) / (1 + X[:, 1:] ** 2)).sum(1) / 10
    W, b = sparse_frequencies(N, 10, q, phases=True, random_state=rng)
    A = feature_matrix(X, W, b, normalize="columns")
    exact = basis_pursuit_denoising(A, y, sigma)
    lam = abs(A.T @ (y - A @ exact.coef)).max()
    clarabel_solve = interior_point(A, sigma)

    def error(c):
        """Relative duality gap of c, or what its residual exceeds the bound by."""
        r = y - A @ c
        nu, norm = r / abs(A.T @ r).max(), abs(c).sum()
        gap = norm - y @ nu + sigma * np.linalg.norm(nu)
        return max(gap / norm, np.linalg.norm(r) / sigma - 1, 0.0)

    cases = {"lars_path": lambda: lars_path(A, 1e6 * y, method="lasso", alpha_min=1e6 * lam / m, max_iter=100_000,
                                            return_path=False)[2] / 1e6,
             "Clarabel": lambda: clarabel_solve(y),
             "rfteach": lambda: basis_pursuit_denoising(A, y, sigma).coef}
    return Contest(cases, baseline="lars_path", gemm=(N, m, 1), errors=dict.fromkeys(cases, error))
