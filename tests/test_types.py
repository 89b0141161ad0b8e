"""The annotations: complete, true of what comes back, and such that a type checker helps a user."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import torch

import notebooks
import rfteach
from rfteach import (
    agop, arrays, attention, bandwidth, bpdn, chaos, conjugate, copies, datasets, effects, features, kernel_ridge, kernels,
    orderq, pca, plots, preconditioning, pursuit, rbf, ridge, sobol, stable, swarm, uncertainty,
)
from rfteach.evidence import components, run, verdicts

ROOT = notebooks.ROOT


def members(keep):
    """Return ``{"module.name": thing}`` of the public things of all public modules that `keep` takes."""
    modules = {name: importlib.import_module(f"rfteach.{name}") for name in rfteach._PUBLIC}
    things = {f"{name}.{key}": getattr(module, key) for name, module in modules.items() for key in module.__all__}
    return {name: thing for name, thing in things.items() if keep(thing)}


def test_public_functions_are_annotated():
    functions, bare = members(inspect.isfunction), []
    assert len(functions) > 90, "the search for public functions finds too few"
    for name, function in functions.items():
        hints = typing.get_type_hints(function)  # also resolves names that are written as strings
        bare += [f"{name}: {key}" for key in [*inspect.signature(function).parameters, "return"] if key not in hints]
    assert not bare, "To mend: annotate in the notebook, with the names that rfteach.arrays has, then: make sync"


def test_fields_say_what_they_hold():
    results = members(lambda thing: inspect.isclass(thing) and is_dataclass(thing))
    assert len(results) > 15, "the search for public dataclasses finds too few"
    vague = [f"{name}.{field.name}" for name, result in results.items() for field in fields(result)
             if field.type in (object, tuple, list, dict)]
    assert not vague, "To mend: say in the annotation what is in it, such as tuple[float, ...]"


def holds(value, hint):
    """Return whether a value is what an annotation says; Any stands for a data frame."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any:
        return hasattr(value, "iloc")
    if origin in (typing.Union, types.UnionType):
        return any(holds(value, choice) for choice in inner)
    if origin is tuple:
        inner = inner[:1] * len(value) if inner[-1] is ... else inner
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(holds, value, inner))
    if origin is list:
        return isinstance(value, list) and all(holds(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(holds(pair, tuple[inner]) for pair in value.items())
    if origin is Iterator:
        return isinstance(value, Iterator) and holds(next(value), inner[0])
    if not isinstance(value, hint) or isinstance(value, bool) and hint is not bool:
        return False
    hints = typing.get_type_hints(hint) if is_dataclass(hint) and hint is not arrays.Like else {}
    return all(holds(getattr(value, name), kind) for name, kind in hints.items())


def test_the_check_of_values_can_fail():
    wrong = [(1, float), (np.int64(1), int), (True, int), (None, float), ([1.0], arrays.Array), (1.0, arrays.Array),
             (np.ones(2), float | torch.Tensor), ((1.0, 2), tuple[float, ...]), ((1.0,), tuple[float, int]),
             ({(1,): "a"}, dict[tuple[int, ...], float]), (plots.Rate("1", 0.0, 0.0), plots.Rate)]
    assert not [pair for pair in wrong if holds(*pair)]


rng = np.random.default_rng(0)
W, K, BOX = rng.standard_normal((5, 3)), np.diag([4.0, 3.0, 2.0, 1.0]), [[0.0, 1.0]] * 3
UNIT = np.random.default_rng(1).random((40, 3))
CALLS = [  # functions, their arguments made from X of shape (12, 3) and y of shape (12,), and options
    (arrays.as_tensor, lambda X, y: [X]),
    (arrays.block_bytes, lambda X, y: []),
    (arrays.random_generator, lambda X, y: [1]),
    (arrays.resolve_device, lambda X, y: ["cpu"]),
    (arrays.row_blocks, lambda X, y: [9, 8]),
    (copies.distinct_rows, lambda X, y: [torch.ones(2, 3)]),
    (copies.merge_copies, lambda X, y: [torch.ones(2, 3), torch.ones(2, 1)]),
    (datasets.sobol_g, lambda X, y: [X, [0.0, 1.0, 9.0]]),
    (datasets.sobol_g_moments, lambda X, y: [[0.0, 1.0, 9.0]]),
    (datasets.gaussian_bump, lambda X, y: [X, [0.0, 1.0, 9.0]]),
    (datasets.ishigami, lambda X, y: [X]),
    (datasets.ishigami_moments, lambda X, y: []),
    (datasets.cache_dir, lambda X, y: []),
    (plots.fit_rate, lambda X, y: [[1, 2, 3], [1.0, 0.5, 0.4]]),
    (kernels.Gaussian(2.0).__call__, lambda X, y: [X]),
    (kernels.Gaussian(2.0).diag, lambda X, y: [X]),
    (kernels.Gaussian(2.0).frequencies, lambda X, y: [4, 3, 0]),
    (kernels.Gaussian(torch.tensor(2.0)).frequencies, lambda X, y: [4, 3, 0]),
    (kernels.Gaussian(2.0).log_spectral_density, lambda X, y: [X]),
    (kernels.Laplacian1().n_uniforms, lambda X, y: [3]),
    (kernels.as_kernel, lambda X, y: ["laplacian", 2.0]),
    (kernels.gram_blocks, lambda X, y: ["gaussian", X]),
    (stable.PowerExponential(1.5).__call__, lambda X, y: [X]),
    (stable.PowerExponential1().frequencies, lambda X, y: [4, 3, 0]),
    (stable.positive_stable, lambda X, y: [0.5, np.full((3, 2), 0.5)]),
    (features.feature_variance, lambda X, y: ["gaussian", X, X, 8]),
    (features.n_components_bound, lambda X, y: [0.1]),
    (features.fourier_features, lambda X, y: [X, W]),
    (features.sample_frequencies, lambda X, y: ["gaussian", 4, 3]),
    (features.RandomFourierFeatures(n_components=4).fit, lambda X, y: [X]),
    (features.RandomFourierFeatures(n_components=4).fit(W).transform, lambda X, y: [np.asarray(X)]),
    (ridge.ridge, lambda X, y: [X, y, 0.1]),
    (ridge.pinv_solve, lambda X, y: [X, y]),
    (ridge.ridge_path, lambda X, y: [X, y, [0.1, 1.0]]),
    (ridge.loo_error, lambda X, y: [X, y, 0.1]),
    (ridge.loo_error, lambda X, y: [X, y, [0.1, 1.0]]),
    (kernel_ridge.gram_path, lambda X, y: [kernels.Laplacian()(X), y]),
    (kernel_ridge.gram_path(K, K[0]).dual, lambda X, y: [0.1]),
    (kernel_ridge.gram_solve, lambda X, y: [kernels.Laplacian()(X), y, 0.1]),
    (conjugate.gram_cg, lambda X, y: ["laplacian", X, y, 0.1]),
    (kernel_ridge.gram_times, lambda X, y: ["laplacian", X, X, y]),
    (agop.kernel_gradients, lambda X, y: ["gaussian", X, X, y]),
    (uncertainty.posterior, lambda X, y: [X, y]),
    (uncertainty.posterior(W, W[:, 0]).influence, lambda X, y: [np.asarray(X), np.asarray(X)]),
    (uncertainty.jackknife_plus, lambda X, y: [X, y, 1.0, X, 0.5]),
    (uncertainty.pathwise, lambda X, y: ["gaussian", X, y, 0.1]),
    (uncertainty.local_scale, lambda X, y: [X, y]),
    (rfteach.StreamingRidge().fit(W, W[:, 0]).predict, lambda X, y: [np.asarray(X)]),
    (rfteach.RandomFeatureRidgeClassifier().fit(W, list("aabba")).predict, lambda X, y: [np.asarray(X)]),
    (bandwidth.median_bandwidth, lambda X, y: [X]),
    (bandwidth.fit_kernel, lambda X, y: ["laplacian", "median", X]),
    (bandwidth.learn_bandwidth, lambda X, y: [X, y]),
    (rbf.NystroemFeatures(n_components=4).fit(W).transform, lambda X, y: [np.asarray(X)]),
    (orderq.sparse_frequencies, lambda X, y: [6, 3, 2]),
    (orderq.feature_matrix, lambda X, y: [X, W]),
    (bpdn.basis_pursuit_denoising, lambda X, y: [X if isinstance(X, torch.Tensor) else np.asarray(X), y, 3.0]),
    (orderq.n_features_bound, lambda X, y: [0.1, 2, 5]),
    (orderq.n_samples_bound, lambda X, y: [100, 2, 5]),
    (pursuit.harfe, lambda X, y: [X, y, 2, 0.1]),
    (pursuit.htp, lambda X, y: [X, y, 2]),
    (pursuit.omp, lambda X, y: [X, y, 2]),
    (pursuit.cosamp, lambda X, y: [X, y, 1]),
    (pursuit.prune, lambda X, y: [X, y, 2, 0.1]),
    (preconditioning.top_eigensystem, lambda X, y: [K, 2]),
    (preconditioning.preconditioner, lambda X, y: [K, 2]),
    (preconditioning.critical_batch_size, lambda X, y: [1.0, 0.1]),
    (preconditioning.largest_step, lambda X, y: [5, 1.0, 0.1]),
    (pca.reconstruction_error, lambda X, y: [X, W[0]]),
    (pca.reconstruction_gradient, lambda X, y: [X, W[0]]),
    (components.source_component, lambda X, y: [np.asarray(X) / 9]),
    (components.source_components, lambda X, y: [X, 2]),
    (components.source_features, lambda X, y: [X, W[:2]]),
    (pca.leading_components, lambda X, y: [torch.from_numpy(K), 2]),
    (chaos.multi_indices, lambda X, y: [3, 2]),
    (chaos.legendre_basis, lambda X, y: [X, [[0, 1, 2]]]),
    (chaos.loo_path, lambda X, y: [X, y]),
    (swarm.particle_swarm, lambda X, y: [lambda P: (P**2).sum(1), BOX]),
    (sobol.sobol_indices, lambda X, y: [lambda P: P[:, 0] + P[:, 1]], {"bounds": BOX, "order": 2}),
    (sobol.sobol_indices, lambda X, y: [chaos.SparsePCE(degree=2).fit(np.asarray(X), np.asarray(y))]),
    (effects.sensitivity, lambda X, y: [UNIT, UNIT.sum(1), chaos.SparsePCE(1)], {"noise": True, "n_folds": 2}),
    (attention.relative_variance, lambda X, y: [X, X, 8]),
    (attention.optimal_tilt, lambda X, y: [2.0, 4]),
    (attention.attention_frequencies, lambda X, y: [8, 4]),
    (attention.random_feature_attention, lambda X, y: [X, X, X]),
    (verdicts.half_digit, lambda X, y: ["0.12"]),
    (verdicts.standard_error, lambda X, y: [[1.0, 2.0, 4.0]]),
    (run.plan, lambda X, y: []),
]


@pytest.mark.parametrize("kind", ["list", "numpy", "torch", "pandas"])
def test_what_comes_back_is_as_annotated(kind):
    make = {"list": lambda A: A.tolist(), "numpy": lambda A: A, "torch": torch.from_numpy,
            "pandas": lambda A: getattr(pytest.importorskip("pandas"), ["Series", "DataFrame"][A.ndim - 1])(A)}[kind]
    draw = np.random.default_rng(1)
    X, y = draw.uniform(0.05, 0.95, (12, 3)), draw.standard_normal(12)
    untrue = []
    for function, arguments, *options in CALLS:
        name, hint = function.__qualname__, typing.get_type_hints(function)["return"]
        hint = type(function.__self__) if hint is typing.Self else hint
        value = function(*arguments(make(X), make(y)), **dict(*options))
        if not holds(value, hint):
            untrue.append(f"{name} gives {value!r}, which is not {hint}")
    assert not untrue, "\n".join(untrue)


def test_stub_of_the_package_names_what_is_public():
    """The names that `rfteach` imports when asked, written out in __init__.pyi for type checkers."""
    tree = ast.parse((ROOT / "rfteach/__init__.pyi").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name == alias.asname for alias in node.names), "only `name as name` is handed on"
            found[node.module] = [alias.name for alias in node.names]
    public = {None: list(rfteach._ROOMS), **{home: names for home, names in rfteach._PUBLIC.items() if names}}
    assert found == public, "To mend: let rfteach/__init__.pyi import what _PUBLIC in rfteach/__init__.py names"


# PyTorch's annotations take a type checker long. This is as much of them as the sample needs.
TORCH = """
from typing import Any
def __getattr__(name: str) -> Any: ...
class dtype: ...
class device:
    def __init__(self, name: str) -> None: ...
class Generator: ...
class Tensor:
    shape: tuple[int, ...]
    def __array__(self) -> Any: ...
    def clamp(self, min: float) -> Tensor: ...
    def mean(self, dim: int = ...) -> Tensor: ...
    def __getitem__(self, item: object) -> Tensor: ...
    def __sub__(self, other: object) -> Tensor: ...
    def __lt__(self, other: object) -> Tensor: ...
def ones(*size: int) -> Tensor: ...
"""

# What a user writes. Lines that say so must be refused, and no other ones.
SAMPLE = """
import numpy as np
import torch
import rfteach
from rfteach import Gaussian, RandomFeatureRidge, RandomFourierFeatures, cosamp, fourier_features, gram_blocks
from rfteach import learn_bandwidth, loo_error, median_bandwidth, ridge_path, sample_frequencies, sobol_indices
from rfteach.arrays import Array, Seed, as_tensor, random_generator
from rfteach.bpdn import basis_pursuit_denoising
from rfteach.orderq import feature_matrix
from rfteach.ridge import ridge

X, y = np.ones((4, 2)), np.ones(4)
W, b = sample_frequencies("gaussian", 8, 2, phases=True, random_state=np.random.default_rng(0))
Z = fourier_features(X, W, b)
Z.shape[0], Z[0] - 1, Z.mean(0), np.asarray(Z).mean(axis=0)
if isinstance(Z, torch.Tensor):
    Z.clamp(0)
coef: Array = ridge(Z, y, 0.1)
ridge([[1.0, 2.0], [3.0, 4.0]], [1, 2], 1), ridge(torch.ones(3, 2), torch.ones(3), 0.1, method="qr")
ridge(X, y, "large")  # refused
ridge(X, y, lam=None)  # refused
ridge(object(), y, 0.1)  # refused
ridge(X, y, 0.1, solver="qr")  # refused
ridge(X, y)  # refused
words: str = ridge(X, y, 0.1)  # refused
ridge_path(X, y).best + 1
ridge_path(X, y).optimum  # refused
half = 0.5 * median_bandwidth(X)
low: float = median_bandwidth(X, return_interval=True).low
median_bandwidth(X).low  # refused
loo_error(X, y, 0.1) < 0.5
found = cosamp(X, y, 1)
found.support.astype(float), found.coef.shape, found.n_iter + 1, found.converged
found.support = np.ones(1)  # refused
learn_bandwidth(X, y, kernel=Gaussian(2.0), device="cpu", random_state=torch.Generator()).lam + 1
learn_bandwidth(X, y, device=0.5)  # refused
learn_bandwidth(X, y, random_state="0")  # refused
feature_matrix(X, W, activation=lambda T: T.clamp(0))
feature_matrix(X, W, activation=lambda T: "T")  # refused
basis_pursuit_denoising(X, y, 0.1).gap + 1
sobol_indices(lambda P: P[:, 0]).first.sum()
for rows, K in gram_blocks(Gaussian(), X):
    rows.start, K.shape
    rows.shape  # refused
T, like = as_tensor(X)
back: Array = like.restore(T.clamp(0))
rng: np.random.Generator = random_generator(1)
seed: Seed = "one"  # refused
Gaussian(1.0)(X).shape, Gaussian().frequencies(3, 2, random_state=1).shape
Gaussian().frequencies(3, "2")  # refused
model = RandomFeatureRidge(alpha=0.1).fit(X, y)
model.predict(X).shape, RandomFourierFeatures().fit(X).transform(X).shape
model.predict(X).predict  # refused
rfteach.chaos.multi_indices(3, (2, 1)).sum(), rfteach.__version__.upper()
rfteach.surrogat  # refused
"""

SETTINGS = """
[mypy]
follow_imports = silent
ignore_missing_imports = true
implicit_reexport = false
[mypy-torch.*,matplotlib.*]
follow_imports = skip
follow_imports_for_stubs = true
[mypy-torch]
follow_imports = silent
"""


def test_a_type_checker_takes_right_uses_and_refuses_wrong_ones(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "stubs/torch").mkdir(parents=True)
    files = {"stubs/torch/__init__.pyi": TORCH, "mypy.ini": SETTINGS, "sample.py": SAMPLE}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    env = {**os.environ, "MYPYPATH": os.pathsep.join([str(tmp_path / "stubs"), str(ROOT)])}
    command = [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "--config-file", "mypy.ini", "sample.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    refused = {int(line) for line in re.findall(r"^sample\.py:(\d+): error", done.stdout, flags=re.M)}
    marked = {number for number, line in enumerate(SAMPLE.split("\n"), 1) if line.endswith("# refused")}
    lines = SAMPLE.split("\n")
    passed, stopped = [[lines[n - 1] for n in sorted(rest)] for rest in (marked - refused, refused - marked)]
    assert not passed and not stopped, f"passed: {passed}\nrefused: {stopped}\n{done.stdout}"
