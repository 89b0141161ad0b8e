"""Fitted estimators as torch modules: the same values, for all of them, through torch.export and ONNX."""

import functools
import logging
import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Lasso, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rfteach as rt
from rfteach.kernels import Cauchy, Gaussian, Laplacian, Laplacian1, Matern
from rfteach.modules import Plane, Radial, to_module
from rfteach.stable import PowerExponential, PowerExponential1

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(120, 4))
X = Z * [1.0, 10.0, 0.1, 3.0] + [5.0, 0.0, 1.0, -20.0]
Y1 = np.sin(Z[:, 0] + 0.5 * Z[:, 1]) + Z[:, 2] ** 2 + 0.3 * RNG.normal(size=120)
Y2 = np.c_[Y1, 3 + 50 * Z[:, 3] * Z[:, 0] + 20 * RNG.normal(size=120)]
TWO, THREE = np.where(Y1 > 1, "yes", "no"), np.digitize(Y1, [0.5, 1.5])
NEW = np.concatenate([X[:10], X[10:30] + 0.3 * X.std(0) * RNG.normal(size=(20, 4))])
NEW = np.concatenate([NEW, [X.min(0) - np.ptp(X, 0) / 2, X.max(0) + np.ptp(X, 0) / 2]])  # out of reach

few = {"n_folds": None, "random_state": 0}
waves = rt.RandomFourierFeatures("matern32", 2.0, 60, random_state=0)
pairs = rt.RandomFourierFeatures(bandwidth=2.0, n_components=60, form="paired", random_state=0)
scaled = functools.partial(make_pipeline, StandardScaler())
CASES = {  # name: estimator, targets
    "waves": (scaled(rt.RandomFeatureRidge(waves, 0.1)), Y1),
    "pairs": (scaled(rt.RandomFeatureRidge(pairs, 0.1)), Y2),
    "one column": (scaled(rt.RandomFeatureRidge(pairs, 0.1)), Y1[:, None]),
    "landmarks": (rt.RandomFeatureRidge(scaled(rt.NystroemFeatures("laplacian", n_components=40)), 0.1), Y2),
    "frozen": (scaled(rt.RandomFeatureRidge(FrozenEstimator(waves), 0.1)), Y1),
    "two classes": (scaled(rt.RandomFeatureRidgeClassifier(waves, 0.1)), TWO),
    "three classes": (scaled(rt.RandomFeatureRidgeClassifier(waves, 0.1)), THREE),
    "scikit-learn": (scaled(pairs, Ridge(0.1)), Y2),
    "sums": (rt.StreamingRidge(), Y2),
    "network": (scaled(rt.RBFRegressor(40, alpha=0.01)), Y1),
    "srfe": (rt.SRFERegressor(200, random_state=0), Y2),
    "harfe": (rt.HARFERegressor(100, activation="tanh", **few), Y1),
    "adaptive": (rt.AdaptiveFeatureRegressor(200, 2, n_subsample=100, max_iter=5, **few), Y2),
    "chaos": (rt.SparsePCE(n_folds=None), Y2),
    "extrapolated": (rt.SparsePCE(2, outside="extrapolate", n_folds=None), Y1),
    "projected": (scaled(rt.ProjectedSurrogate(n_reduced=2, budget=3, **few)), Y1),
    "a plane in part": (scaled(rt.ProjectedSurrogate(n_reduced=1, budget=1, random_state=0)),
                        np.c_[Y1, Z @ [1.0, 2.0, 3.0, 4.0]]),
    "eigenpro": (scaled(rt.EigenProRegressor("laplacian", max_iter=2, random_state=0)), Y2),
    "eigenpro in features": (scaled(rt.EigenProRegressor(feature_map=pairs, max_iter=2, random_state=0)), Y1),
    "eigenpro classes": (scaled(rt.EigenProClassifier(max_iter=2, random_state=0)), TWO),
    "centers": (scaled(rt.CentersRegressor("laplacian", centers=30, max_iter=2, random_state=0)), Y2),
    "center classes": (scaled(rt.CentersClassifier(centers=30, max_iter=2, random_state=0)), TWO),
    "all rows": (scaled(rt.KernelRidgeRegressor(alpha=0.1)), Y2),
    "machine": (rt.RFMRegressor(n_rounds=1), Y2),
    "diagonal machine": (rt.RFMRegressor("laplacian1", n_rounds=1), Y1),
    "machine classes": (rt.RFMClassifier(n_rounds=1), THREE),
    "auto": (rt.AutoKernelRegressor(), Y2),
    "auto two classes": (rt.AutoKernelClassifier(), TWO),
    "auto three classes": (rt.AutoKernelClassifier(), THREE),
    "components": (rt.GradientPCA(2), None),
    "kernel components": (scaled(rt.AnisotropicKernelPCA(2)), None),
}
IN_ONNX = [name for name in CASES if name not in ("one column", "frozen", "three classes", "extrapolated",
                                                  "eigenpro in features", "diagonal machine", "machine classes")]


@functools.cache
def fitted(name):
    """The estimator, and a function from arrays to a list of what its module should give."""
    model, y = CASES[name]
    if name == "frozen":
        waves.fit(Z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fits are short
        model.fit(X, y)
    if y is None:
        return model, lambda A: [model.transform(A)]
    if hasattr(model, "predict_proba"):
        return model, lambda A: [model.decision_function(A), model.predict_proba(A)]
    return model, lambda A: [getattr(model, "decision_function", model.predict)(A)]


def listed(out):
    return [T.numpy() if isinstance(T, torch.Tensor) else T for T in (out if isinstance(out, (tuple, list)) else [out])]


def size(module):
    """The largest sum of the sizes of coefficients, which multiplies the rounding of what they multiply."""
    return max(float(part.A.abs().sum(0).max()) for part in module.modules() if isinstance(part, Plane))


def slack(name, module, wanted):
    """What rounding in float64 makes of coefficients of this size, relative to the range of the values.

    Estimators of the race have kernels with kinks in the product form of distances, which are good to 4e-11.
    """
    return (1e-7 if name.startswith("auto") else 1e-10) + 4e-16 * size(module) / min(np.ptp(b) for b in wanted)


def agree(out, wanted, rtol):
    """Whether all arrays have the shape that is wanted, and values up to rtol of the range of each output."""
    spread = [np.maximum(np.ptp(b, 0), np.abs(b).max(0) / 10) for b in wanted]  # the latter for a constant
    return len(out) == len(wanted) and all(
        a.shape == b.shape and (np.abs(a - b) <= rtol * s).all() for a, b, s in zip(out, wanted, spread))


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    model, values = fitted(name)
    module, rows = to_module(model), torch.from_numpy(NEW)
    out, wanted = listed(module(rows)), values(NEW)
    rounding = slack(name, module, wanted)  # 1e-4 at most, where kernels are so wide that they are all but polynomials
    assert rounding < 1e-4 and agree(out, wanted, rounding)
    single, wanted = listed(module(rows.float())), values(rows.float().double().numpy())
    assert all(a.dtype == np.float32 for a in single) and agree(single, wanted, 1e-6 + rounding)
    one = listed(module(rows[:1]))
    assert agree([np.concatenate([a, b[1:]]) for a, b in zip(one, out)], out, rounding)
    assert not any(T.requires_grad for T in module.buffers()) and not [*module.parameters()]


@pytest.mark.parametrize("name", CASES)
def test_float32_inside(name):
    """As many digits as `predict` has for such rows, or as the sizes of coefficients leave."""
    model, values = fitted(name)
    module, single = to_module(model, torch.float32), NEW.astype(np.float32)
    assert {T.dtype for T in module.buffers() if T.is_floating_point()} == {torch.float32}
    wanted, own = values(single.astype(float)), values(single)
    out = listed(module(torch.from_numpy(single)))
    for a, b, c in zip(out, wanted, own):
        bound = 2e-5 * np.ptp(b) + 4 * np.abs(c - b).max() + 1e-6 * size(module)
        assert a.dtype == np.float32 and np.abs(a - b).max() <= bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_torch_export(name, dtype):
    model, values = fitted(name)
    module, rows = to_module(model), torch.from_numpy(NEW).to(dtype)
    program = torch.export.export(module, (rows,), dynamic_shapes={"x": {0: torch.export.Dim("n")}}).module()
    wanted = values(rows.double().numpy())
    rtol = (1e-6 if dtype == torch.float32 else 0.0) + slack(name, module, wanted)
    assert agree(listed(program(rows)), wanted, rtol)
    for n in (1, 2, 17):
        out = [np.concatenate([a, b[n:]]) for a, b in zip(listed(program(rows[:n])), wanted)]
        assert out[0].dtype == np.float64 and agree(out, wanted, rtol), n


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("kernel", [
    Gaussian(), Laplacian(), Laplacian1(), Cauchy(), Matern(1.5), Matern(2.5), Matern(0.8), PowerExponential(0.7),
    PowerExponential1(0.7), PowerExponential(2.0)], ids=repr)
def test_derivatives_of_all_kinds(kernel):
    """Of what was exported, where no autograd was seen, and by functions; at a centre as well."""
    module = to_module(rt.KernelRidgeRegressor(kernel, bandwidth=None, alpha=0.1).fit(X[:40], Y2[:40]))
    rows = torch.from_numpy(np.vstack([NEW[:3], X[:1]]))
    wanted = torch.autograd.functional.jacobian(module, rows)
    torch.testing.assert_close(torch.func.jacrev(module)(rows), wanted)
    for example in (rows, rows.clone().requires_grad_()):
        program = torch.export.export(module, (example,)).module()
        assert torch.equal(program(rows), module(rows))
        torch.testing.assert_close(torch.autograd.functional.jacobian(program, rows), wanted)
    if not isinstance(kernel, Laplacian1):
        f = lambda rows: module(rows).square().sum()
        torch.testing.assert_close(torch.func.hessian(f)(rows), torch.autograd.functional.hessian(f, rows))


@pytest.fixture
def quiet():
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", IN_ONNX)
def test_onnx(name, quiet):
    model, values = fitted(name)
    rows = torch.from_numpy(NEW).float()
    free = {"x": {0: torch.export.Dim("n")}}
    module = to_module(model)
    onnx = torch.onnx.export(module, (rows,), dynamo=True, dynamic_shapes=free, verbose=False).model_proto
    session, wanted = onnxruntime.InferenceSession(onnx.SerializeToString()), values(rows.double().numpy())
    out, rtol = session.run(None, {"x": rows.numpy()}), 1e-6 + slack(name, module, wanted)
    assert all(a.dtype == np.float32 for a in out) and agree(out, wanted, rtol)
    one = session.run(None, {"x": rows[:1].numpy()})
    assert agree([np.concatenate([a, b[1:]]) for a, b in zip(one, wanted)], wanted, rtol)


@pytest.mark.parametrize("name", ["network", "eigenpro"])
def test_float32_goes_out(name, quiet):
    """With distances by products, and by differences."""
    module, rows = to_module(fitted(name)[0], torch.float32), torch.from_numpy(NEW).float()
    assert [part.by_product for part in module.modules() if isinstance(part, Radial)] == [name == "network"]
    free, wanted = {"x": {0: torch.export.Dim("n")}}, listed(module(rows))
    program = torch.export.export(module, (rows,), dynamic_shapes=free).module()
    onnx = torch.onnx.export(module, (rows,), dynamo=True, dynamic_shapes=free, verbose=False).model_proto
    there = onnxruntime.InferenceSession(onnx.SerializeToString()).run(None, {"x": rows.numpy()})
    assert agree(listed(program(rows)), wanted, 1e-4) and agree(there, wanted, 1e-4)


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_number_is_seen(name):
    """Each tensor times 1.001 changes the values, but for a shift of rows and centres alike."""
    model, values = fitted(name)
    wanted, rows = values(NEW), torch.from_numpy(NEW)
    module, tried = to_module(model), 0
    rtol = 1e-7 + slack(name, module, wanted)
    for part_name, part in module.named_modules():
        for key, T in part.named_buffers(recurse=False):
            if not T.is_floating_point() or not T.any() or (isinstance(part, Radial) and key == "centre"):
                continue
            kept = T.clone()
            T.mul_(1.001)
            assert not agree(listed(module(rows)), wanted, rtol), f"{part_name}.{key}"
            T.copy_(kept)
            tried += 1
    assert tried and agree(listed(module(rows)), wanted, rtol)


KERNELS = [Gaussian(2.0), Gaussian([1.0, 10.0, 0.1, 3.0]), Laplacian(2.0), Laplacian1(3.0), Cauchy(2.0),
           Matern(0.8, 2.0), Matern(1.5, 2.0), Matern(2.5, torch.tensor(2.0)), PowerExponential(0.7, 2.0),
           PowerExponential(2.0, 2.0), PowerExponential1(0.7, 3.0)]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels(kernel):
    """At the centres, beside them, and far from the origin; in float64 by either way, and in float32."""
    for shift in (0.0, 1000.0):
        U = torch.from_numpy(Z[:50] + shift)
        x = torch.cat([U[:5], U[5:10] + 1e-9, U[10:] + 0.1])
        part, exact = Radial(kernel, U), kernel(x, U)
        assert (part(x) - exact).abs().max() < 1e-9
        assert part.by_product == (type(kernel) in (Gaussian, Cauchy) or getattr(kernel, "nu", 0) > 1
                                   or getattr(kernel, "exponent", 0) == 2)
    single = Radial(kernel, torch.from_numpy(Z[:50])).float()
    x = torch.from_numpy(Z).float()
    assert (single(x).double() - kernel(x.double(), single.U.double())).abs().max() < 1e-5


@pytest.mark.parametrize("dtype, most", [(torch.float64, 7e-11), (torch.float32, 5e-5)], ids=str)
def test_products_where_they_lose_little(dtype, most, monkeypatch):
    """Whatever the bandwidth, a centre far out among them, and rows at the centres, beside them, beyond them and far away."""
    U = torch.from_numpy(Z).to(dtype).double()
    sentinel = torch.cat([U, torch.full((1, 4), 1e8, dtype=torch.float64)])
    for centres in (U, U + 1000, sentinel):
        x = torch.cat([T * centres + (1 - T) * centres.median(0).values for T in (1, 1.001, 2, 1e3, 1e9)])
        centres, x = centres.to(dtype).double(), x.to(dtype)
        for kernel in (make(width) for make in (Gaussian, Cauchy, lambda b: Matern(1.5, b), lambda b: Matern(1.1, b))
                       for width in (2.0, 0.2, 0.1, 0.01)):
            part = Radial(kernel, centres).to(dtype)
            assert (part(x).double() - kernel(x.double(), centres)).abs().max() < most
    wide = Radial(Gaussian(40.0), np.random.default_rng(0).normal(size=(20, 784))).to(dtype)
    monkeypatch.setattr(Radial, "_by_differences", None)
    assert wide(wide.U).diagonal().sub(1).abs().max() < 16 * torch.finfo(dtype).eps


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_no_row_is_too_far(kernel):
    for dtype in (torch.float64, torch.float32):
        part, far = Radial(kernel, torch.from_numpy(Z[:50])).to(dtype), torch.finfo(dtype).max
        values = part(torch.tensor([[far / 1e3] * 4, [-far, 0.0, 0.0, 0.0], [far**0.6, 0.0, 1.0, -far**0.6]], dtype=dtype))
        assert ((0 <= values) & (values < 1e-15)).all()


def test_components_take_the_means_that_are_there(monkeypatch):
    model, values = fitted("kernel components")
    monkeypatch.setattr(Radial, "forward", None)
    module = to_module(model)
    monkeypatch.undo()
    assert agree(listed(module(torch.from_numpy(NEW))), values(NEW), slack("kernel components", module, values(NEW)))


def test_the_constant_that_is_all():
    model = rt.AutoKernelRegressor().fit(np.ones((20, 2)), Y1[:20])
    assert agree(listed(to_module(model)(torch.from_numpy(NEW[:, :2]))), [model.predict(NEW[:, :2])], 1e-9)


def test_columns_that_do_not_vary():
    A = np.c_[X, np.ones(len(X))][:, [4, 0, 1, 2, 3]]
    model = rt.AutoKernelRegressor().fit(A, Y1)
    module = to_module(model)
    error = np.abs(module(torch.from_numpy(A)).numpy() - model.predict(A)).max()
    assert error < 1e-6 * np.ptp(Y1) + 2.2e-16 * size(module)  # coefficients add up to more than 1e10 here
    model = rt.RFMRegressor(n_rounds=1).fit(A, Y1)
    assert np.abs(to_module(model)(torch.from_numpy(A)).numpy() - model.predict(A)).max() < 1e-9 * np.ptp(Y1)


def test_members_add_up_to_the_prediction():
    model, values = fitted("auto")
    table = torch.from_numpy(model.table_.transform(NEW))
    added = sum(m(table) for m in model.members_).numpy()
    assert agree([added], values(NEW), slack("auto", to_module(model), values(NEW)))


def test_numbers_keep_their_digits():
    """Lists are not rounded to float32, and two classes have the digits that float64 has."""
    assert Plane([[0.1]], [0.3])(torch.ones(1, 1).double()).item() == 0.1 + 0.3
    model, values = fitted("auto two classes")
    for found, wanted in zip(listed(to_module(model)(torch.from_numpy(NEW))), values(NEW)):
        assert np.abs(found - wanted).max() < 1e-10 * np.abs(wanted).max()


@pytest.mark.parametrize("model", [rt.StreamingRidge(), rt.RBFRegressor(20, alpha=0.1, random_state=0), rt.SparsePCE(2, n_folds=None)],
                         ids=["sums", "network", "chaos"])
def test_a_module_owns_its_numbers(model):
    """What is done to them changes nothing in the model."""
    before = model.fit(Z, Y1).predict(Z)
    for T in to_module(model).buffers():
        T.zero_()
    np.testing.assert_array_equal(model.predict(Z), before)


def test_rows_of_integers_are_refused():
    """Values in their dtype would be truncated."""
    module = to_module(fitted("waves")[0])
    for dtype in (torch.int64, torch.bool):
        with pytest.raises(TypeError, match=f"rows must be a floating tensor, got one of {dtype}"):
            module(torch.ones(3, 4, dtype=dtype))


def test_gradients():
    """Slopes of the module are those of the estimator for tensors."""
    model, _ = fitted("waves")
    x = torch.from_numpy(NEW).requires_grad_()
    slopes = torch.autograd.grad(to_module(model)(x).sum(), x)[0]
    step = 1e-4 * X.std(0)
    for j in range(4):
        move = np.eye(4)[j] * step[j]
        rate = (model.predict(NEW + move) - model.predict(NEW - move)) / (2 * step[j])
        assert np.abs(slopes[:, j].numpy() - rate).max() < 1e-5 * np.abs(rate).max()


def test_refusals():
    words = np.where(X[:, :1] > 5, "more", "less").astype(object)
    worded = rt.AutoKernelRegressor().fit(np.hstack([X.astype(object), words])[:40], Y1[:40])
    gaps = X.copy()
    gaps[3, 1] = np.nan
    for model, error, said in [
        (rt.StreamingRidge(), NotFittedError, "not fitted"),
        (Lasso().fit(X, Y1), TypeError, "no rule for Lasso"),
        (scaled(Lasso()).fit(X, Y1), TypeError, "no rule for Lasso"),
        (worded, TypeError, "levels or gaps in x4"),
        (rt.AutoKernelRegressor().fit(gaps, Y1), TypeError, "levels or gaps in x1"),
        (rt.SparsePCE(2, outside="raise", n_folds=None).fit(X, Y1), TypeError, "outside='raise'"),
    ]:
        with pytest.raises(error, match=said):
            to_module(model)
    with pytest.raises(TypeError, match="dtype must be"):
        to_module(fitted("waves")[0], torch.float16)


@pytest.mark.parametrize("name", ["network", "eigenpro", "pairs"])
def test_autocast_does_not_reach_modules(name, quiet):
    """By products, by differences and by waves; and when it is exported there."""
    rows = torch.from_numpy(NEW).float()
    module = to_module(fitted(name)[0], torch.float32)
    wanted = module(rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module(rows), wanted)
        program = torch.export.export(module, (rows,)).module()
        assert torch.allclose(program(rows), wanted)


def test_half_precision_inside_is_refused():
    module = to_module(fitted("waves")[0])
    before = [T.clone() for T in module.buffers()]
    for change in (module.half, module.bfloat16, torch.nn.Sequential(module).half):
        with pytest.raises(TypeError, match="computes in torch.float64 or torch.float32, got torch.b?float16"):
            change()
    assert all(torch.equal(a, b) for a, b in zip(module.buffers(), before))


def test_modules_on_the_meta_device_and_under_another_default():
    """What a shape costs nothing to ask for."""
    X = np.random.default_rng(0).normal(size=(30, 2))
    net = to_module(rt.KernelRidgeRegressor().fit(X, X[:, 0]))
    torch.set_default_dtype(torch.float16)
    try:
        assert net.to("cpu") is net
    finally:
        torch.set_default_dtype(torch.float32)
    assert net.to("meta")(torch.empty(5, 2, device="meta", dtype=torch.float64)).shape == (5,)
