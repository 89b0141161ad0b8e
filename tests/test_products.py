"""Products of matrices: both ways of the wide ones, halves of Gram matrices, a few columns."""

import platform

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rfteach import products
from rfteach.arrays import memory_budget
from rfteach.features import fourier_features
from rfteach.kernels import Gaussian
from rfteach.products import PANEL, add_gram, add_products, copy_rows, gram, rows_for_gram, thin_product


class Heard(TorchDispatchMode):
    """The names of all operations."""

    def __init__(self):
        super().__init__()
        self.ran = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ran.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture(params=[False, True], ids=["as elsewhere", "by convolution"])
def half_width(request, monkeypatch):
    """Both kinds of processor."""
    monkeypatch.setattr(products, "_half_width", lambda: request.param)
    return request.param


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n, m, k", [(5, 3, 4), (300, 400, 150), (1000, 64, 300), (330, 1030, 64), (100, 2000, 300), (300, 1030, 64), (2000, 2000, 32), (100, 100, 8200), (300, 300, 0)])
@pytest.mark.parametrize("layout", ["rows", "columns", "a view"])
def test_add_products(n, m, k, dtype, layout, half_width):
    """Against float64, whatever the strides, into a view, by blocks of rows, and what was there counts once, or not at all."""
    X, Y, out = normal(n, k, dtype=dtype), normal(m, k, dtype=dtype, seed=1), normal(n, m, dtype=dtype, seed=2)
    v, u = normal(m, dtype=dtype, seed=3), normal(n, dtype=dtype, seed=4)
    if layout == "columns":
        X, Y, out = X.T.contiguous().T, Y.T.contiguous().T, out.T.contiguous().T
    if layout == "a view":
        X, Y, out = X.repeat(1, 2)[:, :k], Y.repeat(2, 1)[m:], out.repeat_interleave(2, 1)[:, ::2]
    product, sizes = X.double() @ Y.double().T, X.double().abs() @ Y.double().abs().T
    starts = out.clone().double(), v.double().expand(n, m), v.double() + u.double()[:, None]
    with memory_budget(2**18), Heard() as heard:
        for start, vectors in zip(starts, [(), (v,), (v, u)], strict=True):
            add_products(out.fill_(torch.nan) if vectors else out, X, Y, *vectors)
            bound = (k + 4) * torch.finfo(dtype).eps * (sizes + start.abs() + v.double().abs())
            assert ((out - start - product).abs() <= bound).all()
    wide = dtype == torch.float32 and half_width and min(n, m, k) >= 64 and k < 8200 and n * m * k >= 2**24 and n * k > 20480
    assert ("convolution" in heard.ran) == wide and ("addmm" in heard.ran) != wide


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_convolution_is_handed_to_onednn(threads, monkeypatch):
    """Also with a single thread, and in the blocks that the library has."""
    monkeypatch.setattr(products, "_half_width", lambda: True)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.profiler.profile() as seen:
            add_products(torch.zeros(210, 4000), normal(210, 100), normal(4000, 100, seed=1))
            gram(normal(300, 4 * PANEL))
    finally:
        torch.set_num_threads(before)
    assert sum(event.count for event in seen.key_averages() if event.key == "aten::mkldnn_convolution") == 1 + 4


def test_a_convolution_stays_in_float32_under_autocast(half_width):
    X, Y = normal(300, 400), normal(200, 400, seed=1)
    out = torch.zeros(300, 200)
    with torch.autocast("cpu", torch.bfloat16):
        add_products(out, X, Y)
    assert (out - X.double() @ Y.double().T).abs().max() < 1e-3  # bfloat16 is off by 0.1


@pytest.mark.parametrize(
    "capability, said, expected",
    [
        ("AVX512", "vendor_id : AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n", True),
        ("AVX512", "AMD64 Family 26 Model 68 Stepping 0, AuthenticAMD", True),
        ("AVX512", "vendor_id : AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 97\n", False),
        ("AVX512", "vendor_id : GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n", False),
        ("AVX512", "", False),
        ("AVX2", "vendor_id : AuthenticAMD\ncpu family\t: 26\n", False),
    ],
)
@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("mkl", [False, True])
def test_which_processors(capability, said, expected, file, mkl, monkeypatch, tmp_path):
    """By name, from Linux's file or from what Python says of others, where products are MKL's."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    about = tmp_path / "cpuinfo"
    if file:
        about.write_text(said)
    monkeypatch.setattr(products, "Path", lambda _: about)
    monkeypatch.setattr(platform, "processor", lambda: "" if file else said)
    assert products._half_width.__wrapped__() == (expected and mkl)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # which torch says of every change of oneDNN's settings
def test_other_tensors_and_settings_are_left_to_torch(monkeypatch):
    """No convolution of another dtype, or where oneDNN is switched off; and sums in another dtype are refused as ever."""
    monkeypatch.setattr(products, "_half_width", lambda: True)
    X, Y = normal(300, 400), normal(200, 400, seed=1)
    with pytest.raises(RuntimeError, match="dtype"):
        add_products(torch.zeros(300, 200, dtype=torch.float64), X, Y)
    with Heard() as heard:
        add_products(torch.zeros(300, 200), X, Y)
        assert "convolution" in heard.ran
        heard.ran.clear()
        with torch.backends.mkldnn.flags(enabled=False):
            add_products(torch.zeros(300, 200), X, Y)
        assert "convolution" not in heard.ran


@pytest.mark.parametrize("call", ["k(X)", "k(X, Y)", "features"])
def test_who_multiplies_wide(call, half_width):
    """Kernels and features of many inputs, also of so many rows that a tile is low."""
    X = normal(5000, 200)
    calls = {"k(X)": lambda: Gaussian(9.0)(X), "k(X, Y)": lambda: Gaussian(9.0)(X, X[:3000].clone()),
             "features": lambda: fourier_features(X[:1000], normal(500, 200, seed=1))}
    with Heard() as heard:
        calls[call]()
    assert ("convolution" in heard.ran) == half_width


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [300, 700])
def test_gram_of_many_rows(dtype, columns, half_width):
    """More of them than one product by convolution takes, against float64; symmetric to the bit."""
    B = normal(9000, columns, dtype=dtype)
    exact = B.double().T @ B.double()
    with Heard() as heard:
        G = gram(B)
    wide = half_width and dtype == torch.float32
    assert heard.ran.count("convolution") == (2 * -(-columns // PANEL) if wide else 0)  # of 4500 rows each
    assert torch.equal(G, G.T)
    assert (G - exact).abs().max() < 30 * torch.finfo(dtype).eps * 5000


@pytest.mark.parametrize("rows, sums", [("float32", "float64"), ("float32", "float32")])
def test_wide_parts_by_either_way(rows, sums, half_width):
    """Sums of parts of which one is cut into two; above the diagonal the triangle stays as it was."""
    parts = [normal(n, 600, dtype=getattr(torch, rows), seed=n) for n in (70, 6500, 500)]
    G = torch.ones(600, 600, dtype=getattr(torch, sums))
    with Heard() as heard:
        for B in parts:
            add_gram(G, B)
    exact = (1 + sum(B.double().T @ B.double() for B in parts)).tril() + torch.ones(600, 600).triu(1)
    assert (G - exact).tril().abs().max() < 2e-2
    assert torch.equal(G.triu(PANEL), exact.triu(PANEL).to(G.dtype))
    assert ("convolution" in heard.ran) == half_width


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("r", [*range(1, 10), 33])
def test_thin_product(r, dtype, monkeypatch):
    """A matrix times a few columns, whatever the strides of both, also where threads have parts of it and some is over."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    rng = torch.Generator().manual_seed(r)
    for n, m in ((70, 50), (400, 170), (127, 520), (150, 500), (30, 5000), (4200, 500)):
        wide = torch.randn(n, m + 10, generator=rng, dtype=dtype)
        c = torch.randn(m, r, generator=rng, dtype=dtype)
        high = torch.randn(m + 10, n, generator=rng, dtype=dtype)
        for A in (wide[:, :m], high[10:].T, wide[:, :m].T.contiguous().T):
            for columns in (c, c.T.contiguous().T):
                with Heard() as heard:
                    out = thin_product(A, columns)
                rows = A.stride(1) == 1 and (dtype == torch.float32 or n * m < 2**21)  # which a single column leaves as they are
                added = r <= 2 and A.stride(0) == 1 and m >= 128 and m // 64 >= min(3, n // 64)  # parts are columns of A
                cut = 32 >= r and (r > 1 or not rows) and n * m > 2**16 and (m if added else n) >= 128  # 64 for two threads or more
                assert ("bmm" in heard.ran) == cut and ("sum" in heard.ran) == (cut and added)
                assert out.shape == (n, r) and out.dtype == dtype
                # a sum of m terms in one go is off by some m/6 roundings, the largest of 25 000 such sums by five times that
                assert torch.allclose(out.double(), A.double() @ c.double(), atol=200 * (m / 50) ** 0.5 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [5, 193, 1300])
@pytest.mark.parametrize("layout", ["rows", "columns", "a view"])
def test_products_are_added_to_the_lower_triangle(dtype, columns, layout):
    """By panels and into a view, against the whole product; what is above the diagonal stays as it was."""
    B = torch.randn(40, columns, generator=torch.Generator().manual_seed(0)).to(dtype)
    G = torch.ones(columns, 2 * columns, dtype=torch.float64)
    G = G[:, ::2] if layout == "a view" else G[:, :columns].contiguous()
    add_gram(G, B.T.contiguous().T if layout == "columns" else B)
    add_gram(G, B[:0])
    exact = (1 + B.double().T @ B.double()).tril() + torch.ones(columns, columns).triu(1)
    assert (G - exact).tril().abs().max() < 200 * torch.finfo(dtype).eps
    if layout != "a view":
        assert torch.equal(G.triu(PANEL), exact.triu(PANEL))


@pytest.mark.parametrize("rows, sums", [("float32", "float64"), ("float64", "float64"), ("float32", "float32")])
@pytest.mark.parametrize("runs", [(), (2,)])
def test_sums_of_products(rows, sums, runs):
    """Against float64; and in float32 under autocast as well, which would take products down to half precision."""
    rows, sums = getattr(torch, rows), getattr(torch, sums)
    parts = [torch.randn(*runs, n, 200, generator=torch.Generator().manual_seed(n)).to(rows) for n in (30, 1, 50)]
    exact = sum(B.double().flatten(0, -2).T @ B.double().flatten(0, -2) for B in parts)
    for autocast in {False, not runs}:
        G = torch.zeros(200, 200, dtype=sums)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            for B in parts:
                add_gram(G, B)
        assert (G - exact).tril().abs().max() < 2000 * torch.finfo(rows).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("runs", [(), (3,)])
def test_products_are_added_where_they_belong_and_not_copied(dtype, runs, half_width):
    """`G[rows, cols] += P` would write each part a second time: Python assigns the sum to the part that it came from."""
    for B in torch.ones(*runs, 5, 700, dtype=dtype), torch.ones(*runs, 700, 100, dtype=dtype).mT:
        with Heard() as heard:  # the second lies as a convolution wants it, so nothing is copied for it
            add_gram(torch.zeros(700, 700, dtype=torch.float64), B)
        assert {"addmm_", "add_"} & set(heard.ran) and "copy_" not in heard.ran


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [100, 4300, 6500])
def test_rows_laid_out_for_their_products(n, dtype, half_width):
    """What `rows_for_gram` gives is multiplied as it is, of more than 6144 rows in two parts; rows written into it, also from
    another dtype, are those rows."""
    rows = normal(n, 500, dtype=torch.float32)
    B = rows_for_gram(n, 500, dtype)
    copy_rows(rows, B)
    assert B.dtype == dtype and torch.equal(B, rows.to(dtype))
    with Heard() as heard:
        add_gram(torch.zeros(500, 500, dtype=dtype), B)
    wide = half_width and dtype == torch.float32
    assert ("copy_" in heard.ran) == (wide and n > 6144) and ("convolution" in heard.ran) == wide
