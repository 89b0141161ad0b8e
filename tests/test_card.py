"""The stand-in for a card refuses what a card refuses, computes what the CPU computes, and counts what a card waits for."""

import copy
import pickle
import warnings

import card
import numpy as np
import pytest
import torch
from card import costs
from sklearn.base import BaseEstimator, TransformerMixin, clone

from rfteach import (
    EigenProRegressor,
    Gaussian,
    GradientPCA,
    RandomFeatureAttention,
    RandomFeatureRidge,
    RandomFeatureRidgeClassifier,
    RandomFourierFeatures,
    StreamingRidge,
    basis_pursuit_denoising,
    random_feature_attention,
)
from rfteach.arrays import as_tensor, memory_budget

OPS = {
    "two devices": lambda x: x + torch.ones(3),
    "product of two devices": lambda x: x @ torch.ones(3),
    "a number of the card, rows of the host": lambda x: torch.ones(3) + x[0, 0],
    "in place on the host": lambda x: torch.ones(2, 3).mul_(x),
    "out on the host": lambda x: torch.mm(x, x.T, out=torch.empty(2, 2)),
    "parts of two devices": lambda x: torch.cat([x[0], torch.ones(3)]),
    "index of the card, rows of the host": lambda x: torch.ones(3)[torch.zeros(1, dtype=torch.long, device="cuda")],
    "mask of the host": lambda x: torch.where(torch.ones(2, 3) > 0, x, x),
    "values of the host": lambda x: x.index_put_((torch.zeros(2, dtype=torch.long, device="cuda"),), torch.ones(2, 3)),
    "positions of the host": lambda x: x.index_add_(0, torch.zeros(2, dtype=torch.long), x),
    "generator of the host": lambda x: torch.randn(2, device="cuda", generator=torch.Generator()),
    "product of integers": lambda x: x.long() @ x.long().T,
    "integers, one by one": lambda x: torch.dot(x[0].long(), x[0].long()),
    "least squares of deficient rank": lambda x: torch.linalg.lstsq(x, x, driver="gelsd"),
    "a grid of two devices": lambda x: torch.meshgrid(x[0], torch.ones(2), indexing="ij"),
    "a second card": lambda x: torch.zeros(1, device="cuda:7"),
    "gradient": lambda x: torch.autograd.grad((x.cpu().requires_grad_() * torch.ones(3)).sum(), x),
}


@pytest.fixture
def x():
    with card.card():
        yield torch.arange(6.0, device="cuda").reshape(2, 3)


@pytest.mark.parametrize("name", OPS)
def test_a_card_refuses(name, x):
    with pytest.raises(RuntimeError):
        OPS[name](x)


@pytest.mark.parametrize("read", [lambda x: x.numpy(), np.asarray, lambda x: np.ones(3) @ x, np.sin,
                                  lambda x: torch.ones(3).numpy() + x.T.numpy()])
def test_numpy_does_not_read_a_card(read, x):
    with pytest.raises(TypeError):
        read(x)


def test_what_a_card_allows(x):
    rows = torch.tensor([1, 0])
    assert x.is_cuda and x.device == torch.device("cuda:0") and torch.cuda.is_available()
    assert (x * torch.tensor(2.0)).tolist() == (2 * x).tolist() == [[0, 2, 4], [6, 8, 10]]
    assert x[rows].tolist() == x.flip(0).tolist() and x[rows].is_cuda
    y = torch.empty(2, 3)
    y.copy_(x)
    assert torch.equal(y, x.cpu()) and y.to(x).is_cuda and x.new_tensor([1.0]).is_cuda
    x[0] = torch.ones(3)
    x[x > 3] = 0.0
    x[1].add_(1)  # a view
    assert x.tolist() == [[1, 1, 1], [4, 1, 1]] and f"{x[1, 0]:.1f}" == "4.0" and len(x) == 2 and 4.0 in x
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.is_cuda and twin.tolist() == x.tolist()
    assert int(torch.linalg.matrix_rank(x)) == 2
    assert torch.tensor(1.0, device="cuda").is_cuda and torch.as_tensor(np.ones(2), device="cuda").is_cuda
    assert torch.mv(x, x[0], out=torch.empty(2, device="cuda")).tolist() == [3, 6]
    z = torch.complex(x, x)[:, :2].conj()
    assert (z * 2).cpu().tolist() == [[2 - 2j, 2 - 2j], [8 - 8j, 2 - 2j]] and z.imag.sum().item() == -7


def test_gradients_cross_the_border(x):
    w, v = torch.ones(3, requires_grad=True), torch.ones(3, device="cuda", requires_grad=True)
    loss = (x @ (w.to("cuda") * v)).square().sum()
    loss.backward()
    assert w.grad.device.type == "cpu" and v.grad.is_cuda and w.grad.tolist() == v.grad.tolist() == [72, 102, 132]
    layer = torch.nn.Linear(3, 2).to("cuda")
    layer(x).sum().backward()
    assert layer.weight.is_cuda and layer.weight.grad.tolist() == [[3, 5, 7]] * 2


class Careless(torch.autograd.Function):
    """Its backward multiplies by a tensor of the host."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, G):
        return G * torch.full(G.shape, 2.0)


def test_a_backward_is_checked_too(x):
    with pytest.raises(RuntimeError, match="same device"):
        Careless.apply(x.requires_grad_()).sum().backward()


below = pytest.mark.skipif(card.REAL, reason="a real card gets it where nothing is counted")


@pytest.mark.parametrize(("kind", "number", "do"), [
    ("waits", 1, lambda x: x[0, 1].item()), ("waits", 1, lambda x: float(x.sum())), ("waits", 1, lambda x: x[x > 1]),
    ("waits", 1, lambda x: "" if (x > 1).any() else ""), ("waits", 1, lambda x: x.nonzero()),
    ("waits", 1, lambda x: torch.equal(x, x)), ("waits", 1, lambda x: torch.allclose(x, x)),
    ("waits", 1, lambda x: torch.cuda.synchronize()), ("waits", 1, lambda x: range(9)[x[0, 1].long()]),
    ("waits", 1, lambda x: x.clone().index_put_((x > 1,), x[0, 0])),
    ("downloads", 1, lambda x: x.cpu()), ("downloads", 1, lambda x: x.tolist()), ("downloads", 1, lambda x: x.to("cpu")),
    ("downloads", 1, lambda x: torch.ones(2, 3).copy_(x)), ("uploads", 1, lambda x: torch.ones(3).to(x)),
    pytest.param("uploads", 1, lambda x: torch.tensor([1.0], device="cuda"), marks=below),
    pytest.param("uploads", 1, lambda x: x.new_tensor([1.0]), marks=below),
    ("uploads", 1, lambda x: x[torch.tensor([0])]), ("factorizations", 1, lambda x: torch.linalg.cholesky(x[:, 1:] @ x[:, 1:].T)),
    ("factorizations", 1, lambda x: torch.linalg.svd(x)), ("waits", 0, lambda x: x[1:].add_(x.sum()).T.contiguous()),
    ("uploads", 0, lambda x: torch.zeros(3, device="cuda") + 1.0), ("downloads", 0, lambda x: x.to(x.device)),
])
def test_what_a_card_waits_for(kind, number, do, x):
    with costs() as spent:
        do(x)
    assert spent == ({kind: number} if number else {})


def test_costs_name_the_line(x):
    with costs() as spent:
        as_tensor(x)
    assert {line.partition(":")[0] for _, line in spent.places} == {"arrays.py"}


@pytest.mark.skipif(card.REAL, reason="with a real card it stays")
def test_the_card_goes_again():
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(1).to("cuda")


def per_unit(run, few, many):
    """What each of the units costs by which ``many`` are more than ``few``; run(n) says how many it did, if not n."""
    found = []
    for n in (few, many):
        with costs() as spent:
            done = run(n)
        found.append((spent, n if done is None else done))
    (a, before), (b, after) = found
    assert after > before
    return {kind: (b[kind] - a[kind]) / (after - before) for kind in a | b if a[kind] != b[kind]}


def rows(n, d, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d))).float()


def eigenpro_batches(d=3, **given):
    X, y = rows(300, d).to("cuda"), rows(300, 1)[:, 0].to("cuda")
    settings = dict(kernel="gaussian", bandwidth=1.0, batch_size=20, n_subsample=40, n_eigen=4, max_iter=2,
                    early_stopping=False, random_state=0)

    def run(n):
        some = X[:20 * n], y[:20 * n]
        EigenProRegressor(**settings | given).fit(*some, *some * given.get("early_stopping", False))

    return run


def eigenpro_predictions():
    X, y = rows(3000, 3).to("cuda"), rows(3000, 1)[:, 0].to("cuda")
    model = EigenProRegressor(bandwidth=1.0, max_iter=1, early_stopping=False, random_state=0).fit(X[:200], y[:200])

    def run(n):
        model.predict(X[:512 * n])

    return run


def waves():
    return RandomFourierFeatures("gaussian", 1.0, 20, random_state=0)


def ridge_blocks(model, do="fit"):
    X, y = rows(6000, 5).to("cuda"), rows(6000, 1)[:, 0].to("cuda")
    if do == "predict":
        model.fit(X, y)

    def run(n):
        with memory_budget(300 * 21 * 8):
            model.predict(X[:300 * n]) if do == "predict" else model.fit(X[:300 * n], y[:300 * n])

    return run


def ridge_calls(model):
    X, y = rows(3000, 5).to("cuda"), rows(3000, 1)[:, 0].to("cuda")

    def run(n):
        fresh = clone(model)
        for i in range(n):
            fresh.partial_fit(X[100 * i:100 * i + 100], y[100 * i:100 * i + 100])

    return run


def pca_steps(d=20, **given):
    X = (rows(600, d) * torch.linspace(1, 3, d)).to("cuda")
    return lambda n: GradientPCA(2, max_iter=n, tol=0.0, **given).fit(X).n_iter_


def pca_batches(n):
    X = rows(2000, 20).to("cuda")
    GradientPCA(2, solver="sgd", max_iter=1, tol=0.0, batch_size=50).fit(X[:50 * n])


def pca_blocks(d):
    X = rows(400, d).to("cuda")

    def run(n):
        with memory_budget(20 * d * 4):
            GradientPCA(2, max_iter=2, tol=0.0).fit(X[:20 * n])

    return run


def attention_blocks(**given):
    q, gate = rows(1300, 8).to("cuda")[None], torch.full((1300,), 0.97).to("cuda")

    def run(n):
        more = {"gate": gate[:128 * n]} if given.get("gate") else {}
        with memory_budget(128 * 2 * 16 * 4):  # 128 rows
            random_feature_attention(*3 * [q[:, :128 * n]], n_components=16, random_state=0, **given | more)

    return run


def attention_layer(backward, **given):
    layer = RandomFeatureAttention(8, 2, batch_first=True, n_components=8, random_state=0, device="cuda", **given)
    x = rows(40, 8)[None].to("cuda")

    def run(n):
        for _ in range(n):
            out = layer(x, x, x)[0]
            if backward:
                out.sum().backward()

    return run


def kernel_tiles(n):
    X = 10 * rows(2000, 40).to("cuda")
    with memory_budget(4 * 100 * 100):
        Gaussian(1.0)(X[:100 * n], X[1900:])


# What is started, how often, and what each of these costs: nothing, or what the remark says.
LOOPS = {
    "EigenPro: batch": (eigenpro_batches, 5, 15, {}),
    "EigenPro: batch, half precision": (lambda: eigenpro_batches(cache="half"), 5, 15, {}),
    "EigenPro: batch of features": (lambda: eigenpro_batches(feature_map=waves()), 5, 15, {}),
    "EigenPro: batch, early stopping": (
        lambda: eigenpro_batches(early_stopping=True), 5, 15, {}),
    # in each of two epochs: are points so near that digits are lost, and which ones?
    "EigenPro: batch, nothing kept": (lambda: eigenpro_batches(1, cache=None), 5, 15, {"waits": 4}),
    "EigenPro: 512 predictions": (eigenpro_predictions, 1, 5, {}),
    "StreamingRidge: block": (lambda: ridge_blocks(StreamingRidge()), 3, 20, {}),
    "StreamingRidge: block, QR": (lambda: ridge_blocks(StreamingRidge(method="qr")), 3, 20, {}),
    # finite rows and targets, both in range of squares; are rows equal, which are drawn by rows and targets and have weight, what is kept?
    "StreamingRidge: partial_fit": (
        lambda: ridge_calls(StreamingRidge()), 3, 20, {"waits": 5, "downloads": 6, "uploads": 1}),
    "RandomFeatureRidge: block": (lambda: ridge_blocks(RandomFeatureRidge(waves(), 0.1)), 3, 20, {}),
    # up to 1000 rows the evidence is asked, too
    "RandomFeatureRidge: block, leave-one-out": (lambda: ridge_blocks(RandomFeatureRidge(waves())), 4, 20, {}),
    "RandomFeatureRidge: block of predictions": (
        lambda: ridge_blocks(RandomFeatureRidge(waves(), 0.1), "predict"), 3, 20, {}),
    "PCA: step": (pca_steps, 3, 9, {}),  # on the host
    # the small eigenproblem, and whether the residual is small; the first waits for itself
    "PCA: step, no matrix": (lambda: pca_steps(2100), 2, 4, {"waits": 1, "factorizations": 1}),
    "PCA: batch": (lambda: pca_batches, 5, 25, {"factorizations": 1}),  # the largest variance, for the step
    "PCA: block": (lambda: pca_blocks(20), 4, 20, {}),
    "PCA: block, no matrix": (lambda: pca_blocks(2100), 4, 20, {}),
    "attention: block": (attention_blocks, 2, 10, {}),
    "attention: block, causal": (lambda: attention_blocks(causal=True), 2, 10, {}),
    "attention: block, gated": (lambda: attention_blocks(causal=True, gate=True), 2, 10, {}),
    "attention: block, waves": (lambda: attention_blocks(causal=True, kind="trigonometric"), 2, 10, {}),
    # are numbers in range; causal: was a sum lost in one of the blocks?
    "attention: layer": (lambda: attention_layer(False), 1, 4, {"downloads": 1}),
    "attention: layer and gradients": (lambda: attention_layer(True), 1, 4, {"downloads": 1}),
    "attention: layer, causal": (lambda: attention_layer(True, causal=True), 1, 4, {"downloads": 1, "waits": 1}),
    "random features: block": (lambda: feature_blocks, 3, 20, {}),
    # are points so near that digits are lost?
    "kernel: tile": (lambda: kernel_tiles, 2, 10, {"waits": 1}),
    "basis pursuit": (lambda: basis_pursuit, 2, 6, {}),  # on the host
}


def feature_blocks(n):
    X = rows(2000, 5).to("cuda")
    with memory_budget(100 * 20 * 4):
        waves().fit(X[:10]).transform(X[:100 * n])


def basis_pursuit(n):
    A, y = rows(60, 100).double().to("cuda"), rows(60, 1, 1)[:, 0].double().to("cuda")
    return basis_pursuit_denoising(A[:10 * n], y[:10 * n], 0.1).n_iter


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", LOOPS)
def test_what_a_loop_costs(name):
    make, few, many, expected = LOOPS[name]
    with card.card():
        assert per_unit(make(), few, many) == expected


def waits_of_a_real_card(loop, n):
    """How many calls CUDA itself reports for which the host waits, and how many units were done."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            done = loop(n)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(one.message) for one in said), n if done is None else done


@pytest.mark.skipif(not card.REAL, reason="needs a real card")
def test_a_real_card_says_the_same():
    """The counts of the loops; a factorization may wait more than once."""
    found = {}
    for name, (make, few, many, expected) in LOOPS.items():
        loop, least = make(), sum(expected.values())
        (a, before), (b, after) = (waits_of_a_real_card(loop, n) for n in (few, many))
        each = round((b - a) / (after - before))  # once in a while one more falls into a run
        if not least <= each <= least + expected.get("factorizations", 0):
            found[name] = each, expected
    assert not found


@pytest.mark.parametrize(("careless", "expected"), [
    (lambda x: float(x.sum()), {"waits": 1}), (lambda x: x * torch.ones(3).to(x), {"uploads": 1}),
    (lambda x: x.cpu().numpy() + x[x > 1].sum().cpu().numpy(), {"downloads": 2, "waits": 1}),
])
def test_a_careless_loop_is_found(careless, expected, x):
    assert per_unit(lambda n: [careless(x) for _ in range(n)] and None, 2, 7) == expected


def test_the_card_computes_what_the_host_computes():
    """The part of a block that a card looks at again, and values too large for half precision."""
    q, k, v = (rows(200, 8, seed)[None] * 3 for seed in range(3))
    gate = 0.3 + 0.4 * torch.rand(200, generator=torch.Generator().manual_seed(0))
    given = dict(n_components=16, causal=True, random_state=0)
    X, y = rows(300, 3), rows(300, 1)[:, 0]
    settings = dict(feature_map=Large(), cache="half", max_iter=2, early_stopping=False, random_state=0)
    results = []
    for place in ("cpu", "cuda"):
        with card.card():
            there = [t.to(place) for t in (q, k, v, gate, X, y)]
            with costs() as spent:
                o = random_feature_attention(*there[:3], gate=there[3], **given)
            with pytest.warns(RuntimeWarning, match="too large for half precision"):
                model = EigenProRegressor(**settings).fit(*there[4:])
            results.append((o.cpu(), model.predict(there[4]).cpu()))
    assert any(line and line.startswith("attention_engine.py") for _, line in spent.places)
    for host, moved in zip(*results):
        torch.testing.assert_close(moved, host, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", [StreamingRidge(), RandomFeatureRidgeClassifier(waves())], ids=lambda model: type(model).__name__)
def test_scores_are_numbers_of_the_host(model, x):
    """For tensors of a card, of any dtype, that require gradients."""
    X, y, w = rows(300, 3), rows(300, 1)[:, 0] > 0.3, torch.rand(300)
    X, y = X + 0.5 * y[:, None], y if hasattr(model, "decision_function") else y.float().requires_grad_()
    model.fit(X, y)
    right = model.score(X.numpy(), y.detach().numpy(), w.numpy())
    model.fit(X.to("cuda"), y.to("cuda"))
    score = model.score(X.to("cuda").requires_grad_(), y.to("cuda"), w.to("cuda"))
    assert isinstance(score, float) and score == pytest.approx(right, abs=1e-3) and 0.1 < score < 1
    assert abs(model.score(X.bfloat16().to("cuda"), y.to("cuda"), w.bfloat16().to("cuda")) - right) < 0.05


class Large(TransformerMixin, BaseEstimator):
    """Features that half precision cannot hold."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return 1e5 * X
