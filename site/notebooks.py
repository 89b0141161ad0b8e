"""What is done with notebooks: ``python site/notebooks.py export|run|store|readme ...``.

export  write the modules of the package from the notebooks (orphaned modules are removed)
run     execute every chapter into _build/nbs; what has not changed is not executed again
store   run, then put into nbs/ the outputs that no longer agree with the stored ones
readme  write README.md from nbs/index.ipynb
"""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from build import SiteError, contents, settings
from compare import cell_difference
from readme import readme

ROOT = Path(__file__).absolute().parent.parent
NBS, BUILT = ROOT / "nbs", ROOT / "_build/nbs"
CELL_TIMEOUT = 300  # seconds; a cell that takes longer is taken to hang


class NotebookError(Exception):
    """A step failed; the message is for the reader, no traceback is needed."""


def chapters():
    """Return the notebooks in the order of ``_quarto.yml``."""
    return [NBS / name for _, names in contents(ROOT) for name in names]


def derive(command):
    """Run an nbdev command on a copy of the project.

    Parameters
    ----------
    command : {"nbdev_export", "nbdev_clean"}
        Export starts without any module but ``__init__.py``, so that a module whose notebook is
        gone does not come back.

    Returns
    -------
    dict of str to bytes
        What the notebooks and the modules are after it, by their path in the project.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy, lib = Path(folder), settings(ROOT)["lib_path"]
        (copy / lib).mkdir()
        (copy / "nbs").mkdir()
        modules = [ROOT / lib / "__init__.py"] if command == "nbdev_export" else []
        for file in [ROOT / "settings.ini", *modules, *sorted(NBS.glob("*.ipynb"))]:
            shutil.copy(file, copy / file.relative_to(ROOT))
        done = subprocess.run([Path(sys.executable).parent / command], cwd=copy, text=True,
                              capture_output=True)
        if done.returncode or "Failed to clean" in done.stderr:
            raise NotebookError(f"{command} failed:\n{done.stdout}{done.stderr}")
        return {file.relative_to(copy).as_posix(): file.read_bytes()
                for pattern in ("*.ipynb", "*.py") for file in sorted(copy.rglob(pattern))}


def modules():
    """Return the modules as the notebooks make them, ``{path: bytes}``."""
    return {name: code for name, code in derive("nbdev_export").items() if name.endswith(".py")}


def export():
    """Write the package from the notebooks and remove the modules that no notebook makes."""
    made = modules()
    for file in (ROOT / settings(ROOT)["lib_path"]).rglob("*.py"):
        if file.relative_to(ROOT).as_posix() not in made:
            print(f"removed {file.relative_to(ROOT)}: no notebook exports it")
            file.unlink()
    for name, code in made.items():
        if not (ROOT / name).exists() or (ROOT / name).read_bytes() != code:
            print(f"wrote {name}")
            (ROOT / name).parent.mkdir(exist_ok=True)
            (ROOT / name).write_bytes(code)


def content_key(nb):
    """Return a hash of what the outputs of the notebook `nb` depend on."""
    parts = [sys.version, os.environ.get("RFTEACH_DATA", "")]
    parts += [f"{cell.cell_type}\n{cell.source}" for cell in nb.cells]
    text = "\n".join(parts)
    package = [file for file in sorted((ROOT / settings(ROOT)["lib_path"]).rglob("*.py"))
               if file.name != "_modidx.py" and (
                   file.parent.name != "specifications"  # those of its own exercises only
                   or re.search(rf'specifications\.{file.stem}\b|check\("{file.stem}\.', text))]
    results = sorted((ROOT / "benchmarks/results").rglob("*.json*"))  # chapters show some of them
    files = [*package, ROOT / "constraints.txt", *results]
    if any(cell.cell_type == "code" and ".ipynb" in cell.source for cell in nb.cells):  # it reads the others
        files.append(ROOT / "_quarto.yml")
        others = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(NBS.glob("*.ipynb"))]
        parts += ["".join(cell["source"]) for other in others for cell in other["cells"]]
    parts += [file.read_text(encoding="utf-8") for file in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def kernel_environment():
    """Return the environment of the kernels: this package, and no personal settings.

    Matplotlib builds its font cache here and not in a chapter, where it would print a message.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths),
           "MPLCONFIGDIR": str(ROOT / "_build/matplotlib"),
           "IPYTHONDIR": str(ROOT / "_build/ipython")}
    for name in ("MPLBACKEND", "SCIPY_ARRAY_API"):  # set by tests, not where a reader works
        env.pop(name, None)
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], env=env, check=True,
                   capture_output=True)
    return env


def execute(notebook):
    """Execute a notebook into ``_build/nbs``, unless that has been done and nothing has changed.

    The hidden cell that exports is not run: it would write into the package. It is known by its
    text and skipped by a tag that only the copy has.

    Returns
    -------
    Path
        The executed notebook; its metadata ``rfteach.seconds`` tells how long it took.

    Raises
    ------
    NotebookError
        With the chapter, the source of the cell and the traceback, where a cell fails.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    nb = nbformat.read(notebook, as_version=4)
    key, target = content_key(nb), BUILT / notebook.name
    if target.exists() and record(target).get("key") == key:
        return target
    for cell in nb.cells:
        if "nbdev_export()" in cell.source and cell.cell_type == "code":
            cell.metadata.tags = [*cell.metadata.get("tags", []), "skip-execution"]
    client = NotebookClient(nb, timeout=CELL_TIMEOUT, kernel_name="python3", record_timing=False,
                            store_widget_state=False, coalesce_streams=True,
                            extra_arguments=["--log-level=40"],  # not its advice about sockets
                            resources={"metadata": {"path": str(NBS)}})
    start = time.perf_counter()
    try:
        client.execute(env=kernel_environment())
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
        raise NotebookError(f"{notebook.relative_to(ROOT)}: a cell failed.\n\n{text}") from None
    nb.metadata["rfteach"] = {"key": key, "seconds": round(time.perf_counter() - start, 1)}
    BUILT.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, target.with_suffix(".part"))
    target.with_suffix(".part").replace(target)
    return target


def record(executed):
    """Return what `execute` noted in an executed notebook: its ``key`` and its ``seconds``."""
    return json.loads(executed.read_text(encoding="utf-8"))["metadata"].get("rfteach", {})


def execute_all():
    """Execute every chapter, with a line of progress for each; return the executed notebooks."""
    listed, executed = chapters(), []
    for file in BUILT.glob("*.ipynb"):
        if NBS / file.name not in listed:
            file.unlink()
    for number, notebook in enumerate(listed, 1):
        print(f"[{number}/{len(listed)}] {notebook.name:24}", end="", flush=True)
        start = time.time()
        executed.append(execute(notebook))
        note = " (unchanged, not run again)" if executed[-1].stat().st_mtime < start else ""
        print(f"{record(executed[-1])['seconds']:6.1f} s{note}")
    return executed


def code_cells(notebook):
    """Return the code cells of a notebook."""
    return [c for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]


def stale(notebook):
    """Execute a notebook; return ``[(cell source, what differs), ...]`` for its stored outputs."""
    pairs = zip(code_cells(notebook), code_cells(execute(notebook)), strict=True)
    return [(old.source, found) for old, new in pairs if (found := cell_difference(old, new))]


def store():
    """Execute every chapter and store the outputs that do not agree with the stored ones."""
    for executed in execute_all():
        notebook = NBS / executed.name
        nb, renewed = nbformat.read(notebook, as_version=4), 0
        old = [cell for cell in nb.cells if cell.cell_type == "code"]
        for cell, fresh in zip(old, code_cells(executed), strict=True):
            if any(output.get("name") == "stderr" for output in fresh.outputs):
                raise NotebookError(f"nbs/{executed.name}: a cell warns; change it so that it does "
                                    f"not.\n\n{cell.source}\n\n{cell_difference(fresh, fresh)}")
            if cell_difference(cell, fresh, varies_too=True):
                cell.outputs, renewed = fresh.outputs, renewed + 1
        if renewed:
            nbformat.write(nb, notebook)
            print(f"stored the outputs of {renewed} cells in nbs/{notebook.name}")
    for name, content in derive("nbdev_clean").items():
        if name.endswith(".ipynb") and (ROOT / name).read_bytes() != content:
            (ROOT / name).write_bytes(content)


def write_readme():
    """Write README.md and its images, and remove images that are not used any more."""
    shutil.rmtree(ROOT / "README_files", ignore_errors=True)
    for name, content in readme(NBS / "index.ipynb").items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_bytes(content)


if __name__ == "__main__":
    STEPS = {"export": export, "run": execute_all, "store": store, "readme": write_readme}
    if len(sys.argv) < 2 or not set(sys.argv[1:]) <= set(STEPS):
        sys.exit(__doc__)
    try:
        for step in sys.argv[1:]:
            STEPS[step]()
    except (NotebookError, SiteError) as error:
        sys.exit(f"\n{error}")
