"""The source archive and the wheel: what is in them, and that the wheel works alone; files of the repository."""

import ast
import email
import importlib.metadata
import json
import os
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import notebooks

ROOT = notebooks.ROOT

# Put where Python looks first: nothing is found but the wheel, what it requires, and the standard library.
ALONE = """
import sys
from importlib.machinery import PathFinder
OTHERS = {others!r}
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in OTHERS else PathFinder.find_spec(name, path, target)
sys.meta_path[:] = [f for f in sys.meta_path if getattr(f, "__module__", "").endswith("_frozen_importlib")] + [Finder]
"""


def run(*command, cwd, path=""):
    """Run a command away from the project; its output, or a failure that shows it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SCIPY_"))}
    done = subprocess.run(command, cwd=cwd, env={**env, "MPLBACKEND": "agg", "PYTHONPATH": str(path)}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout}", pytrace=False)
    return done.stdout


def required(requirements):
    """Return the names of the distributions that these need, and what those need."""
    found, todo = set(), [Requirement(text) for text in requirements]
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": e}) for e in ("", *wanted.extras)):
            continue
        if name not in found:
            found.add(name)
            todo += map(Requirement, importlib.metadata.distribution(name).requires or [])
    return found


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The source archive and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def alone(archives, tmp_path_factory):
    """A function that runs Python code with the wheel and nothing but what it requires, and returns the output."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(archives[1]) as wheel:
        wheel.extractall(folder)
        metadata = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        needs = required(email.message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist"))
    others = {module for module, names in importlib.metadata.packages_distributions().items()
              if not needs & set(map(canonicalize_name, names))} - {"rfteach"}
    (folder / "sitecustomize.py").write_text(ALONE.format(others=others))
    return lambda *words: run(sys.executable, *words, cwd=folder, path=folder)


def test_contents(archives):
    package = {file.relative_to(ROOT).as_posix() for file in (ROOT / "rfteach").rglob("*.py")}
    package |= {"rfteach/py.typed", "rfteach/__init__.pyi"}  # for type checkers
    with tarfile.open(archives[0]) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    needed = package | {"setup.py", "settings.ini", "README.md", "LICENSE",
                        "pyproject.toml", "CHANGELOG.md", "CITATION.cff"}
    assert needed <= inside, f"not in the source archive: {needed - inside}; see MANIFEST.in"
    with zipfile.ZipFile(archives[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert any(name.endswith("/LICENSE") for name in wheel.namelist())
    assert names == package, "To mend: correct find_packages or package_data in setup.py"


def test_metadata(archives):
    with zipfile.ZipFile(archives[1]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    assert not [line for line in metadata.get_all("Classifier") if line.startswith("License ::")]
    relative = re.findall(r"\]\((?!https:)[^)]*\)", metadata.get_payload())
    assert relative == [], "the package index has no such files; see setup.py"


def test_the_wheel_alone_is_tried(alone):
    """Without this the tests below would prove nothing."""
    found = "import rfteach, pathlib; assert pathlib.Path(rfteach.__file__).parts[-3:-2] == pathlib.Path.cwd().parts[-1:]"
    alone("-c", found)
    alone("-c", "try:\n    import nbformat\nexcept ModuleNotFoundError:\n    pass\nelse:\n    raise SystemExit(1)")


def test_import_is_cheap(alone):
    alone("-c", "import sys, rfteach; sys.exit('torch' in sys.modules and 'To mend: import when asked')")


def test_names_of_the_package(alone):
    alone("-c", "import rfteach\nfor name in rfteach.__all__: getattr(rfteach, name)")


def test_no_notebook_tools_at_run_time(alone):
    absent = ["nbdev", "fastcore", "execnb", "IPython", "ipykernel", "jupyter_core", "nbformat"]
    found = alone("-c", f"import importlib.util as u\nprint([name for name in {absent} if u.find_spec(name)])")
    assert ast.literal_eval(found) == [], "To mend: correct requirements in settings.ini"


def test_example_of_the_readme(alone, tmp_path):
    words = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", words, flags=re.M | re.S)
    assert examples, "README.md has no example in Python; To mend: write one in nbs/index.ipynb"
    (tmp_path / "example.py").write_text("\n".join(examples), encoding="utf-8")
    alone("-W", "error", tmp_path / "example.py")


# --- files of the repository ----------------------------------------------------------------

RELEASE = runpy.run_path(str(ROOT / ".ci/release.py"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_version_is_the_same_everywhere(tmp_path):
    assert RELEASE["notes"](ROOT)
    for place in RELEASE["PLACES"]:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes((ROOT / place).read_bytes())
    version = notebooks.settings(ROOT)["version"]
    for place in RELEASE["PLACES"]:
        text = (ROOT / place).read_text(encoding="utf-8")
        (tmp_path / place).write_text(text.replace(version, "7.7.7"), encoding="utf-8")
        with pytest.raises(SystemExit, match=f"7.7.7 in {place}"):
            RELEASE["notes"](tmp_path)
        (tmp_path / place).write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match="7.7.7 in the tag"):
        RELEASE["notes"](tmp_path, "v7.7.7")
    assert RELEASE["notes"](tmp_path, f"v{version}") == RELEASE["notes"](ROOT)


def test_modules_import_what_they_use():
    """Every name that a module imports is used in it."""
    idle = []
    for file in sorted((ROOT / "rfteach").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        imports = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        names = {(alias.asname or alias.name).partition(".")[0] for alias in imports}
        idle += [f"{file.stem}: {name}" for name in sorted(names - used)]
    assert not idle


def test_citation_agrees_with_the_readme():
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    bibtex = dict(re.findall(r"^  (\w+) += \{+(.*?)\}+,?$", readme, flags=re.M))
    assert bibtex == {"title": cff["title"], "author": cff["authors"][0]["name"], "url": cff["url"],
                      "version": cff["version"], "year": str(cff["date-released"].year)}
    settings = notebooks.settings(ROOT)
    assert (cff["authors"][0]["name"], cff["repository-code"]) == (settings["author"], settings["git_url"])
    assert (cff["license"], settings["license"]) == ("Apache-2.0", "apache2")
    assert f"[{cff['version']}] - {cff['date-released']}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_forms_and_container():
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        assert isinstance(yaml.safe_load(form.read_text(encoding="utf-8")), dict), form.name
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    ready = container["postCreateCommand"].removeprefix("make ")
    assert f"READY := {ready.replace('.venv', '$(VENV)')}" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflow(file):
    """Actions have a version, none that is too old to run, and no job goes on for hours."""
    oldest = {"actions/checkout": 5, "actions/setup-python": 6, "actions/upload-artifact": 6,
              "actions/download-artifact": 7, "actions/upload-pages-artifact": 5, "actions/deploy-pages": 5}
    for name, job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].items():
        if "uses" in job:
            assert (ROOT / job["uses"]) in WORKFLOWS, job["uses"]
            continue
        assert job["timeout-minutes"] <= 60, name
        for action in filter(None, (step.get("uses") for step in job["steps"])):
            action, _, version = action.partition("@")
            number = re.fullmatch(r"(?:release/)?v(\d+)", version)
            assert number and int(number[1]) >= oldest.get(action, 1), f"{name}: {action}@{version}"


@pytest.mark.parametrize("file, job, waits_for", [("publish", "publish", {"test"}), ("release", "pypi", {"test", "smoke"}),
                                                  ("release", "github", {"pypi"})])
def test_nothing_is_published_before_the_tests(file, job, waits_for):
    jobs = yaml.safe_load((ROOT / f".github/workflows/{file}.yml").read_text(encoding="utf-8"))["jobs"]
    needs = jobs[job]["needs"]
    assert set([needs] if isinstance(needs, str) else needs) == waits_for
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
