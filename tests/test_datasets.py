"""Functions with known answers against slow references; real files against everything that can happen to them."""
import errno
import gzip
import hashlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from scipy import stats

from rfteach import datasets
from rfteach.datasets import (
    FILES, DataFile, fetch, gaussian_bump, gaussian_bump_moments, ishigami, ishigami_moments, load_mnist,
    load_propulsion, load_regression, product_moments, read_idx, sobol_g, sobol_g_moments,
)

REGRESSION_SHAPES = {
    "airfoil-self-noise": (1503, 5), "concrete": (1030, 8), "energy": (768, 8), "kin8nm": (8192, 8),
    "naval-propulsion-plant": (11934, 16), "power-plant": (9568, 4), "protein-tertiary-structure": (45730, 9),
    "wine-quality-red": (1599, 11), "yacht": (308, 6),
}


# ---------------------------------------------------------------- functions


def slow_sobol_g(X, c):
    y = []
    for row in X:
        value = 1.0
        for x_j, c_j in zip(row, c):
            value *= (abs(4 * x_j - 2) + c_j) / (1 + c_j)
        y.append(value)
    return np.array(y)


def slow_ishigami(X):
    return np.array([np.sin(x) + 7 * np.sin(y) ** 2 + 0.1 * z**4 * np.sin(x) for x, y, z in X])


CENTER, COVARIANCE, C = [0.5, -1.0, 0.2], [[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]], [0.0, 1.5, 9.0]
FUNCTIONS = {
    "sobol_g": (lambda X: sobol_g(X, C), lambda X: slow_sobol_g(X, C)),
    "ishigami": (ishigami, slow_ishigami),
    "bump": (lambda X: gaussian_bump(X, CENTER), lambda X: stats.multivariate_normal(CENTER, np.eye(3)).pdf(X)),
    "bump with covariance": (lambda X: gaussian_bump(X, CENTER, COVARIANCE),
                             lambda X: stats.multivariate_normal(CENTER, COVARIANCE).pdf(X)),
}


@pytest.fixture(params=FUNCTIONS)
def pair(request):
    return FUNCTIONS[request.param]


def points(n=50, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, (n, 3))


@pytest.mark.parametrize("dtype, rtol", [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_functions_against_slow_references(pair, dtype, rtol):
    fast, slow = pair
    X = points().astype(dtype)
    y = fast(X)
    assert y.dtype == dtype and y.shape == (50,)
    np.testing.assert_allclose(y, slow(X.astype(float)), rtol=rtol, atol=rtol)


def test_functions_return_the_kind_that_came(pair):
    f, slow = pair
    X = points(5)
    expected = slow(X)
    as_list = f(X.tolist())
    assert isinstance(as_list, np.ndarray) and as_list.dtype == np.float64
    tensor = f(torch.tensor(X, dtype=torch.float32))
    assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32
    assert f(np.ones((4, 3), dtype=int)).dtype == np.float64
    np.testing.assert_allclose(as_list, expected, rtol=1e-12)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, index=list("vwxyz"), columns=["a", "b", "c"])
    series = f(frame)
    assert isinstance(series, pandas.Series) and list(series.index) == list("vwxyz")
    np.testing.assert_allclose(series, expected, rtol=1e-12)


def test_functions_do_not_change_their_input(pair):
    X = points()
    before = X.copy()
    pair[0](X)
    np.testing.assert_array_equal(X, before)


def test_functions_of_permuted_rows(pair):
    X, order = points(), np.random.default_rng(1).permutation(50)
    np.testing.assert_array_equal(pair[0](X)[order], pair[0](X[order]))


def test_gradients(pair):
    X = torch.tensor(points(4), requires_grad=True)
    assert torch.autograd.gradcheck(pair[0], (X,))


def test_gradients_in_the_parameters():
    X = torch.tensor(points(4))
    center = torch.tensor(CENTER, dtype=torch.float64, requires_grad=True)
    L = torch.linalg.cholesky(torch.tensor(COVARIANCE, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, L: gaussian_bump(X, m, L.tril() @ L.tril().T), (center, L))
    c = torch.tensor([0.5, 1.5, 9.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c: sobol_g(X, c), (c,))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_functions_on_cuda(pair):
    X = torch.tensor(points(), device="cuda")
    y = pair[0](X)
    assert y.device.type == "cuda"
    np.testing.assert_allclose(y.cpu(), pair[1](points()), rtol=1e-10)


def test_far_from_the_bump_is_zero_and_not_nan():
    assert gaussian_bump([[1e6, 0.0]], [0, 0]) == 0


def test_bump_integrates_to_one():
    t = np.linspace(-6, 6, 241)
    grid = np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)
    y = gaussian_bump(grid, [0.1, 0.2], [[0.5, 0.2], [0.2, 0.3]])
    assert y.sum() * (t[1] - t[0]) ** 2 == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize(
    "call, message",
    [(lambda: sobol_g(points(), [1, 2]), "c must have one entry per column"),
     (lambda: sobol_g(points(), [1, 2, -1]), "c must not be negative"),
     (lambda: sobol_g(points(), [1, np.nan, 1]), "c "),
     (lambda: sobol_g([1.0, 2.0], [1]), "X"),
     (lambda: sobol_g([[np.nan]], [1]), "X"),
     (lambda: ishigami(points()[:, :2]), "X must have 3 columns"),
     (lambda: gaussian_bump(points(), [0, 0]), "center must have one entry"),
     (lambda: gaussian_bump(points(), CENTER, np.eye(2)), "covariance must have shape"),
     (lambda: gaussian_bump(points(), CENTER, -np.eye(3)), "positive definite"),
     (lambda: gaussian_bump(points(), CENTER, np.eye(3) + 0.1 * np.triu(np.ones((3, 3)), 1)), "symmetric"),
     (lambda: gaussian_bump(points(), CENTER, np.eye(3) + 1e-12 * np.eye(3, k=1)), "symmetric"),
     (lambda: gaussian_bump_moments([0], 1, 1), "low must be smaller"),
     (lambda: gaussian_bump_moments(0.5), "center: Expected 1D"),
     (lambda: gaussian_bump_moments([0, np.nan]), "center contains NaN"),
     (lambda: gaussian_bump_moments([0, 50]), r"the density vanishes on the box \[-4.0, 4.0\]: entry 1 of center is 50"),
     (lambda: gaussian_bump_moments([32]), "the density vanishes on the box"),  # its square, that is
     (lambda: gaussian_bump_moments([1e300]), "the density vanishes on the box"),
     (lambda: sobol_g_moments(3.0), "c: Expected 1D"),
     (lambda: sobol_g_moments([1, -1]), "c must not be negative, its smallest entry is -1"),
     (lambda: product_moments([0, 1], [1, 1]), "means"),
     (lambda: product_moments([2], [1]), "means"),
     (lambda: product_moments([1, 1], [1]), "means")],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_covariance_that_is_symmetric_but_for_rounding(dtype):
    rng = np.random.default_rng(0)
    for d in (2, 10, 50):
        Q, D = np.linalg.qr(rng.normal(size=(d, d)))[0], 10.0 ** np.r_[np.zeros(d - 1), 2.0]
        S, X = (Q.astype(dtype) * D.astype(dtype)) @ Q.T.astype(dtype), np.zeros((1, d), dtype)
        S[0, 1] += 2 * np.spacing(abs(S).max())
        np.testing.assert_allclose(gaussian_bump(X, X[0], S), (2 * np.pi) ** (-d / 2) / 10, rtol=1e-4)
    S = np.diag([1.0, 2.0, 3.0])
    S[0, 2] = 1e-17  # beside a zero
    assert gaussian_bump(points(), CENTER, S) == pytest.approx(gaussian_bump(points(), CENTER, np.diag([1.0, 2.0, 3.0])))


MOMENTS = {
    "sobol_g": (lambda X: sobol_g(X, C), sobol_g_moments(C), 0, 1),
    "ishigami": (ishigami, ishigami_moments(), -np.pi, np.pi),
    "bump": (lambda X: gaussian_bump(X, CENTER), gaussian_bump_moments(CENTER, -2, 3), -2, 3),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_against_monte_carlo(name):
    f, exact, low, high = MOMENTS[name]
    n = 200_000
    y = f(np.random.default_rng(3).uniform(low, high, (n, 3)))
    squares = (y - exact.mean) ** 2
    assert abs(y.mean() - exact.mean) < 4 * y.std() / n**0.5
    assert abs(squares.mean() - exact.variance) < 4 * squares.std() / n**0.5


@pytest.mark.parametrize("name", MOMENTS)
def test_indices_by_freezing_inputs(name):
    """Plain Monte Carlo for (D.1): two samples that share an input, or all inputs but one."""
    f, exact, low, high = MOMENTS[name]
    n, rng = 200_000, np.random.default_rng(4)
    A, B = rng.uniform(low, high, (2, n, 3))
    y = f(A) - exact.mean
    for j in range(3):
        shared, other = B.copy(), A.copy()
        shared[:, j], other[:, j] = A[:, j], B[:, j]
        first = y * (f(shared) - exact.mean) / exact.variance
        total = 0.5 * (y - (f(other) - exact.mean)) ** 2 / exact.variance
        assert abs(first.mean() - exact.first[j]) < 4 * first.std() / n**0.5
        assert abs(total.mean() - exact.total[j]) < 4 * total.std() / n**0.5


@pytest.mark.parametrize("center", [3.0, 9.0, 10.0, 11.0])
def test_moments_of_a_bump_beside_the_box(center):
    """Either side is the mirror image of the other."""
    left, right = gaussian_bump_moments([-center, 1.0]), gaussian_bump_moments([center, 1.0])
    np.testing.assert_allclose([left.mean, left.variance, *left.first], [right.mean, right.variance, *right.first], rtol=1e-13)


def test_indices_are_consistent():
    for _, exact, _, _ in MOMENTS.values():
        assert (exact.first <= exact.total + 1e-15).all() and exact.first.sum() <= 1 + 1e-12
    one = sobol_g_moments([2.0])
    assert one.first == pytest.approx(1) and one.total == pytest.approx(1)


def test_irrelevant_inputs_keep_their_digits():
    exact = sobol_g_moments([1e6, 1e6])
    assert exact.variance == pytest.approx(2 / 3 * 1e-12, rel=1e-3)
    assert exact.first == pytest.approx([0.5, 0.5], rel=1e-3)
    constant = product_moments([2.0, 3.0], [4.0, 9.0])
    assert constant.mean == 6 and constant.variance == 0 and np.isnan(constant.first).all()


# ---------------------------------------------------------------- files

CONTENT = b"".join(b"%d %d\n" % (i, i * i) for i in range(2000))
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Empty data directory and cache; proxies off, so that 127.0.0.1 is this machine."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    monkeypatch.setenv("RFTEACH_DATA", str(data))
    monkeypatch.setenv("RFTEACH_CACHE", str(cache))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return data, cache


@pytest.fixture
def register(monkeypatch):
    def add(path="set/a.txt", sha256=SHA, **kwargs):
        monkeypatch.setitem(FILES, path, DataFile(path, sha256, "made by this test", **kwargs))
        return path
    return add


@pytest.fixture
def server():
    """A server whose behaviour the path chooses; it records what it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            if self.path.startswith("/missing"):
                return self.send_error(404)
            body = CONTENT[::-1] if self.path.startswith("/altered") else CONTENT
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.path.startswith("/broken"):
                body = body[: len(body) // 2]
            if self.path.startswith("/slow"):
                time.sleep(0.2)
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    httpd.asked, httpd.url = asked, f"http://127.0.0.1:{httpd.server_port}"
    yield httpd
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def put(path, content=CONTENT):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def files_below(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) if folder.exists() else []


def test_found_in_data_directory_before_the_cache(places, register):
    data, cache = places
    name = register()
    in_cache = put(cache / name)
    assert fetch(name) == in_cache
    in_data = put(data / name)
    assert fetch(name) == in_data


def test_data_directory_is_optional(places, register, monkeypatch):
    name = register()
    put(places[1] / name)
    for value in ("", None):
        monkeypatch.delenv("RFTEACH_DATA") if value is None else monkeypatch.setenv("RFTEACH_DATA", value)
        assert fetch(name) == places[1] / name


@pytest.mark.parametrize("data_set", [True, False])
def test_missing_file_says_everything(places, register, monkeypatch, data_set):
    data, cache = places
    name = register()
    if not data_set:
        monkeypatch.delenv("RFTEACH_DATA")
    with pytest.raises(FileNotFoundError) as caught:
        fetch(name)
    message = str(caught.value)
    for part in (name, SHA, str(cache / name), "made by this test", "no public address", "by hand"):
        assert part in message
    assert (str(data / name) if data_set else "$RFTEACH_DATA/" + name) in message
    assert files_below(cache) == []


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"\n", b"", CONTENT[::-1]])
@pytest.mark.parametrize("cached", [False, True])
def test_altered_file_in_data_directory_is_refused_and_kept(places, register, content, cached):
    data, cache = places
    name = register()
    path = put(data / name, content)
    if cached:
        put(cache / name)
    with pytest.raises(ValueError, match="altered or incomplete") as caught:
        fetch(name)
    assert SHA in str(caught.value) and hashlib.sha256(content).hexdigest() in str(caught.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize("download", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_altered_file_in_cache_is_refused_and_kept(places, register, download, packed):
    """Somebody may have put it there by hand."""
    _, cache = places
    name = register(urls=("http://127.0.0.1:9/a.txt",), packed=packed)
    path = put(cache / (name + ".gz" * packed), CONTENT[:100])
    with pytest.raises(ValueError, match="altered or incomplete"):
        fetch(name, download=download)
    assert path.read_bytes() == CONTENT[:100]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("download", [False, True])
def test_what_cannot_be_read_is_not_altered(places, register, server, monkeypatch, place, number, download):
    """It may be read again in a moment: no other copy is taken, and this one is left alone."""
    name = register(urls=(server.url + "/good",))
    path = put(places[place] / name)

    def fails(path, *args):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(datasets, "open", fails, raising=False)
    with pytest.raises(OSError, match="is there, but cannot be read") as caught:
        fetch(name, download=download)
    assert not isinstance(caught.value, FileNotFoundError)
    assert str(path) in str(caught.value) and os.strerror(number) in str(caught.value)
    assert path.read_bytes() == CONTENT and server.asked == []
    monkeypatch.undo()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("place", [0, 1])
def test_pipe_in_place_of_the_file(places, register, place):
    """Opening it would wait for somebody to write; so this is tried where it can be stopped."""
    name = "regression/yacht.txt"
    path = places[place] / name
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    code = f"from rfteach.datasets import fetch; fetch({name!r}, download=False)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert f"OSError: {name}: {path} is there, but cannot be read" in done.stderr and "pipe" in done.stderr


def test_altered_file_in_cache_is_downloaded_again(places, register, server, capsys):
    name = register(urls=(server.url + "/good",))
    put(places[1] / name, CONTENT[:100])
    assert fetch(name).read_bytes() == CONTENT
    altered, = places[1].glob("**/*.altered")
    assert altered.name.startswith("a.txt.") and altered.read_bytes() == CONTENT[:100]


@pytest.mark.parametrize("value", ["nowhere", "a file"])
def test_data_directory_that_is_none(places, register, monkeypatch, tmp_path, value):
    name = register()
    put(tmp_path / "a file")
    put(places[1] / name)
    monkeypatch.setenv("RFTEACH_DATA", str(tmp_path / value))
    with pytest.raises(NotADirectoryError) as caught:
        fetch(name)
    for part in (str(tmp_path / value), name, SHA, "by hand"):
        assert part in str(caught.value)


@pytest.mark.parametrize("place", [0, 1])
def test_directory_in_place_of_the_file(places, register, server, place):
    name = register(urls=(server.url + "/good",))
    path = places[place] / name
    path.mkdir(parents=True)
    with pytest.raises(OSError, match="cannot be read[^$]*a folder") as caught:
        fetch(name)
    assert str(path) in str(caught.value) and name in str(caught.value) and path.is_dir()


def test_packed_and_plain_text_have_one_checksum(places, register):
    data, _ = places
    name = register(packed=True)
    packed = put(data / (name + ".gz"), gzip.compress(CONTENT))
    assert fetch(name) == packed
    packed.write_bytes(gzip.compress(CONTENT, compresslevel=1))
    assert fetch(name) == packed
    plain = put(data / name)
    assert fetch(name) == plain


@pytest.mark.parametrize("packed", [gzip.compress(CONTENT)[:-20], b"no gzip", b"", gzip.compress(CONTENT[:-5]),
                                    gzip.compress(CONTENT)[:40] + b"\xff" * 50],
                         ids=["cut short", "no gzip", "empty", "other content", "overwritten"])  # the time is in the header
def test_damaged_packed_file(places, register, packed):
    name = register(packed=True)
    put(places[0] / (name + ".gz"), packed)
    with pytest.raises(ValueError, match="altered or incomplete"):
        fetch(name)


def test_packed_form_is_not_accepted_where_it_is_not_meant(places, register):
    name = register()
    put(places[0] / (name + ".gz"), gzip.compress(CONTENT))
    with pytest.raises(FileNotFoundError):
        fetch(name)


def test_unknown_name_suggests():
    with pytest.raises(ValueError, match="did you mean 'mnist/train-images-idx3-ubyte.gz'"):
        fetch("mnist/train-image-idx3-ubyte")


def test_download_once_with_progress(places, register, server, capsys):
    _, cache = places
    name = register(urls=(server.url + "/good",))
    path = fetch(name)
    assert path == cache / name and path.read_bytes() == CONTENT
    assert "100%" in capsys.readouterr().err
    assert fetch(name) == path and server.asked == ["/good"]
    assert files_below(cache) == [name]


def test_download_not_allowed(places, register, server):
    name = register(urls=(server.url + "/good",))
    with pytest.raises(FileNotFoundError, match="not allowed"):
        fetch(name, download=False)
    assert server.asked == []


@pytest.mark.parametrize("behaviour, kind", [("altered", ValueError), ("broken", FileNotFoundError), ("missing", FileNotFoundError)])
def test_bad_download_is_never_used_and_leaves_nothing(places, register, server, behaviour, kind, capsys):
    data, cache = places
    name = register(urls=(f"{server.url}/{behaviour}",))
    with pytest.raises(kind) as caught:
        fetch(name)
    assert f"{server.url}/{behaviour}" in str(caught.value) and SHA in str(caught.value)
    if behaviour == "altered":
        assert hashlib.sha256(CONTENT[::-1]).hexdigest() in str(caught.value)
    assert files_below(cache) == [] and files_below(data) == []


def test_mirrors_are_tried_in_order(places, register, server, capsys):
    addresses = ("missing", "altered", "broken", "good", "never")
    name = register(urls=tuple(f"{server.url}/{a}" for a in addresses))
    assert fetch(name).read_bytes() == CONTENT
    assert server.asked == ["/missing", "/altered", "/broken", "/good"]
    assert files_below(places[1]) == [name]


def test_no_network(places, register):
    name = register(urls=("http://127.0.0.1:9/a.txt",))
    with pytest.raises(FileNotFoundError, match="ConnectionError"):
        fetch(name)
    assert files_below(places[1]) == []


def test_interrupt_leaves_nothing(places, register, server, monkeypatch, capsys):
    name = register(urls=(server.url + "/good",))

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "_sha256", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(name)
    assert files_below(places[1]) == []


def test_remains_of_a_killed_process_are_cleared(places, register, server, capsys):
    _, cache = places
    name = register(urls=(server.url + "/good",))
    old, young = put(cache / f"{name}.1.part", b"x"), put(cache / f"{name}.2.part", b"x")
    os.utime(old, (0, 0))
    fetch(name)
    assert files_below(cache) == [name, f"{name}.2.part"] and young.exists()


def test_cache_that_cannot_be_written(places, register, server, monkeypatch, tmp_path):
    monkeypatch.setenv("RFTEACH_CACHE", str(put(tmp_path / "a file") / "cache"))
    name = register(urls=(server.url + "/good",))
    with pytest.raises(FileNotFoundError, match="the cache cannot be written"):
        fetch(name)


def test_many_at_once(places, register, server, capsys):
    name = register(urls=(server.url + "/slow",))
    put(places[1] / name, CONTENT[:7])
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: fetch(name), range(24)))
    assert set(paths) == {places[1] / name} and paths[0].read_bytes() == CONTENT
    altered = f"{name}.{hashlib.sha256(CONTENT[:7]).hexdigest()[:8]}.altered"
    assert files_below(places[1]) == [name, altered] and (places[1] / altered).read_bytes() == CONTENT[:7]


def test_cache_is_in_the_users_cache_by_default(monkeypatch):
    import pooch

    monkeypatch.delenv("RFTEACH_CACHE", raising=False)
    assert datasets.cache_dir() == pooch.os_cache("rfteach")


# ---------------------------------------------------------------- loaders


def idx(array):
    header = b"\0\0\x08" + bytes([array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize("shape", [(7,), (2, 3), (2, 3, 4), (0, 5)])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_round_trip(tmp_path, shape, packed):
    array = np.random.default_rng(0).integers(0, 256, shape)
    path = put(tmp_path / ("a.gz" if packed else "a"), gzip.compress(idx(array)) if packed else idx(array))
    np.testing.assert_array_equal(read_idx(path), array)
    np.testing.assert_array_equal(read_idx(str(path)), array)


@pytest.mark.parametrize("content", [b"", b"\0\0\x08\x01", b"\0\0\x0d\x01\0\0\0\x01\0", b"PNG....", idx(np.ones((2, 2)))[:-1],
                                     idx(np.ones((2, 2))) + b"x", b"\0\0\x08\xff\0\0\0\x01\0"])
def test_idx_refuses(tmp_path, content):
    with pytest.raises(ValueError, match="a: "):
        read_idx(put(tmp_path / "a", content))


@pytest.fixture
def small_mnist(places, monkeypatch):
    rng, made = np.random.default_rng(0), {}
    for part, n in (("train", 6), ("t10k", 4)):
        for end, array in (("images-idx3", rng.integers(0, 256, (n, 28, 28))), ("labels-idx1", rng.integers(0, 10, n))):
            name = f"mnist/{part}-{end}-ubyte.gz"
            path = put(places[0] / name, gzip.compress(idx(array)))
            monkeypatch.setitem(FILES, name, DataFile(name, hashlib.sha256(path.read_bytes()).hexdigest(), "test"))
            made[part, end] = array
    return made


@pytest.mark.parametrize("dtype", ["float32", np.float64])
def test_mnist_is_scaled_and_in_order(small_mnist, dtype):
    X, y = load_mnist("all", dtype=dtype, return_X_y=True)
    assert X.shape == (10, 784) and X.dtype == np.dtype(dtype) and y.dtype == np.int64
    images = np.concatenate([small_mnist["train", "images-idx3"], small_mnist["t10k", "images-idx3"]])
    np.testing.assert_allclose(X, images.reshape(10, 784) / 255, rtol=1e-6)
    test = load_mnist("test", dtype=dtype)
    np.testing.assert_array_equal(test.data, X[6:])
    np.testing.assert_array_equal(test.target, y[6:])
    np.testing.assert_array_equal(load_mnist(dtype=dtype).data, X[:6])
    X[0, 0] = 0  # writable


@pytest.mark.parametrize(
    "call, message",
    [(lambda: load_mnist("tests"), "did you mean 'test'"), (lambda: load_mnist(dtype="float16"), "float32"),
     (lambda: load_mnist(dtype="foo"), "float32"),
     (lambda: load_mnist(dtype=int), "float32"), (lambda: load_propulsion("val"), "did you mean 'validation'"),
     (lambda: load_regression("naval"), "did you mean 'naval-propulsion-plant'"),
     (lambda: load_regression("airfoil"), "did you mean 'airfoil-self-noise'"),
     (lambda: load_regression("wine"), "wine-quality-red"), (lambda: load_regression(3), "unknown name 3")],
)
def test_bad_loader_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("load", [load_mnist, load_propulsion, lambda **k: load_regression("yacht", **k)])
def test_loaders_without_data(places, load):
    with pytest.raises(FileNotFoundError, match="by hand"):
        load(download=False)
    assert files_below(places[1]) == []


def test_registry_is_complete():
    assert all(key == file.path and len(file.sha256) == 64 and file.origin for key, file in FILES.items())
    assert {f"regression/{name}.txt" for name in REGRESSION_SHAPES} <= set(FILES)
    assert all(len(FILES[k].urls) == 2 for k in FILES if k.startswith("mnist/"))


def real(folder):
    root = os.environ.get("RFTEACH_DATA")
    return pytest.mark.skipif(
        not root or not os.path.isdir(os.path.join(root, folder)),
        reason=f"{folder}/ is not in RFTEACH_DATA; rfteach.datasets.fetch says for each file where it comes from",
    )


@real("mnist")
def test_real_mnist():
    X, y = load_mnist("test", return_X_y=True, download=False)
    assert X.shape == (10000, 784) and X.min() == 0 and X.max() == 1
    assert np.bincount(y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    X, y = load_mnist("train", return_X_y=True, download=False)
    assert X.shape == (60000, 784) and X.dtype == np.float32
    assert y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert X.mean(dtype=float) == pytest.approx(0.1307, abs=5e-5) and X.std(dtype=float) == pytest.approx(0.3081, abs=5e-5)


@real("regression")
@pytest.mark.parametrize("name", REGRESSION_SHAPES)
def test_real_regression(name):
    n, d = REGRESSION_SHAPES[name]
    found = load_regression(name, download=False)
    assert found.data.shape == (n, d) and found.target.shape == (n,)
    assert found.data.dtype == found.target.dtype == np.float64 and found.data.flags.c_contiguous
    assert np.isfinite(found.data).all() and np.isfinite(found.target).all()
    assert len(found.feature_names) == d and len(found.target_names) == 1 and f"{n} rows" in found.DESCR
    X, y = load_regression(name, return_X_y=True, download=False)
    np.testing.assert_array_equal(X, found.data)
    np.testing.assert_array_equal(y, found.target)


@real("regression")
@pytest.mark.parametrize(
    "name, low, high",
    [("airfoil-self-noise", 103.38, 140.987), ("concrete", 2.33, 82.6), ("energy", 6.01, 43.1),
     ("naval-propulsion-plant", 0.95, 1.0), ("power-plant", 420.26, 495.76), ("protein-tertiary-structure", 0, 20.999),
     ("wine-quality-red", 3, 8), ("yacht", 0.01, 62.42)],
)
def test_real_targets_have_the_published_range(name, low, high):
    y = load_regression(name, download=False).target
    assert (y.min(), y.max()) == pytest.approx((low, high))


@real("propulsion")
def test_real_propulsion():
    for split in ("train", "validation"):
        found = load_propulsion(split, download=False)
        assert found.data.shape == (200, 15) and found.target.shape == (200,)
        assert np.ptp(found.data[:, 8]) == 0 and len(np.unique(found.target)) == 9
        assert len(found.feature_names) == 15
    X, y = load_propulsion(return_X_y=True, download=False)
    assert X.std(axis=0)[:8] == pytest.approx(np.ones(8), abs=0.01)
    assert not np.array_equal(X, found.data)


@real("propulsion")
@real("regression")
def test_propulsion_is_what_its_description_says():
    """Each row is a row of the full UCI set, shifted and scaled; the target is the logarithm of its speed."""
    full = np.loadtxt(fetch("regression/naval-propulsion-plant.txt", download=False))
    found = load_propulsion(download=False)
    k = np.exp((found.target + 2.3216) / 1.5608)
    np.testing.assert_allclose(k, k.round(), atol=2e-3)
    speed = 3 * k.round()

    def levels(column, grid):
        values = np.unique(column)
        return grid[((column - values[0]) / (values[-1] - values[0]) * (len(grid) - 1)).round().astype(int)]

    compressor = levels(found.data[:, 13], np.linspace(0.95, 1, 51))
    turbine = levels(found.data[:, 14], np.linspace(0.975, 1, 26))
    rows = {tuple(key): i for i, key in enumerate(full[:, [1, 16, 17]].round(4).tolist())}
    matched = full[[rows[key] for key in zip(speed.round(4), compressor.round(4), turbine.round(4))]]
    for j, column in enumerate((2, 3, 4, 5, 6, 7, *range(9, 18))):
        x, u = found.data[:, j], matched[:, column]
        if np.ptp(u) == 0:
            assert np.ptp(x) == 0
        else:
            np.testing.assert_allclose(np.polyval(np.polyfit(u, x, 1), u), x, atol=2e-4)
