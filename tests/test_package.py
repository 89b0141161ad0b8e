"""The source archive and the wheel: what is in them, and that the wheel works alone."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

import notebooks

ROOT = notebooks.ROOT
IMPORT_SECONDS = 0.3
CODE = "import sys, time; t = time.perf_counter(); import rfteach; print(time.perf_counter() - t); "


def run(*command, cwd):
    """Run a command away from the project; its output, or a failure that shows it."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("PYTHON", "SCIPY_"))} | {"MPLBACKEND": "agg"}
    done = subprocess.run(command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout}", pytrace=False)
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The source archive and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def python(archives, tmp_path_factory):
    """The interpreter of a fresh environment with the wheel and nothing but what it requires."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "venv", folder / "env", cwd=folder)
    python = folder / "env/bin/python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", archives[1], cwd=folder)
    return python


def test_contents(archives):
    package = {file.relative_to(ROOT).as_posix() for file in (ROOT / "rfteach").rglob("*.py")}
    package |= {"rfteach/py.typed", "rfteach/__init__.pyi"}  # for type checkers
    with tarfile.open(archives[0]) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    needed = package | {"setup.py", "settings.ini", "README.md", "LICENSE"}
    assert needed <= inside, f"not in the source archive: {needed - inside}; see MANIFEST.in"
    with zipfile.ZipFile(archives[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert any(name.endswith("/LICENSE") for name in wheel.namelist())
    assert names == package, "To mend: correct find_packages or package_data in setup.py"


def test_import_is_cheap(python, tmp_path):
    quick = CODE + "sys.exit('torch' in sys.modules and 'rfteach imports torch')"
    seconds = min(float(run(python, "-c", quick, cwd=tmp_path)) for _ in range(5))
    assert seconds < IMPORT_SECONDS, "To mend: let rfteach/__init__.py import when asked"
    run(python, "-c", "from rfteach.features import RandomFourierFeatures", cwd=tmp_path)


def test_names_of_the_package(python, tmp_path):
    run(python, "-c", "import rfteach\nfor name in rfteach.__all__: getattr(rfteach, name)", cwd=tmp_path)


def test_no_notebook_tools_at_run_time(python, tmp_path):
    absent = ["nbdev", "fastcore", "execnb", "IPython", "ipykernel", "jupyter_core", "nbformat"]
    found = run(python, "-c", "import importlib.util as u\n"
                f"print([name for name in {absent} if u.find_spec(name)])", cwd=tmp_path)
    assert ast.literal_eval(found) == [], "To mend: correct requirements in settings.ini"


def test_example_of_the_readme(python, tmp_path):
    words = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", words, flags=re.M | re.S)
    assert examples, "README.md has no example in Python; To mend: write one in nbs/index.ipynb"
    (tmp_path / "example.py").write_text("\n".join(examples), encoding="utf-8")
    run(python, "-W", "error", "example.py", cwd=tmp_path)
