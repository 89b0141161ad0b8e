"""The door: kinds, dtypes and devices that come back as they came, what is refused, seeds, blocks."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from threadpoolctl import ThreadpoolController, threadpool_info

from rfteach import arrays
from rfteach.agop import RFMRegressor
from rfteach.arrays import as_tensor, memory_budget, needs_grad, power_of_two, random_generator, row_blocks, tiles
from rfteach.arrays import validate_input
from rfteach.auto import AutoKernelRegressor
from rfteach.centers import CentersRegressor
from rfteach.chaos import SparsePCE
from rfteach.conjugate import KernelRidgeRegressor, gram_cg
from rfteach.eigenpro import EigenProRegressor
from rfteach.estimators import Regressor
from rfteach.features import fourier_features
from rfteach.kernel_ridge import gram_path, gram_solve, gram_times
from rfteach.kernels import Gaussian, Laplacian
from rfteach.kpca import AnisotropicKernelPCA
from rfteach.pca import GradientPCA, leading_components, reconstruction_error, reconstruction_gradient
from rfteach.products import gram, thin_product
from rfteach.streaming import StreamingRidge

KINDS = {
    "list": (lambda A: A.tolist(), np.ndarray, np.float64),
    "float64": (lambda A: A, np.ndarray, np.float64),
    "float32": (lambda A: A.astype(np.float32), np.ndarray, np.float32),
    "float16": (lambda A: A.astype(np.float16), np.ndarray, np.float32),
    "int": (lambda A: A.astype(int), np.ndarray, np.float64),
    "bool": (lambda A: A > 1, np.ndarray, np.float64),
    "object": (lambda A: A.astype(object), np.ndarray, np.float64),
    "big-endian": (lambda A: A.astype(">f8"), np.ndarray, np.float64),
    "fortran": (np.asfortranarray, np.ndarray, np.float64),
    "reversed": (lambda A: A[::-1, ::-1].copy()[::-1, ::-1], np.ndarray, np.float64),
    "strided": (lambda A: np.repeat(A, 2, axis=1)[:, ::2], np.ndarray, np.float64),
    "pandas": (lambda A: pd.DataFrame(A, columns=["a", "b"], index=list("xyz")), pd.DataFrame, np.float64),
    "torch64": (torch.from_numpy, torch.Tensor, torch.float64),
    "torch32": (lambda A: torch.from_numpy(A).float(), torch.Tensor, torch.float32),
    "bfloat16": (lambda A: torch.from_numpy(A).bfloat16(), torch.Tensor, torch.float32),
    "torch int": (lambda A: torch.from_numpy(A).int(), torch.Tensor, torch.float64),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_in_goes_out(kind):
    convert, container, dtype = KINDS[kind]
    A = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    T, like = as_tensor(convert(A))
    expected = A > 1 if kind == "bool" else A
    assert T.dtype in (torch.float32, torch.float64)
    assert torch.equal(T, torch.from_numpy(expected.astype(float)).to(T.dtype))
    out = like.restore(T)
    assert type(out) is container
    assert (out.dtypes == dtype).all() if container is pd.DataFrame else out.dtype == dtype
    if container is pd.DataFrame:
        assert list(out.index) == list("xyz")
        assert isinstance(like.restore(T[:, 0]), pd.Series)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "torch32"])
def test_no_result_overflows_on_its_way_out(kind):
    convert, _, dtype = KINDS[kind]
    _, like = as_tensor(convert(np.ones((2, 2))))
    for large in (7e4, 1e38, np.inf):  # what was infinite stays so
        out = like.restore(torch.tensor([large, np.nan], dtype=torch.float64))
        assert out.dtype == dtype and abs(float(out[0]) / large - 1) < 1e-6 or large == out[0]
    with pytest.raises(ValueError, match="result overflows in torch.float32.*float64"):
        like.restore(torch.tensor([1.0, -1e39], dtype=torch.float64))


def test_tensor_comes_back_to_its_device(device):
    T, like = as_tensor(torch.ones(2, 2, device=device), device="cpu")
    assert T.device.type == "cpu"
    assert like.restore(T).device.type == device


def test_numpy_is_viewed_and_not_written_to():
    A = np.ones((3, 2))
    A.flags.writeable = False
    T, like = as_tensor(A)
    assert T.data_ptr() == A.ctypes.data
    assert like.restore(T).ctypes.data == A.ctypes.data


@pytest.mark.parametrize("size", [1e-200, 1e-90, 1e90, 1e200])
def test_a_unit_is_near_the_largest_entry_where_squares_leave_the_range(size):
    unit = power_of_two(torch.tensor([size / 3, -size], dtype=torch.float64))
    assert size / 2 <= unit <= size and np.frexp(unit)[0] == 0.5


@pytest.mark.parametrize(
    "X, error, words",
    [
        ([[1.0, np.nan]], ValueError, "Z contains NaN or infinity.*1 NaN"),
        ([[1.0, np.inf]], ValueError, "Z contains NaN or infinity.*1 infinite"),
        (torch.tensor([[np.nan]]), ValueError, "Z contains NaN"),
        ([1.0, 2.0], ValueError, r"Z: Expected 2D array, got 1D array of shape \(2,\).*Reshape"),
        (np.zeros((1, 2, 3)), ValueError, "Z: Expected 2D array, got 3D"),
        (np.zeros((0, 3)), ValueError, r"Z is empty: got shape \(0, 3\)"),
        (np.zeros((3, 0)), ValueError, r"Z is empty: got shape \(3, 0\)"),
        ([["a"]], ValueError, "Z must be numeric"),
        (np.array([["a"]], dtype=object), ValueError, "Z must be numeric"),
        ([[1j]], ValueError, "Complex data not supported: Z"),
        (torch.tensor([[1j]]), ValueError, "Complex data not supported: Z"),
        ([[1.0], [1.0, 2.0]], ValueError, "Z must be a rectangular array"),
        (sp.eye(3).tocsr(), TypeError, "Z must be dense"),
        (torch.eye(3).to_sparse(), TypeError, "Z must be dense"),
        (np.ma.masked_array([[1.0]], mask=[[True]]), ValueError, "Z is a masked array"),
        ([torch.ones(1, requires_grad=True)], ValueError, "Z must be a rectangular array"),
    ],
)
def test_bad_data_is_refused_by_name(X, error, words):
    with pytest.raises(error, match=words):
        as_tensor(X, name="Z")


def test_a_sign_that_is_still_to_come_is_taken():
    """A tensor may be a view of one with the other sign, whose memory says another number."""
    Z = torch.complex(torch.rand(20, 2), torch.rand(20, 2)).to(torch.complex128)
    X = Z.conj().imag
    assert X.is_neg() and np.array_equal(as_tensor(X)[0].numpy(), -Z.imag.numpy())
    for model in (StreamingRidge(), AutoKernelRegressor(time_budget=1e-9)):
        assert torch.equal(model.fit(X, X[:, 0]).predict(X), model.fit(-Z.imag, -Z.imag[:, 0]).predict(-Z.imag))


@pytest.mark.parametrize("model", [
    StreamingRidge(), KernelRidgeRegressor(), EigenProRegressor(random_state=0), CentersRegressor(random_state=0),
    RFMRegressor(n_rounds=1), SparsePCE(2), GradientPCA(2), AnisotropicKernelPCA(2)], ids=lambda model: type(model).__name__)
def test_autocast_does_not_reach_estimators(model):
    g = torch.Generator().manual_seed(0)
    X = torch.randn(120, 4, generator=g)
    y, ask = X[:, 0].sin() + X[:, 1], "predict" if hasattr(model, "predict") else "transform"
    for method in ("fit", "partial_fit"):
        if hasattr(model, method):
            right = getattr(getattr(clone(model), method)(X, y), ask)(X)
            with torch.autocast("cpu", torch.bfloat16):
                said = getattr(getattr(clone(model), method)(X, y), ask)(X)
                assert torch.is_autocast_enabled("cpu")
            assert said.dtype == torch.float32 and torch.equal(said, right)
    if hasattr(model, "predict_interval"):
        ends = model.fit(X, y).predict_interval(X)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(model.predict_interval(X.requires_grad_()), ends) and not ends.requires_grad


@pytest.mark.parametrize("f", [
    lambda X, U: fourier_features(X, U), lambda X, U: gram_times("gaussian", X, U, U), lambda X, U: thin_product(X, U[:4]),
    lambda X, U: gram(X), lambda X, U: reconstruction_error(X, U), lambda X, U: reconstruction_gradient(X, U),
    lambda X, U: gram_solve(Laplacian()(X), X, 0.1).coef, lambda X, U: gram_path(Laplacian()(X), X, lams=[0.1]).loo,
    lambda X, U: gram_cg("laplacian", X, X, 0.1).coef, lambda X, U: leading_components(gram(X), 2).vectors,
    lambda X, U: torch.autograd.grad(Gaussian()(X.requires_grad_(), U).sum(), X)[0]])
@pytest.mark.parametrize("gradient", [False, True])
def test_autocast_does_not_reach_products(f, gradient):
    g = torch.Generator().manual_seed(0)
    X, U = torch.randn(60, 4, generator=g).requires_grad_(gradient), 3 * torch.randn(20, 4, generator=g)
    right = f(X, U)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(f(X, U), right)


def test_large_finite_numbers_pass():
    T, _ = as_tensor(np.full((3, 3), 1e308))
    assert torch.isfinite(T).all()


@pytest.mark.parametrize("absent", ["nonsense", "cuda:99", "meta", 3.5])
def test_missing_device_is_no_silent_fallback(absent):
    with pytest.raises(ValueError, match="device=.* is not available"):
        as_tensor([[1.0]], device=absent)


class _Estimator(BaseEstimator):
    pass


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_estimators_remember_their_columns(convert):
    estimator = _Estimator()
    validate_input(estimator, convert(np.ones((4, 3))), reset=True)
    assert estimator.n_features_in_ == 3
    with pytest.raises(ValueError, match="X has 2 features, but _Estimator is expecting 3 features"):
        validate_input(estimator, convert(np.ones((4, 2))), reset=False)


def test_estimators_check_column_names():
    estimator = _Estimator()
    validate_input(estimator, pd.DataFrame({"a": [1.0], "b": [2.0]}), reset=True)
    assert list(estimator.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        validate_input(estimator, pd.DataFrame({"b": [1.0], "a": [2.0]}), reset=False)
    validate_input(estimator, torch.ones(2, 2), reset=True)
    assert not hasattr(estimator, "feature_names_in_")


def test_seeds():
    assert random_generator(3).random() == random_generator(np.int64(3)).random()
    rng = np.random.default_rng(0)
    assert random_generator(rng) is rng
    for make in (np.random.RandomState, lambda s: torch.Generator().manual_seed(s)):
        moving = make(1)
        draws = [random_generator(moving).random() for _ in range(2)]
        assert draws[0] != draws[1]
        assert random_generator(make(1)).random() == draws[0]
    np.random.seed(5)
    first = random_generator(None).random()
    np.random.seed(5)
    assert random_generator(None).random() == first


@pytest.mark.parametrize("seed, error", [(-1, ValueError), ("0", TypeError), (1.0, TypeError), (True, TypeError)])
def test_bad_seeds(seed, error):
    with pytest.raises(error, match="random_state must"):
        random_generator(seed)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("budget", [1, 8, 100, 1000, 10**6])
@pytest.mark.parametrize("n, m", [(1, 1), (3, 50), (50, 3), (40, 40)])
def test_tiles_cover_each_entry_once(n, m, budget, upper):
    if upper and n != m:
        return
    seen = np.zeros((n, m), int)
    with memory_budget(budget):
        for rows, cols in tiles(n, m, 8, height=4, upper=upper):
            seen[rows, cols] += 1
            size = seen[rows, cols].shape
            assert 8 * size[0] * size[1] <= max(8, budget)
            assert not upper or cols.start >= rows.start
            assert not upper or cols.start > rows.start or size[1] >= size[0]  # it holds its part of the diagonal
    assert seen.max() == 1 and (seen[np.triu_indices(n, 0, m)] == 1).all()
    assert upper or seen.all()


@given(n=st.integers(0, 1000), row_bytes=st.integers(1, 10**6), budget=st.integers(1, 10**6))
def test_blocks_cover_the_rows_and_fit_the_budget(n, row_bytes, budget):
    with memory_budget(budget):
        blocks = list(row_blocks(n, row_bytes))
    assert [i for rows in blocks for i in range(rows.start, rows.stop)] == list(range(n))
    assert all((rows.stop - rows.start) * row_bytes <= max(budget, row_bytes) for rows in blocks)


def test_budget_ends_with_its_block():
    before = arrays.block_bytes()
    with memory_budget(10):
        assert arrays.block_bytes() == 10
    assert arrays.block_bytes() == before
    with pytest.raises(ValueError, match="n_bytes must be a positive integer, got 0"), memory_budget(0):
        pass


def openblas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["prefix"] == "libscipy_openblas"}


def test_fits_have_one_pool():
    class Looks(Regressor):
        def _fit(self, X, Y, w, like):
            self.threads_ = openblas_threads()

    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before = openblas_threads()
        assert Looks().fit([[1.0], [2.0]], [1.0, 2.0]).threads_ <= {1}
        assert openblas_threads() == before


def test_columns_without_numbers_are_named():
    days = pd.date_range("2020-01-01", periods=4)
    for frame in (pd.DataFrame({"x": range(4), "day": days}), pd.DataFrame({"day": days.date}),
                  pd.DataFrame({"x": range(4), "day": list("abab")}), pd.DataFrame({"day": days.tz_localize("UTC")}),
                  pd.DataFrame({"x": range(4), "day": pd.Categorical(list("abab"))})):
        with pytest.raises((TypeError, ValueError), match=r"X has columns that are no numbers: 'day' \("):
            validate_input(BaseEstimator(), frame, reset=True)
        with pytest.raises((TypeError, ValueError), match="Z must be"):
            as_tensor(frame, name="Z")


@pytest.mark.parametrize("gap", [[1.0, np.nan], [np.inf, 1.0], pd.array([1, None], dtype="Int64"), pd.array([None, 1.5], dtype="Float32")])
@pytest.mark.parametrize("name", ["length", 1])
def test_gaps_are_named_by_their_column(gap, name):
    frame = pd.DataFrame({type(name)(0): [1.0, 2.0], name: gap})
    words = f"^X contains NaN or infinity .* of 4 entries, the first in column {name!r}[)]$"
    with pytest.raises(ValueError, match=words):
        validate_input(BaseEstimator(), frame, reset=True)
    with pytest.raises(ValueError, match=words):
        as_tensor(frame.astype(float))


@pytest.mark.parametrize("n", [1, 2])
def test_rows_in_the_other_direction(n):
    """NumPy calls a single row contiguous whatever its stride."""
    X = np.arange(12.0).reshape(6, 2)[:n][::-1]
    assert np.array_equal(as_tensor(X)[0].numpy(), X) and Gaussian()(X).shape == (n, n)


def test_transforms_of_torch_func_may_need_gradients():
    """A tensor of an outer one does not show it."""
    x = torch.ones(2)
    seen = []
    torch.func.grad(lambda x: torch.func.grad(lambda y: [seen.append(needs_grad(x)), (x * y).sum()][1])(x).sum())(x)
    torch.vmap(lambda x: [seen.append(needs_grad(x)), x][1])(x)
    assert seen == [True, True] and not needs_grad(x)
