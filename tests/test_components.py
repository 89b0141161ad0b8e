"""The sweeps, gains and scores of a report on gradient PCA, as its code has them."""


import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from rfteach.evidence.components import source_component, source_components, source_features
from rfteach.pca import GradientPCA, reconstruction_error

TUMOURS = load_breast_cancer(return_X_y=True)[0]


def data(n=60, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.geomspace(5, 0.5, d) @ np.linalg.qr(rng.standard_normal((d, d)))[0]


def standard(X):
    return (X - X.mean(0)) / X.std(0)


def source_by_loops(X, n_sweeps, lam):
    """Equation (9.13) with all of its sums."""
    u = np.ones(X.shape[1])
    for _ in range(n_sweeps):
        for x in X:
            for i in range(len(u)):
                others = sum(u[j] * x[j] for j in range(len(u)) if j != i)
                rest = x[i] - u[i] * (others + u[i] * x[i])
                u[i] -= 0.1 / len(X) * (2 * (2 * u[i] * x[i] - others) * rest + 2 * lam * u[i])
    return u


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_source_sequence(lam):
    X = standard(TUMOURS)[:150, :12]
    np.testing.assert_allclose(source_component(X, 2, lam), source_by_loops(X, 2, lam), rtol=0, atol=1e-12)
    single = source_component(X.astype(np.float32), 2, lam)
    np.testing.assert_allclose(single, source_by_loops(X, 2, lam), atol=1e-5)


def test_source_ends_beside_the_eigenvector():
    X = standard(TUMOURS)
    v = np.linalg.eigh(X.T @ X / len(X))[1][:, -1]
    cosine = lambda u: abs(u @ v) / np.linalg.norm(u)
    u = source_component(X, 51)
    assert cosine(u) == pytest.approx(0.9936, abs=5e-5) and np.linalg.norm(u) == pytest.approx(0.956, abs=5e-4)
    errors = [1 - cosine(source_component(X, sweeps, right=True, step=step))
              for step, sweeps in [(0.1, 20), (0.02, 60)]]
    assert errors[1] < errors[0] / 10  # the angle is proportional to the step
    assert reconstruction_error(X, GradientPCA(1).fit(TUMOURS).components_) < reconstruction_error(X, u)


def test_source_tables():
    """A split whose gains are known from the source's own code; scores one after another."""
    found = source_components(train_test_split(TUMOURS, random_state=0)[0], 11, 4, -2)
    np.testing.assert_allclose(found.gains, [0.4276, 0.2674, 0.1376, 0.0647], atol=6e-5)
    assert len(source_components(TUMOURS, 11, 5, 0.3).gains) == 1
    X, U = data(5, 6), found.components[:2, :6]
    scores = source_features(X, U)
    np.testing.assert_allclose(scores[:, 0], X @ U[0])
    np.testing.assert_allclose(scores[:, 1], (X - np.outer(X @ U[0], U[0])) @ U[1])
    assert source_features(X, U, 1).shape == (5, 1)


def test_source_takes_tensors_and_any_scale():
    X = data(400)
    one = source_components(X, max_comp=2, ratio=-2)
    tensor = torch.from_numpy(X).requires_grad_()
    np.testing.assert_array_equal(source_components(tensor, max_comp=2, ratio=-2).gains, one.gains)
    np.testing.assert_array_equal(
        source_features(tensor, torch.from_numpy(one.components)), source_features(X, one.components))
    assert np.isfinite(source_component(torch.from_numpy(standard(X)).requires_grad_(), 1)).all()
    for scale in (1e200, 1e-200):
        np.testing.assert_allclose(source_components(X * scale, max_comp=2, ratio=-2).gains, one.gains, rtol=1e-9)
    with_constant = source_components(np.column_stack([X, np.full(400, 0.1)]), max_comp=1)
    assert with_constant.components.shape == (1, 7) and np.isfinite(with_constant.gains).all()


def test_what_is_refused():
    with pytest.raises(ValueError, match="components must have"):
        source_features(data(), np.zeros((2, 5)))
    for bad in (dict(n_sweeps=0), dict(lam=-1.0), dict(step=0.0)):
        with pytest.raises(ValueError, match=next(iter(bad))):
            source_component(data(), **bad)
    with pytest.raises(ValueError, match="diverged"):
        source_component(data(4), 50)
    for name in ("lam", "step"):
        with pytest.raises(ValueError, match=f"{name} must be a number in .*, got nan"):
            source_component(data(), **{name: np.nan})
    with pytest.raises(ValueError, match="ratio must be a number in .*, got nan"):
        source_components(data(), ratio=np.nan)
    for k in (0, -1, 4):
        with pytest.raises(ValueError, match="k"):
            source_features(data(), np.zeros((3, 6)), k)
