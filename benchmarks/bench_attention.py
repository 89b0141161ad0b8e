"""Random feature attention: `random_feature_attention` and torch's `scaled_dot_product_attention`."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from harness import Contest, warm
from rfteach.attention import attention_frequencies, random_feature_attention

TITLE = "Random feature attention against torch's exact attention, one head or eight, tensors in and out"


def settings(quick=False):
    """The sizes to try: length L, entries E of queries, keys and values, features N; one length with several heads."""
    lengths = (96, 384) if quick else (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
    sizes = dict(E=8, N=16) if quick else dict(E=64, N=256)
    one = [dict(L=L, **sizes, causal=causal, dtype="float32") for causal in (False, True) for L in lengths]
    middle = lengths[len(lengths) // 2 - 1]
    return one + [dict(L=middle, heads=8, **sizes, causal=causal, dtype="float32") for causal in (False, True)]


def contest(L, E, N, causal, dtype, heads=1, place="cpu"):
    """Both on the same queries, keys and values; random features with frequencies that are there.

    The error is that of the first head.
    """
    rng = np.random.default_rng(0)
    q, k, v = (torch.from_numpy(rng.standard_normal((1, heads, L, E)).astype(dtype)).to(place) for _ in range(3))
    W = torch.from_numpy(attention_frequencies(N, E, random_state=0).astype(dtype)).to(place)
    rows = np.unique(np.linspace(0, L - 1, 32).astype(int))  # where errors are measured

    size, chunk = L if place != "cpu" else min(L, 1024 // heads if causal else 1024), min(L, 128)
    out, Z, P, V = (warm((heads, *shape), dtype, place) for shape in ((L, E), (size, N), (size, N), (N, E)))
    K, kept, answers = P.view(heads, N, size), *(warm((heads, size, E), dtype, place) for _ in range(2))
    block, own = warm((heads, size, chunk), dtype, place), warm((heads * (size // chunk), N, E), dtype, place)
    scaled = (W / (E**0.25 * math.log(2))).T.repeat(heads, 1, 1)  # e^z = 2^(z / log 2)
    chunks = lambda T: T.view(-1, chunk, T.shape[-1])

    def before(sums, total):
        """Sums of chunks become those of all chunks before; the total of earlier blocks becomes that of all."""
        after = sums.view(heads, -1, *sums.shape[1:]).cumsum(1).add_(total[:, None])
        total.copy_(after[:, -1])
        return sums.neg_().add_(after.flatten(0, 1))

    def limit(whole=False):
        """The products and powers of two; a causal block by chunks side by side.

        The whole adds lengths of the keys, the triangle, denominators, and sums from chunk to chunk.
        """
        V.zero_()
        z = torch.zeros(heads, N, 1, dtype=out.dtype, device=out.device)
        lengths = k[0].square().sum(-1) / (2 * E**0.5 * math.log(2)) if whole else None
        for i in range(0, L, size):
            s = slice(i, i + size)
            if causal:
                torch.bmm(k[0, :, s], scaled, out=P)
                (P.sub_(lengths[:, s, None]) if whole else P).exp2_()
                torch.bmm(q[0, :, s], scaled, out=Z).exp2_()
                torch.bmm(chunks(Z), chunks(P).mT, out=chunks(block))
                values = chunks(v[0, :, s] if v[0, :, s].is_contiguous() else kept.copy_(v[0, :, s]))
                if whole:
                    chunks(block).tril_()
                torch.bmm(chunks(block), values, out=chunks(answers))
                torch.bmm(chunks(P).mT, values, out=own)
                if whole:
                    before(own, V)
                chunks(answers).baddbmm_(chunks(Z), own)
                if whole:
                    weights = chunks(block).sum(-1, keepdim=True)
                    chunks(answers).div_(weights.baddbmm_(chunks(Z), before(chunks(P).sum(1)[..., None], z)))
                out[:, s] = answers
            else:
                torch.bmm(scaled.mT, k[0, :, s].mT, out=K)
                (K.sub_(lengths[:, None, s]) if whole else K).exp2_()
                V.baddbmm_(K, v[0, :, s])
                if whole:
                    z += K.sum(-1, keepdim=True)
        for i in range(0, 0 if causal else L, size):
            s = slice(i, i + size)
            torch.bmm(torch.bmm(q[0, :, s], scaled, out=Z).exp2_(), V, out=out[:, s])
            if whole:
                out[:, s].div_(Z @ z)
        return out[None]

    def error(weights_of):
        """Largest error at some rows, against float64."""
        x, y, values = q[0, 0].double()[rows] / E**0.25, k[0, 0].double() / E**0.25, v[0, 0].double()
        logits = weights_of(x, y)
        if causal:
            later = torch.arange(L) > torch.from_numpy(rows)[:, None]
            logits = logits.masked_fill(later.to(place), -math.inf)
        exact = logits.softmax(1) @ values
        return lambda o: float((o[0, 0, rows].double() - exact).abs().max())

    def features(x, y):
        a = y @ W.double().T - y.square().sum(1, keepdim=True) / 2
        b = x @ W.double().T
        shift, peak = a.amax(0), (b + a.amax(0)).amax(1, keepdim=True)
        return ((b + shift - peak).exp() @ (a - shift).exp().T).log()

    return Contest(
        cases={"SDPA": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
               "rfteach": lambda: random_feature_attention(q, k, v, causal=causal, frequencies=W),
               "limit": limit, "limit, and denominators": lambda: limit(whole=True)},
        baseline="SDPA", limit=("limit",), parts=("limit, and denominators",),
        limit_is="the products with frequencies, keys and values and the powers of two, in blocks of memory "
                 "that is already there; and with them what makes them attention: lengths of the keys, denominators, "
                 "and for a causal row nothing of the keys after it",
        gemm=(min(L, 1024), E, N), memory=place == "cpu", place=place,
        errors={"SDPA": error(lambda x, y: x @ y.T), "rfteach": error(features)})
