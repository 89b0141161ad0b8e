"""Random feature attention: references, statistics over seeds, range, causality, the layer, what is refused."""

import copy
import io
import math
import pickle
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
import torch.utils.checkpoint
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from rfteach import attention, attention_engine, attention_layer
from rfteach.arrays import memory_budget
from rfteach.attention import (
    KINDS,
    FeatureMap,
    attention_frequencies,
    optimal_tilt,
    random_feature_attention,
    relative_variance,
)
from rfteach.attention_layer import RandomFeatureAttention

FORMS = [("positive", 0.0), ("positive", -0.3), ("hyperbolic", 0.0), ("hyperbolic", -0.1), ("trigonometric", 0.0)]


def data(*shape, seed=0, size=0.7):
    return size * np.random.default_rng(seed).normal(size=shape)


def reference(q, k, v, W, kind, causal=False, gate=None, tilt=0.0, scale=None, seen=None):
    """Equations (11.2) and (11.10) for one head, position by position, in float64."""
    root = (scale or q.shape[-1] ** -0.5) ** 0.5
    q, k, v, W = (np.asarray(t, dtype=np.float64) for t in (q, k, v, W))
    W = np.concatenate([W, -W]) if kind == "hyperbolic" else W

    def phi(x):
        if kind == "trigonometric":
            return np.exp(x @ x / 2) * np.concatenate([np.cos(W @ x), np.sin(W @ x)])
        return np.exp(tilt * (W**2).sum(1) + np.sqrt(1 - 4 * tilt) * W @ x - x @ x / 2)

    S, z, states = np.zeros((len(phi(q[0])), v.shape[1])), 0.0, []
    for t in range(len(k)):
        keep, new = (1, 1) if gate is None else (gate[t], 1 - gate[t])
        new = new if seen is None or seen[t] else 0
        S, z = keep * S + new * np.outer(phi(root * k[t]), v[t]), keep * z + new * phi(root * k[t])
        states.append((S, z))
    pick = (lambda i: states[min(i, len(k) - 1)]) if causal else (lambda i: states[-1])
    return np.array([pick(i)[0].T @ phi(root * x) / (phi(root * x) @ pick(i)[1]) for i, x in enumerate(q)])


def softmax(q, k, v, **options):
    return F.scaled_dot_product_attention(*(torch.as_tensor(t) for t in (q, k, v)), **options).numpy()


@pytest.mark.parametrize("kind, tilt", FORMS)
@pytest.mark.parametrize("causal, gated", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("L, S", [(1, 1), (5, 9), (9, 5), (150, 150), (20, 137), (300, 129), (1300, 1300)])
def test_agrees_with_the_recurrence(kind, tilt, causal, gated, L, S):
    q, k, v = data(L, 5, seed=1), data(S, 5, seed=2), data(S, 3, seed=3)
    if kind == "trigonometric":  # denominators must not cancel
        q, k = q / 2, k / 2
    gate = np.random.default_rng(4).uniform(0.6, 0.99, S) if gated else None
    W = attention_frequencies(64, 5, kind=kind, random_state=5)
    options = dict(kind=kind, causal=causal, frequencies=W, tilt=tilt)
    slow = reference(q, k, v, W, kind, causal, gate, tilt)
    assert abs(random_feature_attention(q, k, v, gate=gate, **options) - slow).max() < 1e-11
    a, b, c = (t.astype(np.float32) for t in (q, k, v))
    fast = random_feature_attention(a, b, c, gate=gate, **options)
    assert fast.dtype == np.float32 and abs(fast - slow).max() < 2e-5
    with memory_budget(5000):
        small = random_feature_attention(q, k, v, gate=gate, **options)
    assert abs(small - slow).max() < 1e-11


@pytest.mark.parametrize("kind", KINDS)
def test_leading_axes_broadcast(kind):
    q, k, v = data(2, 3, 40, 4, seed=1), data(3, 30, 4, seed=2), data(2, 1, 30, 5, seed=3)
    W = attention_frequencies(32, 4, heads=3, kind=kind, random_state=4)
    o = random_feature_attention(q, k, v, kind=kind, frequencies=W)
    assert o.shape == (2, 3, 40, 5)
    for b in range(2):
        for h in range(3):
            one = random_feature_attention(q[b, h], k[h], v[b, 0], kind=kind, frequencies=W[h])
            assert abs(o[b, h] - one).max() < 1e-12
    shared = random_feature_attention(q, k, v, kind=kind, frequencies=W[0])
    one = random_feature_attention(q[1, 2], k[2], v[1, 0], kind=kind, frequencies=W[0])
    assert abs(shared[1, 2] - one).max() < 1e-12


def test_each_head_draws_its_own_and_seeds_are_kept():
    q, k, v = (np.broadcast_to(data(20, 4, seed=s), (2, 3, 20, 4)) for s in range(3))
    o = random_feature_attention(q, k, v, n_components=16, random_state=1)
    assert np.array_equal(o, random_feature_attention(q, k, v, n_components=16, random_state=1))
    assert np.array_equal(o[0], o[1]) and not np.allclose(o[0, 0], o[0, 1])
    W = attention_frequencies(16, 4, heads=3, random_state=1)
    assert np.array_equal(o, random_feature_attention(q, k, v, frequencies=W))
    three_axes = random_feature_attention(q[0], k[0], v[0], n_components=16, random_state=1)
    assert np.array_equal(three_axes[0], three_axes[1])


@pytest.mark.parametrize("kind, tilt", FORMS)
@pytest.mark.parametrize("sampling", ["iid", "orthogonal"])
def test_unbiased_and_variance(kind, tilt, sampling):
    x, y = data(5, seed=6, size=0.3), data(5, seed=7, size=0.3)
    n, N = 20_000, 2
    W = attention_frequencies(n * N, 5, kind=kind, sampling=sampling, random_state=8)
    W = W.reshape(-1, 5)
    D2 = (1 - 4 * tilt) ** 2.5 * np.exp(2 * tilt * (W**2).sum(1))
    s, norms = np.sqrt(1 - 4 * tilt) * W @ (x + y), (x @ x + y @ y) / 2
    if kind == "trigonometric":
        terms = np.exp(norms) * np.cos(W @ (x - y))
    else:
        terms = D2 * np.exp(-norms) * (np.exp(s) if kind == "positive" else np.cosh(s))
    terms = terms / np.exp(x @ y)
    # frequencies are independent across blocks of five; the variance of single terms is the same for both
    blocks = terms.reshape(-1, 5).mean(1)
    assert abs(blocks.mean() - 1) < 4 * blocks.std() / np.sqrt(len(blocks))
    per_term = 1 if kind == "positive" else 2
    expected = relative_variance([x], [y], per_term, kind, tilt=tilt)[0]
    squares = ((terms - 1) ** 2).reshape(-1, 5).mean(1)
    assert abs(squares.mean() - expected) < 5 * squares.std() / np.sqrt(len(squares))
    if sampling == "orthogonal":
        assert blocks.var() < expected / 5


def test_qr_without_signs_is_biased():
    """What `attention_frequencies` must not do."""
    rng = np.random.default_rng(7)
    x = np.array([0.9, 0.6, 0.0, 0.0])
    Q, R = np.linalg.qr(rng.normal(size=(20_000, 4, 4)))
    raw = (np.sqrt(rng.chisquare(4, size=(20_000, 4, 1))) * Q.swapaxes(1, 2)).reshape(-1, 4)
    ours = attention_frequencies(80_000, 4, random_state=1)
    for W, biased in ((raw, True), (ours, False)):
        blocks = np.exp(2 * W @ x - x @ x).reshape(-1, 4).mean(1)
        z = (blocks.mean() - np.exp(x @ x)) / (blocks.std() / np.sqrt(len(blocks)))
        assert (abs(z) > 6) if biased else (abs(z) < 4)


def test_variances_mirror_each_other():
    X, Y = data(9, 4, seed=1), data(9, 4, seed=2)
    assert np.allclose(relative_variance(X, Y, 8, "trigonometric"), relative_variance(X, -Y, 8, "hyperbolic"))
    assert (relative_variance(X, Y, 8, "hyperbolic") < relative_variance(X, Y, 8, "positive")).all()
    better = relative_variance(X, Y, 8, "trigonometric") < relative_variance(X, Y, 8, "hyperbolic")
    assert np.array_equal(better, (X * Y).sum(1) > 0)
    assert relative_variance(X, -X, 8, "hyperbolic").max() < 1e-12
    assert np.isinf(relative_variance([[100.0]], [[100.0]], 8)).all()
    T = relative_variance(torch.tensor(X, dtype=torch.float32), Y, 8)
    assert T.dtype == torch.float32


def test_optimal_tilt():
    for square in (0.0, 1e-12, 0.3, 5.0, 400.0):
        for E in (1, 7, 64):
            best, x = optimal_tilt(square, E), np.sqrt(square) * np.eye(1, E)
            at = relative_variance(x, 0 * x, 1, tilt=best)
            assert best <= 0
            for other in (best * 0.9 - 1e-3, best * 1.1 - 1e-3, 0.9 * best, 0.0):
                assert at <= relative_variance(x, 0 * x, 1, tilt=other) * (1 + 1e-12)
    assert optimal_tilt(0, 3) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_many_features_come_to_softmax(kind, causal):
    q, k, v = data(3, 60, 8, seed=1, size=0.4), data(3, 60, 8, seed=2, size=0.4), data(3, 60, 2, seed=3)
    target, errors = softmax(q, k, v, is_causal=causal), []
    for N in (64, 1024, 16_384):
        squares = [((random_feature_attention(q, k, v, kind=kind, causal=causal, n_components=N, random_state=s)
                     - target) ** 2).mean() for s in range(3)]
        errors.append(np.sqrt(np.mean(squares)))
    assert 2.5 < errors[0] / errors[1] < 6.5 and 2.5 < errors[1] / errors[2] < 6.5


def test_scale_and_masks_as_in_torch():
    q, k = data(2, 1, 30, 4, seed=1, size=0.4), data(2, 1, 40, 4, seed=2, size=0.4)
    v = data(2, 1, 40, 3, seed=3)
    seen = np.random.default_rng(4).random((2, 1, 40)) < 0.6
    bias = data(2, 1, 40, seed=5)
    options = dict(n_components=60_000, random_state=0, scale=0.8)
    for key_mask in (seen, torch.from_numpy(seen), bias, np.where(seen, bias, -np.inf)):
        o = random_feature_attention(q, k, v, key_mask=key_mask, **options)
        exact = softmax(q, k, v, scale=0.8, attn_mask=torch.as_tensor(key_mask)[:, :, None].expand(2, 1, 30, 40))
        assert abs(o - exact).max() < 0.05
    a = random_feature_attention(q, k, v, key_mask=seen, **options)
    k[~seen], v[~seen] = 1e3, -1e3
    assert abs(a - random_feature_attention(q, k, v, key_mask=seen, **options)).max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_queries_without_keys_are_answered_with_zero(kind, causal, bias):
    q, k, v = data(2, 200, 4, seed=1), data(2, 200, 4, seed=2), data(2, 200, 3, seed=3)
    seen = np.ones((2, 200), dtype=bool)
    seen[0, :150], seen[1] = False, False
    mask = np.where(seen, 0.0, np.finfo(float).min) if bias else seen
    o = random_feature_attention(q, k, v, kind=kind, causal=causal, key_mask=mask, random_state=0)
    assert (o[1] == 0).all() and (o[0, 150:] != 0).all()
    assert (o[0, :150] == 0).all() if causal else (o[0] != 0).all()
    W = attention_frequencies(16, 4, kind=kind, random_state=0)
    o = random_feature_attention(q[0], k[0], v[0], kind=kind, causal=causal, key_mask=seen[0], frequencies=W)
    slow = reference(q[0], k[0, 150:], v[0, 150:], W, kind) if not causal else reference(
        q[0, 150:], k[0, 150:], v[0, 150:], W, kind, True)
    assert abs(o[-50:] - slow[-50:]).max() < 1e-10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 30.0, 1e4, 1e8])
def test_finite_and_within_the_values(kind, dtype, size):
    q, k = data(2, 200, 8, seed=1, size=size).astype(dtype)
    k[::7] = 0
    v = np.random.default_rng(2).uniform(2, 3, (200, 2)).astype(dtype)
    W = attention_frequencies(16, 8, kind=kind, random_state=3)
    for causal in (False, True):
        for gate in (None, np.full(200, 1e-6)) if causal else (None,):
            for budget in (5000, 2**23):  # keys of one size in several blocks, and in one
                with memory_budget(budget):
                    o = random_feature_attention(q, k, v, kind=kind, causal=causal, gate=gate, frequencies=W)
                assert np.isfinite(o).all() and o.dtype == dtype
                if kind != "trigonometric":
                    assert o.min() > 2 - 1e-4 and o.max() < 3 + 1e-4
    if size == 0:
        mean = random_feature_attention(q, k, v, kind=kind, frequencies=W)
        assert np.allclose(mean, v.mean(0), rtol=1e-5)


@pytest.mark.parametrize("kind, tilt", FORMS)
@pytest.mark.parametrize("factor", [0.0, 1.0, 50.0, 1e6])
def test_the_future_is_not_seen(kind, tilt, factor):
    """Outputs do not depend on later keys by more than rounding, also where these dwarf the earlier ones."""
    q, k, v = data(3, 300, 6, seed=1, size=10).astype(np.float32)
    W = attention_frequencies(32, 6, kind=kind, random_state=2)
    if kind == "trigonometric":
        W = 0.01 * W  # denominators do not cancel
        k, q = k / 100, q / 100
        factor = factor * 100
    later, values = k.copy(), v.copy()
    later[170:] *= factor
    values[170:] = -5
    gate = np.random.default_rng(3).uniform(0.3, 0.9, 300)
    for g in (None, gate):
        options = dict(kind=kind, tilt=tilt, causal=True, frequencies=W, gate=g)
        a, b = random_feature_attention(q, k, v, **options), random_feature_attention(q, later, values, **options)
        alone = random_feature_attention(q[:170], k[:170], v[:170], **options if g is None else
                                         {**options, "gate": g[:170]})
        assert np.isfinite(b).all()
        assert abs(a - b)[:170].max() < 2e-5 * 10 and abs(b[:170] - alone).max() < 2e-5 * 10


def test_wild_range_agrees_with_float64():
    """Blocks are cut where single precision would lose keys."""
    q, k, v = data(3, 260, 6, seed=1).astype(np.float32)
    k *= np.exp(np.random.default_rng(2).uniform(-3, 4, (260, 1))).astype(np.float32)
    for kind in ("positive", "hyperbolic"):
        W = attention_frequencies(32, 6, kind=kind, random_state=3)
        options = dict(kind=kind, causal=True, frequencies=W)
        fast = random_feature_attention(q, k, v, **options)
        exact = random_feature_attention(*(t.astype(np.float64) for t in (q, k, v)), **options)
        assert abs(fast - exact).max() < 1e-2 and np.median(abs(fast - exact)) < 1e-5


@pytest.mark.parametrize("heads, slope, rows, sizes", [
    (1, 0.0, 10_000, [1024, 276]), (2, 0.0, 10_000, [512, 512, 276]), (3, 0.0, 10_000, [256] * 5 + [20]),
    (8, 0.0, 10_000, [128] * 10 + [20]), (1, 0.0, 300, [256] * 5 + [20]), (1, 0.0, 100, [100] * 13),
    (1, 0.3, 10_000, [1024, *[128] * 8, 276, 128, 128, 20])])
def test_causal_blocks_are_whole_chunks(heads, slope, rows, sizes, monkeypatch):
    """Of one head a thousand positions, of several fewer, and what the budget has room for; where a mask grows so fast
    that sums are lost, chunk by chunk.
    """
    seen, keys = [], FeatureMap.keys
    monkeypatch.setattr(FeatureMap, "keys", lambda phi, k, h, m: seen.append(k.shape[-2]) or keys(phi, k, h, m))
    q, k, v = (torch.from_numpy(data(heads, 1300, 4, seed=s)).float() for s in range(3))
    W = torch.from_numpy(attention_frequencies(32, 4, random_state=0)).float()
    options = dict(causal=True, frequencies=W, key_mask=slope * torch.arange(1300.0))
    with memory_budget(2 * 32 * 4 * rows):
        found = random_feature_attention(q, k, v, **options)
    assert seen == sizes
    exact = random_feature_attention(q.double(), k.double(), v.double(), **options)
    assert (found - exact).abs().max() < 1e-4
    alone = random_feature_attention(q[:1], k[:1], v[:1], **options)
    assert (found[:1] - alone).abs().max() < 1e-5


def test_a_constant_gate_is_an_exponential_moving_average():
    v = data(300, 2, seed=1)
    o = random_feature_attention(np.zeros((300, 3)), np.ones((300, 3)), v, causal=True, gate=np.full(300, 0.9))
    assert np.allclose(o, pd.DataFrame(v).ewm(alpha=0.1).mean().to_numpy(), atol=1e-12)
    same = random_feature_attention(np.zeros((300, 3)), np.ones((300, 3)), v, causal=True, gate=0.9)
    assert np.allclose(same, o, atol=1e-12)


def test_positive_features_are_two_softmax_attentions():
    q, k, v = (torch.from_numpy(data(n, 5, seed=n)) for n in (30, 40, 41))
    v = v[:40]
    W = torch.from_numpy(attention_frequencies(12, 5, random_state=0))
    bias = -k.square().sum(1) / 2
    u = F.scaled_dot_product_attention(W, k, v, bias, scale=1)
    twice = F.scaled_dot_product_attention(q, W, u, (W @ k.T + bias).logsumexp(1), scale=1)
    assert torch.allclose(twice, random_feature_attention(q, k, v, scale=1, frequencies=W), atol=1e-13)


def test_symmetries():
    q, k, v = data(20, 4, seed=1), data(30, 4, seed=2), data(30, 3, seed=3)
    W = attention_frequencies(24, 4, random_state=0)

    def attend(q, k, v, W=W, **options):
        return random_feature_attention(q, k, v, frequencies=W, **options)

    o, order = attend(q, k, v), np.random.default_rng(0).permutation(30)
    assert np.allclose(attend(q, k[order], v[order]), o) and np.allclose(attend(q[::-1], k, v), o[::-1])
    assert np.allclose(attend(q, k, 2 * v + 1), 2 * o + 1) and np.allclose(attend(q, k, v, W[::-1]), o)
    turn = np.linalg.qr(data(4, 4, seed=4))[0]
    assert np.allclose(attend(q @ turn, k @ turn, v, W @ turn), o)
    assert np.allclose(attend(q, np.repeat(k, 2, 0), np.repeat(v, 2, 0)), o)
    assert np.allclose(attend(2 * q, 2 * k, v, scale=0.1), attend(q, k, v, scale=0.4))


@pytest.mark.parametrize("kind, tilt", FORMS)
@pytest.mark.parametrize("mode", ["full", "causal", "gated", "cut"])
def test_gradients(kind, tilt, mode):
    q, k, v = (torch.from_numpy(data(1, 9, 2, seed=s)).requires_grad_() for s in range(3))
    if mode == "cut":
        with torch.no_grad():
            k[:, :4] *= 60 if kind != "trigonometric" else 1
            k[:, 6:] *= 1 if kind != "trigonometric" else 60
    gate = torch.rand(1, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.3
    bias = torch.from_numpy(data(1, 9, seed=5)).requires_grad_()
    W = torch.from_numpy(attention_frequencies(4, 2, kind=kind, random_state=1)).requires_grad_()
    if kind == "trigonometric":
        W = (0.02 * W).detach().requires_grad_()
    gate.requires_grad_()

    def f(q, k, v, bias, W, gate):
        return random_feature_attention(q, k, v, kind=kind, tilt=tilt, causal=mode != "full", key_mask=bias,
                                        frequencies=W, gate=gate if mode == "gated" else None)

    inputs = (q, k, v, bias, W, gate)
    with memory_budget(200):
        assert torch.autograd.gradcheck(f, inputs, atol=2e-5, rtol=1e-3)
        o = f(*inputs)
    with torch.no_grad():
        assert torch.allclose(o, f(*inputs), atol=1e-12) and not f(*inputs).requires_grad
    masked = torch.autograd.grad(random_feature_attention(
        q, k, v, kind=kind, causal=mode != "full", key_mask=torch.arange(9) > 2, frequencies=W).sum(), (q, k, v))
    assert all(g.isfinite().all() for g in masked)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [5, 300, 5000])
def test_powers_relative_to_the_largest(dtype, n, device):
    """Rows of equal and of masked exponents, along either axis, with a reference given or not; and their gradient."""
    Z = torch.from_numpy(data(3, 8, n, size=8)).to(dtype)
    Z[0, 0], Z[0, 1, ::2], Z[0, 2, 1:] = 2.0, attention_engine.least_exponent(dtype), -200.0
    Z, info = Z.to(device), torch.finfo(dtype)
    graph, wide = Z.clone().requires_grad_(), Z.double()
    for given, dim in ((None, -1), (Z.amax(-2, keepdim=True) + 3 * Z[..., :1, :].sign(), -2)):
        for T in (Z.clone(), 1 * graph):
            P, R = attention_engine.relative_powers_(T, dim, given)
            largest = wide.amax(dim, keepdim=True)
            assert torch.equal(R.double(), largest if given is None else torch.maximum(largest, given.double()))
            assert torch.allclose(P.double(), (wide - R).exp2(), rtol=400 * info.eps, atol=info.tiny ** 0.8)
            assert ((P == 0) | (P >= info.tiny)).all()
        gradient, = torch.autograd.grad(P.sum(), graph)
        assert torch.allclose(gradient, math.log(2) * P, rtol=10 * info.eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["positive", "hyperbolic"])
def test_blocks_of_equal_keys_are_one(kind, dtype):
    """However long these are, and so however coarse the logarithm of their sum: neither twice the mean nor half of it."""
    v = np.random.default_rng(2).uniform(2, 3, (200, 2)).astype(dtype)
    for size in (1, 1e2, 1e4, 1e8):
        k = np.full((200, 8), size, dtype)
        with memory_budget(5000):
            o = random_feature_attention(k[:5], k, v, kind=kind, n_components=16, random_state=0)
        assert np.allclose(o, v.mean(0), rtol=1e-5), size


@pytest.mark.parametrize("kind", ["positive", "hyperbolic"])
def test_blocks_without_keys_weigh_nothing(kind):
    """Before, between and after blocks that have some; derivatives, the second ones as well, are those of the rest."""
    q, k, v = (torch.from_numpy(data(12, 2, seed=s)).requires_grad_() for s in range(3))
    W = torch.from_numpy(attention_frequencies(4, 2, kind=kind, random_state=1))
    for seen in ([5], [0, 1, 11], [3, 4, 8]):
        mask = torch.isin(torch.arange(12), torch.tensor(seen))
        least = torch.finfo(torch.float64).min
        bias = torch.where(mask, 0.0, torch.tensor([-np.inf, least], dtype=torch.float64).repeat(6))

        def f(q, k, v):
            return random_feature_attention(q, k, v, kind=kind, frequencies=W, key_mask=bias)

        with memory_budget(200):
            assert torch.allclose(f(q, k, v), random_feature_attention(q, k[mask], v[mask], kind=kind, frequencies=W))
            assert torch.autograd.gradcheck(f, (q, k, v)) and torch.autograd.gradgradcheck(f, (q, k, v))


def test_kinds_in_and_out(device):
    q, k, v = (torch.from_numpy(data(2, 50, 4, seed=s)).to(device) for s in range(3))
    o = random_feature_attention(q, k, v, random_state=0)
    assert o.device == q.device and o.dtype == torch.float64
    numpy = random_feature_attention(*(t.cpu().numpy() for t in (q, k, v)), random_state=0)
    assert isinstance(numpy, np.ndarray) and np.allclose(numpy, o.cpu(), atol=1e-11)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.05), (torch.float16, 0.01)):
        half = random_feature_attention(*(t.to(dtype) for t in (q, k, v)), random_state=0)
        assert half.dtype == dtype and (half.double() - o).abs().max() < tolerance
    lists = random_feature_attention([[1, 0], [0, 1]], [[1, 0]], [[3]], random_state=0)
    assert np.allclose(lists, [[3.0], [3.0]])
    frames = random_feature_attention(*(pd.DataFrame(data(5, 3, seed=s)) for s in range(3)), random_state=0)
    assert isinstance(frames, pd.DataFrame)
    before = [t.clone() for t in (q, k, v)]
    random_feature_attention(q, k, v, causal=True, random_state=0)
    assert all(torch.equal(a, b) for a, b in zip(before, (q, k, v)))


@pytest.mark.parametrize("change, words", [
    (dict(kind="cosine"), "kind must be 'positive', 'hyperbolic' or 'trigonometric', got 'cosine'"),
    (dict(n_components=0), "n_components must be an integer of at least 1, got 0"),
    (dict(kind="hyperbolic", n_components=7), "n_components must be even for kind='hyperbolic', got 7"),
    (dict(tilt=0.1), r"tilt must be a number in \(-inf, 0\], got 0.1"),
    (dict(tilt=-0.1, kind="trigonometric"), "tilt must be 0 for kind='trigonometric', got -0.1"),
    (dict(sampling="qmc"), "sampling must be 'orthogonal' or 'iid', got 'qmc'"),
    (dict(scale=0), r"scale must be None or a number in \(0, inf\), got 0"),
    (dict(gate=np.full(9, 0.5)), "gate needs causal=True"),
    (dict(gate=np.full(9, 1.0), causal=True), r"gate must lie in \(0, 1\), got values from 1 to 1"),
    (dict(gate=np.full(8, 0.5), causal=True), r"gate must broadcast to \(2, 9\), got shape \(8,\)"),
    (dict(key_mask=np.ones(8, bool)), r"key_mask must broadcast to \(2, 9\), got shape \(8,\)"),
    (dict(key_mask=np.full(9, np.nan)), "key_mask must be -inf or a number of moderate size"),
    (dict(frequencies=np.ones((4, 5))), r"frequencies must have shape \(M, 4\) or \(heads, M, 4\), got \(4, 5\)"),
    (dict(frequencies=np.ones((3, 4, 4))), "frequencies must have shape"),
    (dict(q=np.ones(4)), "q: Expected 2D"),
    (dict(q=np.full((9, 4), np.nan)), "q contains NaN or infinity"),
    (dict(q=np.ones((9, 5))), r"q, k and v must have shapes .*got \(9, 5\), \(2, 9, 4\), \(2, 9, 3\)"),
    (dict(v=np.ones((8, 3))), "q, k and v must have shapes"),
    (dict(q=np.ones((3, 9, 4))), "leading axes of q, k and v must broadcast"),
    (dict(k=np.ones((2, 9, 4), np.float32)), "k must have dtype and device of q, got torch.float32"),
    (dict(gate=np.full(9, np.nan), causal=True), "gate contains NaN"),
    (dict(frequencies=np.full((4, 4), 1e160)), r"of frequencies up to .*, scale 0.5"),
    (dict(scale=1e308), r"scale 1e\+308"),
    (dict(frequencies=np.ones((4, 4)), sampling="qmc"), "sampling must be 'orthogonal' or 'iid', got 'qmc'"),
    (dict(q=np.full((9, 4), 1e200)), "exponents of q and k overflow in torch.float64"),
    (dict(k=np.full((9, 4), 1e154)), "exponents of q and k overflow in torch.float64"),
    (dict(v=np.full((9, 3), 1e300)), r"v has entries so large \(up to 1e\+300\) that sums overflow"),
    (dict(tilt=-1e306), "tilt -1e.306"),
    (dict(random_state=-1), "random_state must not be negative"),
])
def test_what_is_refused(change, words):
    arguments = dict(q=data(2, 9, 4), k=data(2, 9, 4), v=data(2, 9, 3)) | change
    with pytest.raises(ValueError, match=words):
        random_feature_attention(**arguments)


def test_what_is_of_the_wrong_type():
    q, k, v = data(2, 9, 4), data(2, 9, 4), data(2, 9, 3)
    for options, words in ((dict(n_components=2.5), "n_components"), (dict(key_mask=np.ones(9, int)), "key_mask"),
                           (dict(key_mask="abc"), "key_mask must be boolean or floating"),
                           (dict(key_mask=torch.ones(9, dtype=torch.int)), "key_mask must be boolean or floating"),
                           (dict(key_mask=[None] * 9), "key_mask must be boolean or floating, got object"),
                           (dict(random_state="a"), "random_state"), (dict(causal="no"), "causal must be True or False")):
        with pytest.raises(TypeError, match=words):
            random_feature_attention(q, k, v, **options)
    for call, words in ((lambda: attention_frequencies(4, 0), "head_dim"),
                        (lambda: attention_frequencies(4, 2, heads=0), "heads"),
                        (lambda: optimal_tilt(-1.0, 3), "square"), (lambda: optimal_tilt(np.inf, 3), "square"),
                        (lambda: relative_variance([[1.0]], [[1.0, 2.0]], 4), "same shape"),
                        (lambda: RandomFeatureAttention(10, 3), "multiple of num_heads, got 10 and 3"),
                        (lambda: RandomFeatureAttention(4, 2, dropout=1.0), "dropout"),
                        (lambda: RandomFeatureAttention(4, 2, kdim=0), "kdim must be None or an integer of at least 1, got 0"),
                        (lambda: RandomFeatureAttention(4, 2, vdim=-3), "vdim must be None or an integer of at least 1, got -3"),
                        (lambda: RandomFeatureAttention(4, 2, redraw="epoch"), "redraw"),
                        (lambda: RandomFeatureAttention(4, 2, gated=True), "causal=True"),
                        (lambda: RandomFeatureAttention(4, 2, kind="relu"), "kind must be 'positive'")):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="causal must be True or False, got 'False'"):
        RandomFeatureAttention(4, 2, causal="False")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_products_with_subnormal_numbers(dtype, monkeypatch):
    """They are slow. What enters a product is zero or normal, with long keys and strong gates."""
    tiny, seen = torch.finfo(dtype).tiny, []

    def normal(t):
        t = t.detach()
        seen.append(bool(((t == 0) | (t.abs() >= tiny)).all()))
        return t

    inner_relative = attention.relative_powers_
    monkeypatch.setattr(attention, "relative_powers_", lambda *a: (normal((out := inner_relative(*a))[0]), out)[1])
    for name in ("keys", "queries"):
        inner = getattr(FeatureMap, name)

        def checked(self, *args, inner=inner):
            out = inner(self, *args)
            normal(out[0] if isinstance(out, tuple) else out)
            return out

        monkeypatch.setattr(FeatureMap, name, checked)
    inner_products = attention_engine._products

    def products(Q, P, signed):
        A = inner_products(Q, P, signed)
        plain = Q @ P.mT
        assert (A - plain).abs().max() <= 1e-5 * plain.abs().max() + 1e-30
        return A if signed else normal(A) if not A.requires_grad else A

    monkeypatch.setattr(attention_engine, "_products", products)
    inner_powers = attention_engine.powers_
    for module in (attention, attention_engine):
        monkeypatch.setattr(module, "powers_", lambda Z: (normal(out := inner_powers(Z)), out)[1])
    q, k, v = (torch.from_numpy(data(256, 16, seed=s, size=1.0)).to(dtype) for s in range(3))
    factor = 1 if dtype == torch.float32 else 4
    for kind in ("positive", "hyperbolic"):
        for size in (1, 6 * factor, 20 * factor):
            for gate in (None, torch.full((256,), 0.5 ** factor)):
                options = dict(kind=kind, n_components=32, random_state=0)
                random_feature_attention(q, size * k, v, causal=True, gate=gate, **options)
                random_feature_attention(q, size * k, v, **options)
    assert len(seen) > 50 and all(seen)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_autocast_does_not_reach_the_sums(kind, causal):
    q, k, v = (torch.from_numpy(data(1, 2, 200, 16, seed=s, size=0.5)).float() for s in range(3))
    options = dict(kind=kind, causal=causal, random_state=0)
    plain = random_feature_attention(q, k, v, **options)
    for inputs in ((q, k, v), [t.clone().requires_grad_() for t in (q, k, v)]):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            o = random_feature_attention(*inputs, **options)
        assert o.dtype == torch.float32 and (o - plain).abs().max() < 1e-5
    half = [t.bfloat16() for t in (q, k, v)]
    plain = random_feature_attention(*half, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(random_feature_attention(*half, **options), plain)


def test_autocast_of_the_layer():
    """Only the projections are in half precision, as in torch's own layer."""
    x = torch.randn(2, 100, 32, generator=torch.Generator().manual_seed(0)) * 2
    layer = RandomFeatureAttention(32, 4, batch_first=True, random_state=0).eval()
    plain = layer(x, x, x, is_causal=True)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o = layer(x, x, x, is_causal=True)[0]
    assert o.dtype == torch.bfloat16 and ((o - plain).norm() / plain.norm()) < 0.05


def test_half_precision_of_cosines_is_finite():
    g = torch.Generator().manual_seed(9)
    q, k = (torch.randn(64, 16, generator=g) * 8 for _ in range(2))
    v = torch.randn(64, 4, generator=g) * 100
    options = dict(kind="trigonometric", n_components=16, random_state=9)
    rounded = random_feature_attention(*(t.half().float() for t in (q, k, v)), **options)
    assert rounded.abs().max() > torch.finfo(torch.float16).max  # what is to be cut off
    o = random_feature_attention(q.half(), k.half(), v.half(), **options)
    assert o.dtype == torch.float16 and o.isfinite().all()
    torch.manual_seed(0)
    layer = RandomFeatureAttention(16, 1, batch_first=True, kind="trigonometric", n_components=4, random_state=9)
    seen = []
    layer.out_proj.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x = torch.randn(1, 200, 16) * 20
    layer.half()(x.half(), x.half(), (50 * x).half())
    assert seen[0].dtype == torch.float16 and seen[0].isfinite().all()


def test_numpy_scalars_and_unused_parameters():
    q, k, v = data(3, 9, 4)
    a = random_feature_attention(q, k, v, scale=np.float32(0.5), tilt=np.float32(-0.125), random_state=0)
    assert np.array_equal(a, random_feature_attention(q, k, v, scale=0.5, tilt=-0.125, random_state=0))
    assert relative_variance(q, k, 4, tilt=np.float32(-0.125)).dtype == np.float64
    W = attention_frequencies(4, 4, kind="hyperbolic", random_state=0)
    a = random_feature_attention(q, k, v, kind="hyperbolic", frequencies=W, n_components=7)
    assert np.array_equal(a, random_feature_attention(q, k, v, kind="hyperbolic", frequencies=W))


def test_masks_that_torch_cannot_view():
    q, k, v = data(3, 9, 4)
    seen = np.arange(9) % 3 > 0
    expected = random_feature_attention(q, k, v, key_mask=seen, random_state=0)
    fixed = seen.copy()
    fixed.flags.writeable = False
    bias = np.where(seen, 0.0, -np.inf)
    for mask in (fixed, seen[::-1].copy()[::-1], seen.tolist(), pd.Series(seen), bias.astype(">f8"),
                 bias.astype(np.longdouble), bias.astype(np.float32), torch.from_numpy(bias)):
        assert np.array_equal(random_feature_attention(q, k, v, key_mask=mask, random_state=0), expected)


def test_gates_close_to_one_are_kept():
    """The logarithms are taken before the gate gets the dtype of q."""
    q, k, v = data(3, 9, 4)
    for g in (1 - 1e-9, 1e-50):
        gate = np.full(9, g)
        exact = random_feature_attention(q, k, v, gate=gate, causal=True, random_state=0)
        a, b, c = (t.astype(np.float32) for t in (q, k, v))
        assert abs(random_feature_attention(a, b, c, gate=gate, causal=True, random_state=0) - exact).max() < 1e-5


def test_variance_and_tilt_at_the_ends():
    x = np.array([[1e-6]])
    assert np.allclose(relative_variance(x, 0 * x, 2, "hyperbolic"), 0.5 * 1e-24, rtol=1e-9)
    for E in (1, 4):
        assert -np.inf < optimal_tilt(1.7e308, E) < -1e306
    assert optimal_tilt(1e-300, 3) <= 0


def test_shift_of_the_keys():
    """Random features lack an invariance of attention; centring the keys gives it back."""
    q, k, v = data(3, 60, 8, size=0.5)
    W = attention_frequencies(256, 8, random_state=0)

    def error(y):
        return abs(random_feature_attention(q, y, v, frequencies=W) - softmax(q, k, v)).max()

    assert error(k + 5) > 3 * error(k) and error(k + 5 - (k + 5).mean(0)) < 1.5 * error(k)


def test_layer_shapes():
    layer = RandomFeatureAttention(16, 4, kdim=5, vdim=7, batch_first=True, random_state=0)
    q, k, v = torch.randn(2, 4, 16), torch.randn(2, 6, 5), torch.randn(2, 6, 7)
    assert layer(q, k, v)[0].shape == (2, 4, 16)
    for wrong in ((q, k, torch.randn(2, 9, 7)), (q[:1], k, v), (q, k[:1], v[:1]), (q, k, v[:1]), (q, k[..., :4], v),
                  (q, k, torch.randn(2, 6, 16)), (q[..., :8], k, v), (q[0], k[0], v[0, :3])):
        with pytest.raises(ValueError, match="one batch size, key and value one length, and the widths 16, 5, 7; got"):
            layer(*wrong)
    for mask in (torch.zeros(6, dtype=torch.bool), torch.zeros(2, 4, dtype=torch.bool), torch.zeros(1, 6)):
        with pytest.raises(ValueError, match=r"key_padding_mask must have shape \(2, 6\), got"):
            layer(q, k, v, key_padding_mask=mask)
    for causal in (False, True):
        assert layer(q[:0], k[:0], v[:0], is_causal=causal)[0].shape == (0, 4, 16)
        assert layer(q[:, :0], k, v, is_causal=causal)[0].shape == (2, 0, 16)
        nothing = layer(q, k[:, :0], v[:, :0], is_causal=causal)[0]
        assert torch.equal(nothing, layer.out_proj.bias.expand(2, 4, 16))
    layer.batch_first = False
    assert layer(q[:, :0], k[:, :0], v[:, :0])[0].shape == (2, 0, 16)
    with pytest.raises(TypeError, match="positional"):
        RandomFeatureAttention(16, 4, 0.0, True, True, False)


def test_redraws_come_from_torchs_generator():
    x = torch.randn(2, 12, 16)
    layer = RandomFeatureAttention(16, 4, batch_first=True, n_components=8, random_state=1, redraw="step")
    torch.manual_seed(3)
    a = layer(x, x, x)[0]
    torch.manual_seed(3)
    assert torch.equal(layer(x, x, x)[0], a)
    twins = [copy.deepcopy(layer) for _ in range(2)]
    assert torch.equal(twins[0].frequencies, twins[1].frequencies)
    for twin in twins:
        twin.redraw_frequencies()
    assert not torch.equal(twins[0].frequencies, twins[1].frequencies)
    still = RandomFeatureAttention(16, 4, batch_first=True, n_components=8)
    before = torch.get_rng_state()
    still(x, x, x)
    assert torch.equal(torch.get_rng_state(), before)


def test_checkpoints_have_the_right_gradients():
    x = torch.randn(2, 12, 16)
    layer = RandomFeatureAttention(16, 4, batch_first=True, n_components=8, random_state=1, redraw="step")

    def loss(x):
        return layer(x, x, x)[0].square().sum()

    grads = []
    for call in (loss, lambda x: torch.utils.checkpoint.checkpoint(loss, x, use_reentrant=False)):
        torch.manual_seed(5)
        layer.zero_grad()
        call(x.requires_grad_()).backward()
        grads.append([p.grad.clone() for p in layer.parameters()])
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*grads))


def test_layers_that_leave_the_meta_device():
    layer = RandomFeatureAttention(16, 4, batch_first=True, device="meta", random_state=0)
    assert layer.frequencies.is_meta
    layer.to_empty(device="cpu").load_state_dict(exact_layer().state_dict())
    assert 0.8 < layer.frequencies.std() < 1.2 and layer.frequencies.shape == (4, 256, 4)
    kept = layer.frequencies.clone()
    assert torch.equal(layer.to(torch.float64).frequencies, kept.double())


def test_a_layer_that_takes_weights_over_on_the_meta_device():
    """A state of torch's layer has no frequencies: they are drawn beside its weights."""
    layer = RandomFeatureAttention(16, 4, batch_first=True, device="meta", random_state=0)
    layer.load_state_dict(exact_layer().double().state_dict(), assign=True)
    x = torch.randn(2, 10, 16, dtype=torch.float64)
    assert layer.frequencies.dtype == torch.float64 and layer(x, x, x)[0].isfinite().all()
    kept = RandomFeatureAttention(16, 4, batch_first=True, random_state=1)
    layer = RandomFeatureAttention(16, 4, batch_first=True, device="meta")
    layer.load_state_dict(kept.state_dict(), assign=True)
    assert torch.equal(layer.frequencies, kept.frequencies)


def exact_layer(**options):
    torch.manual_seed(0)
    return torch.nn.MultiheadAttention(16, 4, batch_first=True, **options).eval()


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 5, "vdim": 7}])
def test_the_layer_comes_to_multihead_attention(options):
    exact = exact_layer(**options)
    q, k, v = (torch.randn(3, n, options.get(w, 16)) / 3 for n, w in ((20, "q"), (25, "kdim"), (25, "vdim")))
    padding = torch.rand(3, 25) < 0.3
    padding[:, 0] = False
    target = exact(q, k, v, key_padding_mask=padding)[0]
    errors = []
    for N in (64, 1024, 16_384):
        layer = RandomFeatureAttention(16, 4, batch_first=True, n_components=N, random_state=0, **options)
        assert layer.load_state_dict(exact.state_dict()).missing_keys == []
        output, weights = layer(q, k, v, key_padding_mask=padding)
        assert weights is None and output.shape == target.shape
        errors.append(float((output - target).detach().norm()))
    assert errors[0] / errors[2] > 6
    numbers = torch.zeros(3, 25).masked_fill(padding, -torch.inf)
    assert torch.allclose(layer(q, k, v, key_padding_mask=numbers)[0], output)
    assert torch.allclose(layer(q[0], k[0], v[0], key_padding_mask=padding[0])[0], output[0], atol=1e-5)
    layer.batch_first = False
    turned = layer(*(t.transpose(0, 1) for t in (q, k, v)), key_padding_mask=padding)[0]
    assert torch.allclose(turned.transpose(0, 1), output, atol=1e-5)


def test_the_layer_starts_as_multihead_attention():
    for options in ({}, {"kdim": 5, "vdim": 7}, {"bias": False}):
        exact = exact_layer(**options)
        torch.manual_seed(0)
        layer = RandomFeatureAttention(16, 4, batch_first=True, **options)
        ours, theirs = dict(layer.named_parameters()), dict(exact.named_parameters())
        assert list(ours) == list(theirs) and all(ours[n].shape == p.shape for n, p in theirs.items())
        for name, p in theirs.items():
            assert torch.equal(ours[name], p), name


def test_causal_layers():
    x = torch.randn(2, 30, 16, generator=torch.Generator().manual_seed(1)) / 2
    mask = torch.nn.Transformer.generate_square_subsequent_mask(30)
    exact = exact_layer()
    layer = RandomFeatureAttention(16, 4, batch_first=True, n_components=8192, random_state=0)
    layer.load_state_dict(exact.state_dict())
    target = exact(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]
    output = layer(x, x, x, is_causal=True)[0]
    assert (output - target).abs().max() < 0.1
    for other in (mask, mask == -torch.inf):
        assert torch.equal(layer(x, x, x, attn_mask=other)[0], output)
    layer.causal = True
    assert torch.equal(layer(x, x, x)[0], output)
    later = x.clone()
    later[:, 20:] = 3
    assert torch.allclose(layer(later, later, later)[0][:, :20], output[:, :20], atol=1e-6)
    for wrong in (mask.T, mask[:20, :20], mask.masked_fill(mask == 0, 0.5), (mask < 0).int()):
        with pytest.raises(ValueError, match="attn_mask must be None or the causal mask"):
            layer(x, x, x, attn_mask=wrong)
    with pytest.raises(ValueError, match="need_weights must be False"):
        layer(x, x, x, need_weights=True)
    with pytest.raises(ValueError, match="2 or 3 axes"):
        layer(x[0, 0], x, x)
    for i, words in enumerate(("q contains NaN", "k contains NaN", "v contains NaN")):
        inputs = [x.clone(), x.clone(), x.clone()]
        inputs[i][0, 3, 2] = torch.nan
        with pytest.raises(ValueError, match=words):
            layer(*inputs)


def test_masks_of_the_layer_are_refused_by_their_names():
    layer, x = RandomFeatureAttention(16, 4, batch_first=True, random_state=0), torch.randn(2, 6, 16)
    for mask, error, words in (
        (np.zeros((2, 6), bool), TypeError, "key_padding_mask must be None or a tensor, got ndarray"),
        (torch.zeros(2, 6, dtype=torch.int), TypeError, "^key_padding_mask must be boolean or floating, got torch.int32"),
        (torch.full((2, 6), torch.nan), ValueError, "^key_padding_mask must be -inf or a number of moderate size"),
    ):
        with pytest.raises(error, match=words):
            layer(x, x, x, key_padding_mask=mask)
    with pytest.raises(TypeError, match="attn_mask must be None or a tensor, got ndarray"):
        layer(x, x, x, attn_mask=np.triu(np.ones((6, 6), bool), 1))


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that an operation gave."""

    nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.nbytes = max(self.nbytes, out.nbytes if isinstance(out, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.bfloat16], ids=str)
def test_a_causal_mask_is_read_by_rows(dtype):
    mask = torch.full((90, 70), True if dtype == torch.bool else -torch.inf, dtype=dtype).triu(1)
    with memory_budget(1000), Largest() as read:
        attention_layer._refuse_other_masks(mask, 90, 70)
    assert 0 < read.nbytes <= 1000
    for i, j in ((0, 1), (69, 0), (89, 69)):
        wrong = mask.clone()
        wrong[i, j] = 0 if mask[i, j] else 1
        with memory_budget(1000), pytest.raises(ValueError, match=r"the causal mask of shape \(90, 70\)"):
            attention_layer._refuse_other_masks(wrong, 90, 70)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_inside_torchs_encoder_layer():
    """torch's fast path would compute exact attention with our weights; the layer keeps it off (a hook would, too)."""
    block = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    exact = block.eval()(x := torch.randn(2, 10, 16))
    ours = copy.deepcopy(block)
    ours.self_attn = RandomFeatureAttention(16, 4, batch_first=True, n_components=4, random_state=0)
    ours.self_attn.load_state_dict(block.self_attn.state_dict())
    with torch.no_grad():
        fast = ours.eval()(x)
        attended = ours.self_attn(x, x, x)[0]
        by_hand = ours.norm1(x + attended)
        by_hand = ours.norm2(by_hand + ours.linear2(ours.linear1(by_hand).relu()))
    slow = ours(x)
    assert torch.allclose(fast, by_hand, atol=1e-6)
    assert torch.allclose(fast, slow, atol=1e-6) and (fast - exact).abs().max() > 1e-3
    padding = torch.zeros(2, 10, dtype=torch.bool)
    padding[:, 7:] = True
    with torch.no_grad():
        ours(x, src_key_padding_mask=padding)
        built = torch.nn.TransformerEncoder(block, 1).eval()
        built.layers[0].self_attn = ours.self_attn
        with pytest.raises(TypeError, match="must not be nested tensors.*set its use_nested_tensor = False"):
            built(x, src_key_padding_mask=padding)
        built.use_nested_tensor = False
        assert torch.allclose(built(x, src_key_padding_mask=padding), ours(x, src_key_padding_mask=padding), atol=1e-6)
        stack = torch.nn.TransformerEncoder(ours, 2, enable_nested_tensor=False)
        assert stack(x, mask=torch.nn.Transformer.generate_square_subsequent_mask(10)).isfinite().all()


def test_state_and_copies():
    x = torch.randn(2, 12, 16)
    layer = RandomFeatureAttention(16, 4, batch_first=True, n_components=32, random_state=1, causal=True, gated=True)
    output = layer(x, x, x)[0]
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = RandomFeatureAttention(16, 4, batch_first=True, n_components=32, random_state=2, causal=True, gated=True)
    assert not torch.allclose(other(x, x, x)[0], output)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x, x, x)[0], output)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x, x, x)[0], output)
    with pytest.raises(RuntimeError, match="gate_proj"):
        layer.load_state_dict(exact_layer().state_dict())
    nested = torch.nn.Sequential(RandomFeatureAttention(16, 4, batch_first=True, n_components=32))
    kept = nested[0].frequencies.clone()
    nested.load_state_dict({f"0.{k}": v for k, v in exact_layer().state_dict().items()})
    assert torch.equal(nested[0].frequencies, kept)


def test_training_redraws_and_drops():
    x = torch.randn(2, 12, 16)
    layer = RandomFeatureAttention(16, 4, batch_first=True, n_components=32, random_state=1, redraw="step")
    a, b = layer(x, x, x)[0], layer(x, x, x)[0]
    assert not torch.equal(a, b)
    layer.eval()
    assert torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    drops = RandomFeatureAttention(16, 4, 0.5, batch_first=True, n_components=32, random_state=1)
    assert not torch.equal(drops(x, x, x)[0], drops(x, x, x)[0])
    drops.eval()
    assert torch.equal(drops(x, x, x)[0], drops(x, x, x)[0])
    assert layer.frequencies.shape == (4, 32, 4)


@pytest.mark.parametrize("tilt", [0.0, -0.2])
def test_a_gated_layer_forgets_as_the_function_does(tilt):
    x = torch.from_numpy(data(2, 40, 16, seed=3)).float()
    layer = RandomFeatureAttention(16, 4, batch_first=True, n_components=32, random_state=1, causal=True, gated=True, tilt=tilt)
    parts = F.linear(x, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
    q, k, v = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in parts)
    gate = torch.sigmoid(layer.gate_proj(x)).transpose(1, 2)
    heads = random_feature_attention(q, k, v, causal=True, gate=gate, frequencies=layer.frequencies, tilt=tilt)
    expected = layer.out_proj(heads.transpose(1, 2).flatten(-2))
    assert torch.allclose(layer(x, x, x, need_weights=False)[0], expected, atol=1e-5)


def test_a_gated_layer_begins_with_a_long_memory():
    layer = RandomFeatureAttention(8, 2, causal=True, gated=True)
    assert (torch.sigmoid(layer.gate_proj.bias) > 0.95).all()


@pytest.mark.parametrize("gated", [False, True])
def test_the_layer_learns(gated, device):
    """Gradients reach every parameter, and agree with differences."""
    x = torch.randn(2, 6, 8, dtype=torch.float64).to(device)
    layer = RandomFeatureAttention(8, 2, batch_first=True, n_components=6, random_state=1, causal=True, gated=gated,
                                   dtype=torch.float64, device=device)
    names = [n for n, _ in layer.named_parameters()]

    def f(*parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters)), (x, x, x))[0]

    assert torch.autograd.gradcheck(f, tuple(p.detach().requires_grad_() for p in layer.parameters()))
    assert layer.frequencies.dtype == torch.float64
    half = RandomFeatureAttention(8, 2, batch_first=True, random_state=1, dtype=torch.bfloat16, device=device)
    y = x.to(torch.bfloat16)
    half(y, y, y)[0].sum().backward()
    assert half(y, y, y)[0].dtype == torch.bfloat16
    assert all(p.grad.isfinite().all() for p in half.parameters())


@pytest.mark.parametrize("lead", [(2,), (2, 3)], ids=str)
@pytest.mark.parametrize("n", [(5, 3), (40, 300), (1100, 1)], ids=str)
def test_other_numbers_of_keys(lead, n):
    q, k = (torch.from_numpy(data(*lead, size, 4, seed=s)) for s, size in enumerate(n))
    W = torch.from_numpy(attention_frequencies(8, 4, random_state=0))
    o = random_feature_attention(q.float(), k.float(), k.float(), frequencies=W)
    weights = torch.exp(q / 4**0.25 @ W.mT) @ torch.exp(k / 4**0.25 @ W.mT - k.square().sum(-1, keepdim=True) / 4).mT
    assert torch.allclose(o.double(), weights @ k / weights.sum(-1, keepdim=True), atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_small_values_far_from_the_frequencies(causal):
    """Powers of the key are as small as those of the query are large: values must not be lost between them."""
    q, k, v, W = (torch.tensor([[value]]) for value in (5.9, -5.9, 2.0**-31, 11.0))
    o = random_feature_attention(q, k, v, frequencies=W, scale=1.0, causal=causal)
    assert np.isclose(float(o), 2.0**-31, rtol=1e-5, atol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_denominators_that_single_precision_does_not_have(causal):
    q, k, v, W = ([[-7.5], [-7.5]], [[-7.5], [-7.4]], [[1.0], [2.0]], [[6.0]])
    single, double = (random_feature_attention(*(np.array(T, dtype) for T in (q, k, v)), frequencies=np.array(W, dtype), scale=1.0,
                                               causal=causal) for dtype in ("float32", "float64"))
    np.testing.assert_allclose(single, double, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # in torch's own forward derivatives
@pytest.mark.parametrize("causal", [False, True])
def test_forward_derivatives(causal):
    q, k, v, direction = (torch.from_numpy(data(20, 4, seed=s)) for s in range(4))
    f = lambda q: random_feature_attention(q, k, v, causal=causal, n_components=8, random_state=0)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(q, direction))).tangent
    difference = (f(q + 1e-5 * direction) - f(q - 1e-5 * direction)) / 2e-5
    assert torch.allclose(tangent, difference, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_second_derivatives_at_zero(kind, causal):
    """As padded rows are: there the length of a row has a kink, and its square none."""
    q, k, v = (torch.from_numpy(data(6, 3, seed=s)) for s in range(3))
    W = torch.from_numpy(0.2 * attention_frequencies(4, 3, kind=kind, random_state=1))
    hessians = []
    for size in (0.0, 1e-8):
        q[4], k[2] = size, size
        f = lambda q, k: random_feature_attention(q, k, v, kind=kind, causal=causal, frequencies=W).square().sum()
        hessians.append(torch.stack([torch.cat(row, -1) for row in torch.autograd.functional.hessian(f, (q, k))]))
    assert hessians[0].abs().max() > 0.01 and torch.allclose(*hessians, atol=1e-6)
    q[4], k[2] = 0.0, 0.0
    assert torch.autograd.gradgradcheck(f, (q.requires_grad_(), k.requires_grad_()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_functions_of_torch_func(kind, causal):
    """One inside of the other, around autograd and mapped over examples, beside autograd; what overflows is refused."""
    q, k, v = (torch.from_numpy(data(3, 6, 4, seed=s)) for s in range(3))
    k[1] *= 10  # blocks are cut for all where one needs it
    W = torch.from_numpy(0.1 * attention_frequencies(8, 4, kind=kind, random_state=0))
    bias = torch.from_numpy(data(3, 6, seed=3))
    attended = lambda q, k, v, b: random_feature_attention(q, k, v, kind=kind, causal=causal, frequencies=W, key_mask=b)
    f = lambda q, b, i=0: attended(q, k[i], v[i], b).square().sum()
    d = torch.from_numpy(data(6, 4, seed=4))
    torch.testing.assert_close(torch.vmap(attended)(q, k, v, bias), attended(q, k, v, bias))
    last = [t.movedim(0, -1) for t in (q, k, v, bias)]
    torch.testing.assert_close(torch.vmap(attended, (2, 2, 2, 1))(*last), attended(q, k, v, bias))
    wanted = torch.stack([torch.autograd.functional.jacobian(lambda q: f(q, bias[i], i), q[i]) for i in range(3)])
    per_example = torch.vmap(torch.func.grad(lambda *t: attended(*t).square().sum()))(q, k, v, bias)
    torch.testing.assert_close(per_example, wanted)
    H = torch.autograd.functional.hessian(lambda q: f(q, bias[0]), q[0])
    torch.testing.assert_close(torch.func.hessian(f)(q[0], bias[0]), H)
    slope = torch.func.grad(f)
    torch.testing.assert_close(torch.func.jvp(lambda q: slope(q, bias[0]), (q[0],), (d,))[1], (H * d).sum((2, 3)))
    torch.testing.assert_close(torch.func.grad(lambda q: (slope(q, bias[0]) * d).sum())(q[0]), (H * d).sum((2, 3)))
    x, h = q[0].clone().requires_grad_(), torch.ones(4, dtype=torch.float64, requires_grad=True)
    g = lambda h, x: (attended(x, k[0], v[0], bias[0]) @ h).sin().sum()
    slope, = torch.autograd.grad(g(h, x), h, create_graph=True)
    wanted, = torch.autograd.grad(slope.square().sum(), x)
    inner = lambda x: torch.func.grad(g)(h.detach(), x).square().sum()  # x is of no concern to it
    torch.testing.assert_close(torch.autograd.grad(inner(x), x)[0], wanted)
    torch.testing.assert_close(torch.func.grad(inner)(q[0]), wanted)
    with pytest.raises(ValueError, match="exponents of q and k overflow"):
        torch.vmap(attended)(q, 1e200 * k, v, bias)
    with pytest.raises(ValueError, match="q contains NaN"):
        torch.vmap(attended)(torch.cat([q[:2], torch.nan * q[2:]]), k, v, bias)


@pytest.mark.parametrize("options", [{}, {"causal": True, "gated": True}], ids=str)
def test_gradients_of_single_examples(options):
    x = torch.from_numpy(data(3, 7, 8))
    padding = torch.arange(7) > torch.tensor([[6], [3], [5]])
    layer = RandomFeatureAttention(8, 2, batch_first=True, n_components=8, random_state=0, dtype=torch.float64, **options)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters, x, mask):
        return torch.func.functional_call(layer, parameters, (x, x, x), {"key_padding_mask": mask})[0].square().sum()

    found = torch.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, x, padding)
    for i in range(3):
        wanted = torch.autograd.grad(loss(dict(layer.named_parameters()), x[i], padding[i]), layer.parameters())
        for one, two in zip(found.values(), wanted, strict=True):
            torch.testing.assert_close(one[i], two)


@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile takes a compiler")
@pytest.mark.filterwarnings("ignore")  # of the compiler, about itself
def test_a_compiled_layer():
    """Lengths that change, and one of more than a block."""
    torch._dynamo.reset()
    layer = RandomFeatureAttention(16, 2, batch_first=True, n_components=8, random_state=0).eval()
    compiled = torch.compile(layer)
    with torch.no_grad():
        for n in (7, 1100):
            x = torch.randn(2, n, 16)
            assert torch.allclose(compiled(x, x, x)[0], layer(x, x, x)[0], atol=1e-6)
