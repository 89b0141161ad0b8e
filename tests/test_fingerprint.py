"""What keeps a fingerprint and what changes it, on a small package and on the protocols of the library."""

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

import restamp
import rfteach
from rfteach.evidence import run
from rfteach.evidence.fingerprint import Sources, fingerprint
from rfteach.evidence.protocols import Experiment
from rfteach.evidence.run import EXPERIMENTS, load_results

PACKAGE = Path(rfteach.__file__).parent
SMALL = {
    "protocol": "from .tools import half as share\n\ndef run(seed):\n    return share(seed)\n",
    "tools": """
import numpy as np

SIZE = 2.0
TABLE = {}
TABLE["a"] = 3

class Base:
    step = 1

class Tool(Base):
    def use(self, x):
        return np.sqrt(x) + TABLE["a"]

def check(x):
    if x < 0:
        raise ValueError("x is negative")
    return x

def half(x, weight=1):
    from .late import later
    y = Tool().use(check(x)) - weight
    return later(y) / SIZE

def unused(x):
    return x
""",
    "late": "def later(y):\n    tools = [later(t) for t in ()]\n    return y * y\n",
}


def digest(tmp_path, files):
    """Fingerprint of `run` in the module `protocol` of a package of these files."""
    folder = tmp_path / "small"
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        file = folder.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Sources(folder).digest("small.protocol", "run")


def changed(old, new, module="tools"):
    assert old in SMALL[module]
    return SMALL | {module: SMALL[module].replace(old, new)}


@pytest.mark.parametrize("files", [
    changed("def check(x):", "def check(x: float) -> float:\n    'A number above zero.'"),
    changed("return later(y) / SIZE", "return (later(y)  # smaller\n            / SIZE)"),
    changed("def unused(x):\n    return x", "def unused(x):\n    return 3 * x"),
    changed("x is negative", "x must not be negative"),
    {**SMALL, "tools": SMALL["tools"].replace("check", "no_less_than_zero")},
    {**SMALL, "tools": SMALL["tools"].replace("SIZE", "_size").replace("np", "numpy_").replace("Tool", "_Tool")},
    {"protocol": "from small.rooms.tools import half as share\n\ndef run(seed):\n    return share(seed)\n",
     "rooms.tools": SMALL["tools"].replace(".late", "..late"), "late": SMALL["late"]},
    {"protocol": SMALL["protocol"], "late": SMALL["late"],
     "tools": "from .base import Tool, check\nfrom .sizes import SIZE\ndef half" + SMALL["tools"].split("def half")[1],
     "base": SMALL["tools"].split("def half")[0], "sizes": "SIZE = 2.0\n"},
], ids=["docstring, annotation", "comment, layout", "not reached", "message", "renamed", "renamed, too", "in a folder",
        "split"])
def test_what_keeps_it(tmp_path, files):
    assert digest(tmp_path, files) == digest(tmp_path, SMALL)


@pytest.mark.parametrize("files", [
    changed("SIZE = 2.0", "SIZE = 2.5"), changed("- weight", "+ weight"), changed("weight=1", "weight=2"),
    changed("np.sqrt", "np.cbrt"), changed("step = 1", "step = 2"), changed("3", "4"),
    changed("y * y", "y * y * y", "late"), changed("share(seed)", "share(seed, 1)", "protocol"),
    changed("import numpy as np", "import torch as np"),
    changed("x < 0", "x <= 0"), changed("class Tool(Base)", "class Tool"), changed("2.0", "2"),
    changed("half as share", "check as share", "protocol")])
def test_what_changes_it(tmp_path, files):
    assert digest(tmp_path, files) != digest(tmp_path, SMALL)


HALF = {"tools": "def half(x):\n    return x / 2\n"}


@pytest.mark.parametrize("protocol", [
    "def run(seed, half=half):\n    return half(seed)", "def run(seed, *, half=half):\n    return half(seed)",
    "def run(seed):\n    @half\n    def inner(half):\n        return half\n    return inner",
    "def run(seed):\n    f = lambda half: half + 1\n    return f(half(seed))",
    "def run(seed):\n    def f():\n        half = 3\n        return half\n    return half(seed) + f()",
    "def run(seed):\n    class Tool:\n        half = 3\n    return half(seed)",
    "def run(seed):\n    z = [half for half in (1, 2)]\n    return half(seed)",
    "def run(seed):\n    return {half for half in half(seed)}",
    "class Tool:\n    def half(self, x):\n        return half(x)\n\ndef run(seed):\n    return Tool().half(seed)",
])
def test_a_name_that_means_two_things(tmp_path, protocol):
    """Another one of the same name, inside, does not hide the helper that is called."""
    files = HALF | {"protocol": f"from .tools import half\n{protocol}\n"}
    assert digest(tmp_path, files) != digest(tmp_path, files | {"tools": HALF["tools"].replace("2", "3")})


def test_a_local_variable_is_not_the_helper(tmp_path):
    for body in ("half = 3\n    return half", "return [half for half in (1, 2)]", "return (lambda half: half)(seed)"):
        files = HALF | {"protocol": f"from .tools import half\n\ndef run(seed):\n    {body}\n"}
        assert digest(tmp_path, files) == digest(tmp_path, files | {"tools": HALF["tools"].replace("2", "3")})


@pytest.mark.parametrize("protocol, words", [
    ("from . import tools\n\ndef run(seed):\n    return tools.half(seed)", "small.protocol takes 'tools' for a module"),
    ("from .tools import *\n\ndef run(seed):\n    return half(seed)", "small.protocol imports '\\*' from several places"),
    ("def run(seed):\n    from .tools import half\n    return half(seed)\n\ndef other(seed):\n    from .late import half",
     "imports 'half' from several places"),
    ("from .tools import half\n\nif True:\n    def g(x):\n        return half(x)\n\ndef run(seed):\n    return g(seed)",
     "small.protocol, line 4: what this stores cannot be told"),
    ("try:\n    def g(x):\n        return x\nexcept Exception:\n    pass\n\ndef run(seed):\n    return g(seed)", "line 2"),
    ("from .tools import half\nT = []\nT.append(half)\n\ndef run(seed):\n    return T[0](seed)", "line 3"),
    ("from .tools import half\nT = {}\nfor k in 'ab':\n    T.update(k=half)\n\ndef run(seed):\n    return T", "line 4"),
    ("from .tools import half\nhalf.cache = {}\n\ndef run(seed):\n    return half(seed)", "imports 'half' and stores in it"),
])
def test_what_would_hide_something_is_refused(tmp_path, protocol, words):
    with pytest.raises(LookupError, match=words):
        digest(tmp_path, HALF | {"protocol": protocol + "\n"})


def test_settings_are_part_of_a_protocol():
    degrees = [fingerprint(EXPERIMENTS[f"g chaos {d}"].run) for d in ((4, 4), (8, 4), (14, 6))]
    assert len(set(degrees)) == 3
    assert len({fingerprint(e.run) for e in EXPERIMENTS.values()}) == len(EXPERIMENTS)


def test_a_protocol_that_is_not_of_the_package():
    def one(seed, device):
        return {"q": 1.0}

    def two(seed, device):
        return {"q": 2.0}

    assert fingerprint(one) == fingerprint(one) != fingerprint(two) != fingerprint(partial(two, device="cuda"))


def test_a_function_inside_of_another_one_of_the_package_is_refused():
    """Its own lines would not tell what it reaches; one of the same name at the top is another one."""
    def harfe(seed, device):
        return {"q": 1.0}

    for name in ("rfteach.pursuit", "rfteach.evidence.sparse"):
        harfe.__module__ = name
        with pytest.raises(LookupError, match=f"{name}, .*harfe is not at its top"):
            fingerprint(harfe)


# On the library

@pytest.fixture
def library(tmp_path):
    """A copy of the package, and a function that gives the fingerprint of an experiment's function there."""
    folder = tmp_path / "rfteach"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__", "specifications"))

    def of(name):
        function = getattr(EXPERIMENTS[name].run, "func", EXPERIMENTS[name].run)
        return Sources(folder).digest(function.__module__, function.__name__)

    return folder, of


def test_the_library_as_it_is(library):
    _, of = library
    assert of("recovery") == fingerprint(EXPERIMENTS["recovery"].run)


def edit(file, pattern, new):
    text = file.read_text(encoding="utf-8")
    assert re.search(pattern, text), f"{file.name} has nothing like {pattern!r}"
    file.write_text(re.sub(pattern, new, text, count=1), encoding="utf-8")


def test_a_move_and_a_docstring_in_the_library(library):
    """The pursuits move into a module of their own, which the old one imports; a docstring says more."""
    folder, of = library
    before = of("recovery"), of("75 features")
    (folder / "pursuit.py").rename(folder / "hunting.py")
    (folder / "pursuit.py").write_text("from .hunting import harfe, omp, prune, HARFERegressor\n")
    edit(folder / "hunting.py", r'(def harfe\((?s:.*?)""")', r"\1It is told better. ")
    assert (of("recovery"), of("75 features")) == before


def test_an_algorithm_that_changes_in_the_library(library):
    """A default in the data of one protocol, a factor in a feature map that another one has."""
    folder, of = library
    before = of("recovery"), of("s-curve")
    edit(folder / "evidence/sparse.py", r"uniform\(0\.5, 1\.5, 10\)", "uniform(0.5, 1.6, 10)")
    assert of("recovery") != before[0] and of("s-curve") == before[1]
    edit(folder / "features.py", r"if b is None else 2\)", "if b is None else 3)")
    assert of("s-curve") != before[1]


# Records that get a new fingerprint

@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A file of results of an outdated fingerprint, and the figures that are measured now."""
    now = {"q": 1.0, "seconds": 3.0}
    draw = Experiment(lambda seed, device: {**now, "q": now["q"] + seed}, "numbers", 2, 3, 1.0)
    long = Experiment(lambda seed, device: {"q": 7.0}, "long", 0, 1, 1.0, "mnist")
    monkeypatch.setattr(run, "EXPERIMENTS", {"draw": draw, "long": long})
    monkeypatch.setattr(restamp, "EXPERIMENTS", run.EXPERIMENTS)
    record = run.measure("draw", 0)
    records = [record | {"seed": seed, "values": {"q": 1.0 + seed, "seconds": 9.0}, "code": "old"} for seed in range(3)]
    records.append(run.measure("long", 0) | {"code": "old"})
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path, now


def test_records_are_stamped_after_measuring(kept):
    path, _ = kept
    assert restamp.main(["--results", str(path)]) == 0
    records = load_results(path)
    assert all(run.usable(record, "cpu") for record in records)
    assert [record["restamped"]["measured"] for record in records] == [2, 2, 2, 0]
    written = path.read_bytes()
    assert restamp.main(["--results", str(path)]) == 0 and path.read_bytes() == written
    assert [record["values"]["q"] for record in records] == [1.0, 2.0, 3.0, 7.0]


def test_a_figure_that_moved_is_not_stamped(kept, capsys):
    path, now = kept
    before = path.read_bytes()
    now["q"] = 1.001
    assert restamp.main(["--results", str(path)]) == 1 and path.read_bytes() == before
    told = capsys.readouterr().err
    assert "draw, seed 1, q: kept 2, now 2.001" in told and "measured in full before the rest can follow: draw" in told
    assert restamp.main(["--results", str(path), "--tolerance", "0.01"]) == 0


def test_what_is_long_follows_the_others_or_is_measured(kept, capsys):
    path, _ = kept
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if '"long"' in line]
    path.write_text(lines[0] + "\n", encoding="utf-8")
    assert restamp.main(["--results", str(path)]) == 1 and not run.usable(load_results(path)[0], "cpu")
    assert restamp.main(["--results", str(path), "--long"]) == 1 and run.usable(load_results(path)[0], "cpu")
    assert load_results(path)[0]["restamped"]["measured"] == 1
