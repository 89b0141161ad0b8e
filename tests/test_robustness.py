"""Every estimator under everything that may go wrong, with few inputs; and the checks reject what is broken."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin, is_classifier, is_regressor
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter
from threadpoolctl import threadpool_info, threadpool_limits

import rfteach.arrays
import robustness
from rfteach.arrays import all_or_nothing, as_tensor, one_pool, validate_input
from robustness import CHECKS, Case, array, run, value

FEW = {"threads": 4, "searches": 4, "interrupts": 4, "repeats": 3, "memory": 1}  # examples, before `SLOW`
QUICK = ("RandomFeatureRidge",)  # whose memory is measured here
TABLE = robustness.cases()


def test_no_estimator_is_missing():
    public = robustness.public_estimators() | {"Attention"}
    assert not (new := public - set(TABLE)), f"To mend: write a Case for {new} in cases() of benchmarks/robustness.py"
    assert not (gone := set(TABLE) - public), f"To mend: enter {gone} in _PUBLIC of rfteach/__init__.py, or remove the Case"


def test_a_new_estimator_would_be_missed(monkeypatch):
    import rfteach.streaming

    new = type("NewRegressor", (rfteach.streaming.StreamingRidge,), {"__module__": "rfteach.streaming"})
    monkeypatch.setattr(rfteach.streaming, "NewRegressor", new, raising=False)
    assert robustness.public_estimators() - set(TABLE) == {"NewRegressor"}


PAIRS = [(name, check) for name, case in TABLE.items() for check in CHECKS
         if check not in case.skip and (check != "memory" or name in QUICK)]  # the command measures the others


@pytest.mark.parametrize("name, check", PAIRS)
def test_robust(name, check):
    found = run(TABLE[name], check, FEW.get(check, 4))
    assert not found["failures"], "\n".join(f"{f['input']}\n{f['error']}" for f in found["failures"])
    assert found["inputs"] > 0


@pytest.mark.parametrize("kind", [np.asarray, lambda X: pd.DataFrame(X, columns=list("abc")), torch.from_numpy],
                         ids=["numpy", "pandas", "torch"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", TABLE)
def test_scikit_learns_global_setting_does_not_matter(name, kind):
    """Frames that transformers hand out inside: the same numbers, and no warnings."""
    case, rng = TABLE[name], np.random.default_rng(0)
    X = rng.random((40, 3))
    y = np.sin(3 * X[:, 0])
    y, X = (y > 0.5) * 1.0 if is_classifier(case.make()) else y, kind(X)

    def results():
        model = case.make().fit(X, y)
        ways = {way: getattr(model, way) for way in ("predict", "transform", "predict_interval", "predict_proba") if hasattr(model, way)}
        found = {way: array(call(X)) for way, call in ways.items()}
        if hasattr(model, "sample_functions"):
            found.update(std=array(model.predict(X, return_std=True)[1]), draws=array(model.sample_functions(2, 0)(X)))
        if isinstance(X, torch.Tensor) and not is_classifier(model) and hasattr(model, "predict"):
            T = X.clone().requires_grad_()
            if (values := model.predict(T)).requires_grad:  # a constant does not
                values.sum().backward()
                found["gradient"] = T.grad.numpy()
        return found

    right = results()
    with config_context(transform_output="pandas"):
        found = results()
    assert found.keys() == right.keys()
    for way, values in right.items():
        np.testing.assert_array_equal(found[way], values, way)


def test_ctrl_c_leaves_the_threads_as_they_were():
    """At whichever line of `one_pool` it comes, the next one that leaves has set them back."""
    threads = lambda: [pool["num_threads"] for pool in threadpool_info() if pool["prefix"] == "libscipy_openblas"]

    def visit():
        with one_pool():
            assert set(threads()) <= {1}

    with threadpool_limits(2):
        before, stopped = threads(), 0
        for line in range(20):
            try:
                with robustness.Stop([Path(rfteach.arrays.__file__)], line):
                    visit()
            except KeyboardInterrupt:
                stopped += 1
            visit()
            assert threads() == before, line
    assert stopped > 8


# ---- data in half precision
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [name for name, case in TABLE.items() if is_regressor(case.make())])
def test_targets_may_be_larger_than_inputs_in_half_precision(name):
    X = np.random.default_rng(0).normal(size=(24, 3))
    y = 2e5 * (1 + 0.1 * np.sin(X[:, 0]))
    for given in (X.astype(np.float16), torch.from_numpy(X).half(), torch.from_numpy(X).bfloat16()):
        found = TABLE[name].make().fit(given, y).predict(given)
        assert found.dtype in (np.float32, torch.float32)
        assert np.abs(np.asarray(found) / y - 1).max() < 0.3


# ---- masked arrays
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [name for name in TABLE if name != "Attention"])
def test_masked_arrays_are_refused(name, small):
    """NumPy would use the values that are masked."""
    X, y = small
    case = TABLE[name]
    masked = [np.ma.masked_equal(np.ma.array(A), A.flat[0]) for A in (X, y, np.arange(1, len(y) + 1))]
    for wrong, word in ((masked[0], "X"), (list(masked[0]), "X")):
        with pytest.raises(ValueError, match=f"{word} is a masked array"):
            case.make().fit(wrong, y)
        with pytest.raises(ValueError, match=f"{word} is a masked array"):
            value(case.make().fit(X, y), wrong)
    frame = pd.DataFrame(X).astype("Float64")
    frame.iloc[2, 1] = pd.NA
    if not get_tags(case.make()).input_tags.allow_nan:  # else a gap says something
        with pytest.raises(ValueError, match=r"\bX\b.*NaN"):
            case.make().fit(frame, y)
    if is_regressor(case.make()) or is_classifier(case.make()):
        with pytest.raises(ValueError, match="y is a masked array"):
            case.make().fit(X, masked[1])
    if has_fit_parameter(case.make(), "sample_weight"):
        with pytest.raises(ValueError, match="sample_weight is a masked array"):
            case.make().fit(X, y, sample_weight=masked[2])


# ---- what belongs to the process
@pytest.fixture(scope="module")
def small():
    """Rows, and labels that are targets as well."""
    X = np.random.default_rng(0).normal(size=(24, 3))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", TABLE)
def test_filters_of_warnings_are_left_alone(name, small, monkeypatch):
    """They belong to the process: two threads that change them for a while may leave them changed."""
    seen = []

    class Watched(warnings.catch_warnings):
        def __enter__(self):
            seen.append(sys._getframe(1).f_globals["__name__"])
            return super().__enter__()

    X, y = small[0].copy(), small[1]
    X.flags.writeable = False
    before = list(warnings.filters)
    monkeypatch.setattr(warnings, "catch_warnings", Watched)
    value(TABLE[name].make().fit(X, y), X)
    assert warnings.filters == before
    assert not [module for module in seen if module.startswith("rfteach.")]


def test_what_changes_filters_for_a_while():
    """What runs code of students, or one thing at a time; whatever else need not hear of its iterations has `content`."""
    files = Path(rfteach.arrays.__file__).parent.glob("*.py")
    assert {f.stem for f in files if "catch_warnings()" in f.read_text()} == {"answers", "datasets", "grading", "sobol"}


@pytest.fixture
def torch_defaults():
    """A function that sets torch's default dtype and device; they are put back."""
    dtype, device = torch.get_default_dtype(), torch.get_default_device()

    def put(dtype, device):
        torch.set_default_dtype(dtype)
        torch.set_default_device(device)

    yield put
    put(dtype, None if device == torch.device("cpu") else device)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [name for name in TABLE if name != "Attention"])  # a layer is torch's own
def test_defaults_of_torch_change_nothing(name, small, torch_defaults):
    """On the device "meta" there are no numbers, so a tensor that does not say where it is cannot pass unseen."""
    X, y = small
    found = []
    for defaults in ((torch.float32, None), (torch.float64, None), (torch.float32, "meta")):
        torch_defaults(*defaults)
        for given in (X, X.astype(np.float32), torch.from_numpy(X)):
            model = TABLE[name].make().fit(given, y)
            found.append([array(value(model, given))])
            for method, arguments in (("score", (given, y)), ("inverse_transform", (value(model, given),))):
                if hasattr(model, method):
                    found[-1].append(array(getattr(model, method)(*arguments)))
    for other in (found[3:6], found[6:]):
        for expected, results in zip(found[:3], other, strict=True):
            assert all(map(np.array_equal, expected, results))
            assert [r.dtype for r in results] == [r.dtype for r in expected]


def of_functions(X, y):
    """Results of what the fits of the table do not reach."""
    from rfteach import (RandomFeatureRidge, SparsePCE, ProjectedSurrogate, SRFERegressor, basis_pursuit_denoising,
                         cosamp, htp, omp, random_feature_attention, ridge_path, sobol_indices)

    waves = SRFERegressor(30, random_state=0).fit(X, y)
    relu = SRFERegressor(30, activation="relu", random_state=0).fit(X, y)
    yield from (waves.interaction_strengths(), relu.interaction_strengths())
    yield from (sobol_indices(m, bounds=[[-1, 1]] * 3).total for m in (RandomFeatureRidge().fit(X, y), waves, relu))
    yield ProjectedSurrogate(None, SparsePCE(2), optimizer="adam", budget=5, random_state=0).fit(X, y).predict(X)
    A = np.sin(np.outer(np.arange(1, 21), np.arange(1, 41)))
    yield from (solve(A, A[:, 3], 2).coef for solve in (omp, htp, cosamp))
    yield from (basis_pursuit_denoising(A, A[:, 3], 0.1).coef, ridge_path(A, A[:, 3], [0.1, 1.0]).coef)
    q = np.resize(X, (2, 200, 4))
    for kind in ("positive", "trigonometric"):
        yield random_feature_attention(q, q, q, kind=kind, random_state=0)
    yield random_feature_attention(q, q, q, causal=True, gate=np.full(200, 0.9), random_state=0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_defaults_of_torch_change_no_function(small, torch_defaults):
    X, y = small[0], np.sin(small[0][:, 0])
    expected = list(of_functions(X, y))
    for defaults in ((torch.float64, None), (torch.float32, "meta")):
        torch_defaults(*defaults)
        for number, found in enumerate(of_functions(X, y)):
            assert found.dtype == expected[number].dtype and np.array_equal(found, expected[number]), number


# ---- estimators that are broken on purpose, each for one check
class Sound(RegressorMixin, BaseEstimator):
    """Ridge regression in a few lines, which passes every check; each mutant differs in one place."""

    def __init__(self, alpha=1e-3, random_state=0):
        self.alpha = alpha
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X, y):
        X = validate_input(self, X, reset=True)[0].double().numpy()
        y = as_tensor(y, name="y", ndim=1)[0].double().numpy()
        mean, offset = X.mean(0), y.mean()
        scale = np.abs(X - mean).max() or 1.0
        A = (X - mean) / scale
        coef = np.linalg.solve(A.T @ A + self.alpha * np.eye(A.shape[1]), A.T @ (y - offset)) / scale
        self._keep(coef, offset - mean @ coef)
        return self

    def _keep(self, coef, intercept):
        vars(self).update(coef_=coef, intercept_=intercept)

    def predict(self, X):
        check_is_fitted(self, "coef_")
        T, like = validate_input(self, X, reset=False)
        return like.restore(torch.from_numpy(T.double().numpy() @ self.coef_ + self.intercept_))


class GivesNaN(Sound):
    def predict(self, X):
        out = super().predict(X)
        return out * np.nan if len(out) == 1 else out


class RefusesOneRow(Sound):
    def fit(self, X, y):
        if len(X) == 1:
            raise ValueError("X must have two rows")
        return super().fit(X, y)


class Widens(Sound):
    def predict(self, X):
        out = super().predict(X)
        return out.double() if isinstance(out, torch.Tensor) else out.astype(np.float64)


class AlwaysNumPy(Sound):
    def predict(self, X):
        return np.asarray(super().predict(X))


class Overflows(Sound):
    def fit(self, X, y):
        return super().fit(X, np.square(np.square(y)) / np.square(np.square(y)) * y)


class KnowsItsUnit(Sound):
    def fit(self, X, y):
        super().fit(X, y)
        self._keep(self.coef_ + 1e-3, self.intercept_)
        return self


class WritesToX(Sound):
    def fit(self, X, y):
        super().fit(X, y)
        if isinstance(X, np.ndarray) and X.flags.writeable:
            X[0] += 1.0
        return self


class ReadsMemory(Sound):
    """As a C routine does that takes each array for a contiguous one."""

    def predict(self, X):
        out = super().predict(X)
        return out if not isinstance(X, np.ndarray) or X.flags.c_contiguous else out[::-1]


class IgnoresNames(Sound):
    def predict(self, X):
        return super().predict(X.to_numpy()[:, : self.n_features_in_] if hasattr(X, "to_numpy") else X)


class TakesNaN(Sound):
    def fit(self, X, y):
        return super().fit(np.nan_to_num(np.asarray(X)), np.nan_to_num(y))


class ForgetsNothing(Sound):
    def _keep(self, coef, intercept):
        super()._keep(coef, intercept + (0.1 if hasattr(self, "coef_") else 0.0))


class Unseeded(Sound):
    def _keep(self, coef, intercept):
        super()._keep(coef, intercept + 1e-9 * np.random.default_rng().random())


class SeedsTorch(Sound):
    def predict(self, X):
        torch.manual_seed(0)
        return super().predict(X)


class DrawsFromNumPy(Sound):
    def predict(self, X):
        np.random.random()
        return super().predict(X)


class CountsThreads(Sound):
    def predict(self, X):
        return super().predict(X) + 1e-3 * torch.get_num_threads()


class LosesOnPickling(Sound):
    def __getstate__(self):
        return {**super().__getstate__(), "intercept_": 0.0}


class ChangesParameters(Sound):
    def fit(self, X, y):
        super().fit(X, y)
        self.alpha = float(self.alpha) + 1e-9
        return self


class HalfFitted(Sound):
    fit = Sound.fit.__wrapped__


class InPlace(Sound):
    partial_fit = Sound.fit  # called with as many columns as before, unlike `fit`

    def _keep(self, coef, intercept):
        if getattr(self, "coef_", np.empty(0)).shape != coef.shape:
            return super()._keep(coef, intercept)
        for j in range(len(coef)):
            self.coef_[j] = coef[j]
        self.intercept_ = intercept


class SwallowsCtrlC(Sound):
    def fit(self, X, y):
        try:
            return super().fit(X, y)
        except KeyboardInterrupt:
            return super().fit(X, y)


class HoldsAll(TransformerMixin, BaseEstimator):
    """All rows against ``n_components`` points, held at once and twice."""

    def __init__(self, n_components=8):
        self.n_components = n_components

    def fit(self, X, y=None):
        self.points_ = np.resize(np.arange(3.0), (self.n_components, X.shape[1]))
        return self

    def transform(self, X):
        Z = X @ self.points_.T
        return (Z + Z.copy()).sum(1) + Z[:, 0]


MUTANTS = [(GivesNaN, "shapes"), (RefusesOneRow, "shapes"), (Widens, "dtypes"), (AlwaysNumPy, "dtypes"),
           (Overflows, "scales"),
           (KnowsItsUnit, "scales"), (WritesToX, "layouts"), (ReadsMemory, "layouts"), (IgnoresNames, "frames"),
           (TakesNaN, "not finite"), (ForgetsNothing, "repeats"), (Unseeded, "repeats"), (SeedsTorch, "repeats"),
           (DrawsFromNumPy, "repeats"), (CountsThreads, "threads"), (LosesOnPickling, "copies"),
           (ChangesParameters, "searches"), (HalfFitted, "interrupts"), (InPlace, "interrupts"),
           (SwallowsCtrlC, "interrupts")]


def case_of(kind):
    parts = {} if hasattr(kind, "partial_fit") else None
    return Case(kind, {"alpha": [0.1, 1.0]}, True, True, parts=parts)


@pytest.mark.parametrize("kind, check", MUTANTS, ids=lambda v: getattr(v, "__name__", v))
def test_a_mutant_is_rejected(kind, check):
    assert run(case_of(kind), check, 200)["failures"], f"{kind.__name__} passes {check!r}"


@pytest.mark.parametrize("check", [check for check in CHECKS if check != "memory"])
def test_the_sound_one_passes(check):
    """Without this the mutants would prove nothing: each could fail for what it shares with the sound one."""
    found = run(case_of(Sound), check, 120)
    assert found["inputs"] > 0 and not found["failures"], found


HOLDS_ALL = Case(HoldsAll, {}, large=(40_000, {"n_components": 400}, 400, 6 * 400**2))


@pytest.mark.parametrize("name", [name for name, case in TABLE.items() if case.large])
def test_the_memory_check_could_fail(name):
    """To hold the n × N matrix, beside the result, would be half as much again as what is allowed."""
    n, _, N, _ = TABLE[name].large
    result = 8 * n * N if hasattr(TABLE[name].make(), "get_feature_names_out") else 8 * n
    assert 8 * n * N + result > 1.5 * robustness.held(TABLE[name], result)


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no high-water mark to reset here")
def test_the_memory_check_rejects_what_holds_all(monkeypatch):
    def child(name):
        script = ("import robustness, test_robustness as tests; "
                  "robustness.cases = lambda: {'HoldsAll': tests.HOLDS_ALL}; robustness.memory_here('HoldsAll')")
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path},
                              text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    monkeypatch.setattr(robustness, "child", child)
    with pytest.raises(AssertionError, match="MiB, promised"):
        robustness.memory(HOLDS_ALL, lambda strategy, label: None)


def test_the_smallest_failing_input_is_told():
    found = run(case_of(GivesNaN), "shapes", 120)["failures"]
    assert len(found) == 1 and found[0]["input"]["n"] == "1" and "nan" in found[0]["error"]


def test_the_command_keeps_what_it_finds(tmp_path, capsys):
    file = tmp_path / "robustness.json"
    robustness.main(["StreamingRidge", "--examples", "3", "--checks", "shapes", "--out", str(file)])
    robustness.main(["SparsePCE", "--examples", "3", "--checks", "frames", "--out", str(file)])
    record = json.loads(file.read_text(encoding="utf-8"))
    assert set(record) == {"machine", "date", "estimators"} and "hypothesis" in record["machine"]
    assert {name: set(rows) for name, rows in record["estimators"].items()} == {
        "StreamingRidge": {"shapes"}, "SparsePCE": {"frames"}}
    assert record["estimators"]["StreamingRidge"]["shapes"]["inputs"] == 3
    assert record["estimators"]["SparsePCE"]["frames"]["survived"] > 0
    assert "faults survived" in capsys.readouterr().out and str(tmp_path) not in file.read_text(encoding="utf-8")
    robustness.main(["--list"])
    assert {*TABLE, *CHECKS} <= set(capsys.readouterr().out.split("\n"))
    with pytest.raises(SystemExit):
        robustness.main(["no-such-estimator"])
    assert "no-such-estimator" in capsys.readouterr().err


def test_the_kept_record_is_whole_and_without_failures():
    record = json.loads((robustness.RESULTS / "robustness.json").read_text(encoding="utf-8"))
    assert set(record["estimators"]) == set(TABLE)
    for name, found in record["estimators"].items():
        assert set(found) == set(CHECKS), name
        assert not any(row["failures"] for row in found.values()), name
