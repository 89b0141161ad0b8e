"""What is done with notebooks: ``python site/notebooks.py export|store|readme|processors|older ...``.

export      write the modules of the package from the notebooks; let cells of imports open collapsed in
            JupyterLab
store       execute every chapter into _build/nbs (what has not changed is not executed again), then
            put into nbs/ the outputs of those where one no longer agrees with the stored one
readme      write README.md from nbs/index.ipynb
processors  execute every chapter as older processors do, with one thread and with two, and compare
            the outputs with the stored ones
older       print the environment of one of these processors, a variable in each line
"""

import ast
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import jobs
import nbformat
from build import SiteError, contents, directives, only_imports, pages, settings
from compare import cell_difference
from readme import readme

ROOT = Path(__file__).absolute().parent.parent
NBS, BUILT = ROOT / "nbs", ROOT / "_build/nbs"
CELL_TIMEOUT = 300  # seconds; a cell that takes longer is taken to hang
SECONDS = ROOT / "site/seconds.json"  # how long each chapter takes, for the time that is left

# What makes the libraries behave as on an older processor; they read it when they are loaded. MKL does
# the products and factorisations of PyTorch, OpenBLAS those of NumPy and SciPy. Of NumPy's own loops those for
# newer processors are switched off, but for the named ones.
PROCESSORS = {
    "SSE, one thread": {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Nehalem",
                        "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE", "NPY_DISABLE_CPU_FEATURES": "",
                        **jobs.ONE_THREAD},
    "AVX2, one thread": {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell",
                         "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2", "NPY_DISABLE_CPU_FEATURES": "X86_V3",
                         **jobs.ONE_THREAD},
    "Zen, two threads": {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Zen",
                         "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    "as it is, two threads": {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
}


class NotebookError(Exception):
    """A step failed; the message is for the reader, no traceback is needed."""


def chapters():
    """Return the notebooks in the order of ``_quarto.yml``."""
    return [NBS / name for _, names in contents(ROOT) for name in names]


def name_of(notebook):
    """Return the name of a notebook in ``_quarto.yml``: its path in nbs/."""
    return notebook.relative_to(NBS).as_posix()


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
        for file in [ROOT / "settings.ini", *modules, *(NBS / name for name in pages(NBS))]:
            (copy / file.relative_to(ROOT)).parent.mkdir(exist_ok=True)
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


def collapse(cell):
    """Let a code cell open collapsed where it only imports, and else only where it is exported."""
    found, code = directives(cell.source)
    if only_imports(code):
        cell.metadata["jupyter"] = {"source_hidden": True}
    elif "export" not in found:
        cell.metadata.pop("jupyter", None)


def stub():
    """Return ``__init__.pyi``: what ``__init__.py`` imports when asked, written out for type checkers."""
    tree = ast.parse((ROOT / settings(ROOT)["lib_path"] / "__init__.py").read_text(encoding="utf-8"))
    public = next(ast.literal_eval(node.value) for node in tree.body
                  if isinstance(node, ast.Assign) and node.targets[0].id == "_PUBLIC")
    lines = ['"""What `import rfteach` gives, for type checkers and editors, which do not follow its `__getattr__`."""', ""]
    rooms = list(dict.fromkeys(home.partition(".")[0] for home in public))
    for home, names in [("", rooms), *public.items()]:
        if names:
            listed = textwrap.wrap(", ".join(f"{name} as {name}" for name in names), 110, break_on_hyphens=False)
            lines += [f"from .{home} import (", *(f"    {line}" for line in listed), ")"]
    return "\n".join([*lines, "", "__version__: str", ""]).encode()


def export():
    """Write the package from the notebooks; modules that no notebook makes are named, and stay."""
    for notebook in chapters():
        nb = nbformat.read(notebook, as_version=4)
        before = nbformat.writes(nb)
        for cell in nb.cells:
            if cell.cell_type == "code":
                collapse(cell)
        if nbformat.writes(nb) != before:
            print(f"collapsed cells of imports in nbs/{name_of(notebook)}")
            nbformat.write(nb, notebook)
    made = modules()
    made[f"{settings(ROOT)['lib_path']}/__init__.pyi"] = stub()
    for name, code in made.items():
        if not (ROOT / name).exists() or (ROOT / name).read_bytes() != code:
            print(f"wrote {name}")
            (ROOT / name).parent.mkdir(exist_ok=True)
            (ROOT / name).write_bytes(code)
    there = {file.relative_to(ROOT).as_posix() for file in (ROOT / settings(ROOT)["lib_path"]).rglob("*.py")}
    if left := sorted(there - made.keys()):
        raise NotebookError("\n".join(f"{name}: no notebook exports it; move it into one, or remove it" for name in left))


def content_key(nb, env=None):
    """Return a hash of what the outputs of the notebook `nb` depend on; `env` is as in `execute`."""
    env = {**jobs.ONE_THREAD, **os.environ, **(env or {})}
    parts = [sys.version, *(env.get(name, "") for names in PROCESSORS.values() for name in names)]
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
        others = [json.loads((NBS / name).read_text(encoding="utf-8")) for name in pages(NBS)]
        parts += ["".join(cell["source"]) for other in others for cell in other["cells"]]
    parts += [file.read_text(encoding="utf-8") for file in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def kernel_environment():
    """Return the environment of the kernels: this package, one thread, and no personal settings.

    Matplotlib builds its font cache here and not in a chapter, where it would print a message.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**jobs.ONE_THREAD, **os.environ, "PYTHONPATH": os.pathsep.join(paths),
           "MPLCONFIGDIR": str(ROOT / "_build/matplotlib"),
           "IPYTHONDIR": str(ROOT / "_build/ipython")}
    env["RFTEACH_CACHE"] = str(ROOT / "_build/no data")  # a page is the same with the data and without
    for name in ("MPLBACKEND", "SCIPY_ARRAY_API", "RFTEACH_DATA"):
        env.pop(name, None)
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], env=env, check=True,
                   capture_output=True)
    return env


def execute(notebook, folder=BUILT, env=None):
    """Execute a notebook into a folder, unless that has been done and nothing has changed.

    The hidden cell that exports is not run: it would write into the package. It is known by its
    text and skipped by a tag that only the copy has.

    Parameters
    ----------
    notebook : Path
    folder : Path
    env : dict of str to str, optional
        What to add to `kernel_environment`.

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
    key, target = content_key(nb, env), folder / name_of(notebook)
    if target.exists() and record(target).get("key") == key:
        return target
    for cell in nb.cells:
        if "nbdev_export()" in cell.source and cell.cell_type == "code":
            cell.metadata.tags = [*cell.metadata.get("tags", []), "skip-execution"]
    client = NotebookClient(nb, timeout=CELL_TIMEOUT, kernel_name="python3", record_timing=False,
                            store_widget_state=False, coalesce_streams=True,
                            extra_arguments=["--log-level=40"],  # not its advice about sockets
                            resources={"metadata": {"path": str(notebook.parent)}})
    start = time.perf_counter()
    try:
        client.execute(env={**kernel_environment(), **(env or {})})
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
        raise NotebookError(f"{notebook.relative_to(ROOT)}: a cell failed.\n\n{text}") from None
    nb.metadata["rfteach"] = {"key": key, "seconds": round(time.perf_counter() - start, 1)}
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, target.with_suffix(".part"))
    target.with_suffix(".part").replace(target)
    return target


def record(executed):
    """Return what `execute` noted in an executed notebook: its ``key`` and its ``seconds``."""
    return json.loads(executed.read_text(encoding="utf-8"))["metadata"].get("rfteach", {})


def as_jobs(step):
    """Return for each chapter the job of taking `step`, and the seconds that it is expected to take."""
    for file in BUILT.rglob("*.ipynb"):
        if NBS / file.relative_to(BUILT) not in chapters():
            file.unlink()
    kernel_environment()
    return {name_of(path): functools.partial(step, path) for path in chapters()}, json.loads(SECONDS.read_text())


def progress_line(name, result):
    """Return the line about a chapter that has been executed."""
    if isinstance(result, Exception):
        return f"{name}: stopped"
    return f"{name:32}{record(BUILT / name)['seconds']:6.1f} s"  # now or before, where nothing has changed


def code_cells(notebook):
    """Return the code cells of a notebook."""
    return [c for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]


def stale(notebook, folder=BUILT, env=None):
    """Execute a notebook; return ``[(cell source, what differs), ...]`` for its stored outputs."""
    pairs = zip(code_cells(notebook), code_cells(execute(notebook, folder, env)), strict=True)
    return [(old.source, found) for old, new in pairs if (found := cell_difference(old, new))]


def described(found):
    """Return the lines that say what `stale` has found."""
    return [line for source, what in found
            for line in [*what.splitlines(), "in the cell:", *("    " + s for s in source.splitlines()), ""]]


def store():
    """Execute every chapter and store the outputs of those of which one does not agree with the stored one."""
    results = jobs.run(*as_jobs(execute), said=progress_line)
    if errors := [str(error) for error in results.values() if isinstance(error, Exception)]:
        raise NotebookError("\n\n".join(errors))
    seconds = json.loads(SECONDS.read_text())
    for notebook in chapters():
        name = name_of(notebook)
        executed = results[name]
        nb = nbformat.read(notebook, as_version=4)
        pairs = [*zip((cell for cell in nb.cells if cell.cell_type == "code"), code_cells(executed), strict=True)]
        for cell, fresh in pairs:
            if any(output.get("name") == "stderr" for output in fresh.outputs):
                raise NotebookError(f"nbs/{name}: a cell warns; change it so that it does "
                                    f"not.\n\n{cell.source}\n\n{cell_difference(fresh, fresh)}")
        renewed = sum(bool(cell_difference(cell, fresh, varies_too=True)) for cell, fresh in pairs)
        if renewed:  # then all of them: a figure shows what the table above it says
            for cell, fresh in pairs:
                cell.outputs = fresh.outputs
            nbformat.write(nb, notebook)
            print(f"stored the outputs of nbs/{name}, {renewed} of them new")
        seconds.setdefault(name, max(1, round(record(executed)["seconds"])))
    kept = {name: seconds[name] for name in map(name_of, chapters())}
    SECONDS.write_text(json.dumps(kept, indent=1) + "\n")
    for name, content in derive("nbdev_clean").items():
        if name.endswith(".ipynb") and (ROOT / name).read_bytes() != content:
            (ROOT / name).write_bytes(content)


def processor(name):
    """Return the environment that makes a processor of `PROCESSORS`."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    env = dict(PROCESSORS[name])
    if "NPY_DISABLE_CPU_FEATURES" in env:  # NumPy complains of those that are not there
        newer = [f for f in __cpu_dispatch__ if __cpu_features__.get(f) and f not in env["NPY_DISABLE_CPU_FEATURES"]]
        env["NPY_DISABLE_CPU_FEATURES"] = " ".join(newer)
    return env


def processors():
    """Execute every chapter in each of `PROCESSORS` and say which outputs are not the stored ones."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise NotebookError(f"an x86-64 processor is needed to play older ones, this is {platform.machine()}")
    faults = 0
    for name in PROCESSORS:
        env = processor(name)
        print(f"== {name}: {' '.join(f'{key}={value!r}' for key, value in env.items())}", flush=True)
        folder = ROOT / "_build/processors" / re.sub(r"\W+", "-", name)
        step = functools.partial(stale, folder=folder, env=env)
        workers = max(1, jobs.WORKERS // int(env.get("OMP_NUM_THREADS", 1)))
        for chapter, found in jobs.run(*as_jobs(step), said=lambda *_: None, workers=workers).items():
            if found:
                faults += 1
                print(f"{chapter}:", *(str(found).splitlines() if isinstance(found, Exception) else
                                       described(found)), sep="\n  ", flush=True)
    if faults:
        raise NotebookError(f"{faults} chapters came out otherwise")
    print("every chapter gives its stored outputs")


def write_readme():
    """Write README.md and its images, and remove images that are not used any more."""
    shutil.rmtree(ROOT / "README_files", ignore_errors=True)
    for name, content in readme(NBS / "index.ipynb").items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_bytes(content)


if __name__ == "__main__":
    STEPS = {"export": export, "store": store, "readme": write_readme, "processors": processors,
             "older": lambda: print(*map("=".join, processor("SSE, one thread").items()), sep="\n")}
    if len(sys.argv) < 2 or not set(sys.argv[1:]) <= set(STEPS):
        sys.exit(__doc__)
    try:
        for step in sys.argv[1:]:
            STEPS[step]()
    except (NotebookError, SiteError) as error:
        sys.exit(f"\n{error}")
