"""The order of the tests, the time each stage took, and the fixtures that several files use."""

import os
from collections import defaultdict

import chromium
import pytest

os.environ["SCIPY_ARRAY_API"] = "1"  # read when SciPy is imported; scikit-learn's contract skips a check without it

FIRST = ["test_notebooks", "test_arrays", "test_copies", "test_datasets", "test_plots", "test_kernels",
         "test_stable", "test_features", "test_ridge", "test_kernel_ridge", "test_conjugate", "test_bandwidth",
         "test_rbf", "test_orderq", "test_pursuit", "test_eigenpro", "test_shares", "test_centers", "test_pca", "test_surrogate", "test_adaptive",
         "test_attention", "test_columns", "test_auto", "test_uncertainty", "test_modules", "test_reproductions",
         "test_robustness", "test_exercises"]
LAST = ["test_benchmarks", "test_package", "test_classroom", "test_site", "test_slides"]
BROWSER = {"test_site", "test_slides"}  # one for all pages
SECONDS = defaultdict(float)  # by stage
NOTES = {}  # remarks on a stage, for the same table


def rank(name):
    """Return the place of a test file: notebooks, library, benchmarks, package, site."""
    if name in FIRST:
        return 0, FIRST.index(name), name
    return (2, LAST.index(name), name) if name in LAST else (1, 0, name)


def stage(nodeid):
    """Return the stage of a test: its file, and in test_notebooks.py the test function."""
    file, _, test = nodeid.partition("::")
    name = file.rpartition("/")[2].removesuffix(".py")
    return f"{name}: {test.partition('[')[0]}" if name == "test_notebooks" else name


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: rank(item.path.stem))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    import jobs

    return jobs.WORKERS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where several workers run, the tests of a file, which share fixtures, go to one; each chapter goes by itself."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")
            return "browser" if file in BROWSER else nodeid if file == "test_notebooks" else file

    return Groups(config, log)


def pytest_generate_tests(metafunc):
    """A test with the argument `device` runs on the CPU and on the GPU or, where there is none, its stand-in."""
    if "device" in metafunc.fixturenames:
        import card

        metafunc.parametrize("device", ["cpu", "cuda" if card.REAL else "card"], indirect=True)


@pytest.fixture
def device(request):
    """The name of the device that a test is to use; the stand-in answers to that of a real card."""
    import card

    if request.param == "cpu":
        yield "cpu"
    else:
        with card.card():
            yield "cuda"


@pytest.fixture(scope="session")
def browser():
    """Start Chromium; without one the tests are skipped, but not where ``CI`` is set."""
    if chromium.path() is None:
        stop = pytest.fail if os.environ.get("CI") else pytest.skip
        stop(f"{chromium.MISSING}; pages are not tested")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        yield browser
        browser.close()


def pytest_runtest_logreport(report):
    SECONDS[stage(report.nodeid)] += report.duration
    NOTES.setdefault(stage(report.nodeid), []).extend(
        text for name, text in report.user_properties if name == "note" and report.when == "call")


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("seconds by stage")
    for name, seconds in SECONDS.items():
        terminalreporter.line(f"{seconds:7.1f}  {name}")
        for note in NOTES[name]:
            terminalreporter.line(f"{'':9}{note}")
