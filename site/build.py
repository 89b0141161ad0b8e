"""Build the offline site: ``python site/build.py [notebooks] [output folder]``.

``_quarto.yml`` names the chapters and their order, ``settings.ini`` the project. Each notebook, with
the outputs that are stored in it, is translated into one that MyST-NB reads, and Sphinx makes the
pages (see ``conf.py``). Whatever the translation does not know is an error, and so is every warning of Sphinx.
"""

import ast
import configparser
import re
import shutil
import sys
from html import escape, unescape
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).absolute().parent.parent
DIRECTIVES = {"default_exp": r"[\w.]+", "export": "", "exports": "", "hide": "", "code-fold": "true",
              "fig-alt": r".+"}  # name: what its value must match
CHECK = re.compile(r'\s*check\("[\w.]+", \w+\)\s*')  # below an exercise
FOREIGN = re.compile(r"^:::|\{#|^#\||^\s*`{3,}\{|(?<![\w`/])@(?:eq|fig|sec|tbl|thm)-", re.M)
RINGS = ('<svg viewBox="0 0 24 14" width="22" height="13" aria-hidden="true" fill="none" '
         'stroke-width="3.4"><circle cx="7.5" cy="7" r="5" stroke="#e8710a"/>'
         '<path d="M13 4.6a5 5 0 1 1 0 4.8" stroke="#f9ab00"/></svg>')


class SiteError(Exception):
    """The notebooks cannot become pages; the message says which cell and why."""


def settings(root=ROOT):
    """Return the settings of ``settings.ini``."""
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(root / "settings.ini", encoding="utf-8")
    return ini["DEFAULT"]


def contents(root=ROOT):
    """Return ``[(section title or None, [notebook, ...]), ...]`` as ``_quarto.yml`` states it."""
    quarto = yaml.safe_load((root / "_quarto.yml").read_text(encoding="utf-8"))
    return [(None, [entry]) if isinstance(entry, str) else (entry["section"], entry["contents"])
            for entry in quarto["website"]["sidebar"]["contents"]]


def pages(folder):
    """Return the names of the notebooks in a folder and in those below it: paths within it, sorted."""
    names = [file.relative_to(folder) for file in folder.rglob("*.ipynb")]
    return sorted(name.as_posix() for name in names if not any(part[0] in "._" for part in name.parts))


def only_imports(code):
    """Return whether `code` imports and does nothing else; lines for IPython do something else."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return False
    return bool(body) and all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body)


def is_yaml(value):
    """Return whether YAML takes `value` for the text that it is."""
    try:
        return yaml.safe_load(f"fig-alt: {value}") == {"fig-alt": value}
    except yaml.YAMLError:
        return False


def directives(source):
    """Split a code cell into its directives ``{name: value}`` and the code below them."""
    found, lines = {}, source.split("\n")
    while lines and lines[0].startswith("#|"):
        name, value = re.fullmatch(r"#\|\s*([\w-]*):?\s*(.*?)\s*", lines.pop(0)).groups()
        if name not in DIRECTIVES:
            raise SiteError(f"unknown directive '#| {name}'; known are {', '.join(DIRECTIVES)}")
        if not re.fullmatch(DIRECTIVES[name], value):
            raise SiteError(f"directive '#| {name}' does not take the value '{value}'")
        if name == "fig-alt" and not is_yaml(value):
            raise SiteError("Quarto reads '#| fig-alt' as YAML: write it without ': ', ' #' and quotes around it")
        found[name] = value
    if any(re.match(r"\s*#\s?\|", line) for line in lines):
        raise SiteError("a directive stands below the top of its cell")
    return found, "\n".join(lines)


def public_names(module):
    """Return the names in ``__all__`` of the Python file `module`, without importing it."""
    if not module.exists():
        raise SiteError(f"{module.name} is missing: export the notebooks first")
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return []


def shortened(code, public):
    """Return `code` with the first paragraph only of the docstrings that the API entry shows in full."""
    lines = code.split("\n")
    for top in reversed(ast.parse(code).body):
        if getattr(top, "name", None) in public:
            members = top.body if isinstance(top, ast.ClassDef) else []
            for node in reversed([top, *members]):
                named = re.match("[^_]|__call__", getattr(node, "name", "_"))
                if named and ast.get_docstring(node):
                    first, last = node.body[0].lineno - 1, node.body[0].end_lineno
                    end = next((k for k in range(first, last) if not lines[k].strip()), last)
                    if end < last:
                        lines[first:last] = [*lines[first:end - 1], lines[end - 1] + re.search("[\"']{3}", lines[first])[0]]
    return "\n".join(lines)


def api(module, public, code):
    """Return the API entries of the `public` functions and classes that `code` defines, as a Markdown cell."""
    entries = []
    for node in ast.parse(code).body:
        if getattr(node, "name", None) in public:
            entries += [f"   .. auto{'class' if isinstance(node, ast.ClassDef) else 'function'}:: {node.name}"]
    if not entries:
        return []
    text = "\n".join([f".. py:currentmodule:: {module}", "", ".. container:: api", "", *entries])
    return [nbformat.v4.new_markdown_cell(f"```{{eval-rst}}\n{text}\n```")]


def home(found, ini, root):
    """Return the module that a cell with ``default_exp`` names, and its public names; else nothing."""
    stem = found.get("default_exp", ".")
    if stem == "." or stem.startswith("specifications."):  # these are for the checks of exercises
        return None
    return f"{ini['lib_name']}.{stem}", public_names(root / ini["lib_path"] / f"{stem.replace('.', '/')}.py")


def defined(code):
    """Return in words what `code` defines: three names, public ones first, and how many more; "" for nothing."""
    names = []
    for node in ast.parse(code).body:
        for target in getattr(node, "targets", [getattr(node, "target", node)]):
            names += [getattr(target, "name", getattr(target, "id", None))]
    names = sorted(dict.fromkeys(name for name in names if (name or "_").strip("_")), key=lambda n: n.startswith("_"))
    return " of " * bool(names) + ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)


def folded(found, code):
    """Return `code` without the markers of a solution, and by which word it unfolds, None if it is shown."""
    if "### BEGIN SOLUTION" in code:
        return re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", code, flags=re.M).rstrip(), "Solution"
    if only_imports(code):
        return code, "Imports"
    if "export" in found:
        return code, f"Source{defined(code)}"
    return code, (f"Code{' of the figure' if 'fig-alt' in found else ''}") if "code-fold" in found else None


def alternative(cell, found):
    """Return the alternative text of what a cell draws, None where it lacks one: a slider brings its own."""
    html = "".join("".join(out.get("data", {}).get("text/html", "")) for out in cell.outputs)
    slider = re.match(r'<div class="slider">.*?<img [^>]*?alt="([^"]*)"', html, re.S)
    return unescape(slider[1]) if slider else found.get("fig-alt")


def translate_code(cell, module, public):
    """Return the cells that stand on the page for one code cell, none where it is hidden."""
    found, code = directives(cell.source)
    if "hide" in found or not code.strip():
        return []
    figure = any(mime.startswith("image/") for out in cell.outputs for mime in out.get("data", {}))
    alt = alternative(cell, found)
    if figure and not alt:
        raise SiteError("the cell draws a figure and has no '#| fig-alt: ...'")
    code, prompt = folded(found, code)
    cell.source = shortened(code, public) if "exports" in found else code
    cell.metadata = nbformat.NotebookNode()
    if CHECK.fullmatch(code):  # what is accepted is the solution, which the reader has yet to write
        cell.outputs = []
    if prompt:
        cell.metadata.update(tags=["hide-input"],
                             mystnb={"code_prompt_show": prompt, "code_prompt_hide": prompt})
    if figure:
        cell.metadata.setdefault("mystnb", {})["image"] = {"alt": alt}
    exported = "export" in found or "exports" in found
    return [cell, *(api(module, public, code) if exported else [])]


def links(name, ini, *more):
    """Return the line under a title: Colab, the notebook on GitHub, and `more`."""
    path = f"blob/{ini['branch']}/{ini['nbs_path']}/{name}"
    colab = f"https://colab.research.google.com/github/{ini['user']}/{ini['repo']}/{path}"
    items = [f'<a class="colab" href="{escape(colab)}">{RINGS}Open in Colab</a>',
             f'<a href="{escape(ini["git_url"])}/{path}">Notebook on GitHub</a>', *more]
    return f'<p class="links">{" ".join(items)}</p>\n'


def translate(nb, name, root=ROOT):
    """Translate the notebook `nb`, whose file is `name`, for MyST-NB."""
    ini, module, public, cells, lines = settings(root), None, [], [], []
    for number, cell in enumerate(nb.cells):
        try:
            if cell.cell_type == "code":
                module, public = home(directives(cell.source)[0], ini, root) or (module, public)
                cells += translate_code(cell, module, public)
            elif cell.cell_type != "markdown":
                raise SiteError(f"a {cell.cell_type} cell has no place on a page")
            elif foreign := FOREIGN.search(cell.source):
                raise SiteError(f"'{foreign[0].strip()}' is not portable Markdown")
            else:
                cells.append(cell)
        except SiteError as error:
            raise SiteError(f"{name}, cell {number}: {error}") from None
        lines += [100 * number] * (len(cells) - len(lines))
    if not cells or not re.fullmatch(r"# .+\n\s*>.+\s*", cells[0].source):  # nbdev drops what follows
        raise SiteError(f"{name}: the first cell must be '# Title' and '> one-line description', no more")
    more = ['<a href="genindex.html">All public names</a>'] if name == "index.ipynb" else []
    if any(".. auto" in cell.source for cell in cells):  # Sphinx shows the source of what it documents
        up = "../" * name.count("/")
        more.append(f'<a href="{up}_modules/{module.replace(".", "/")}.html">Source of <code>{module}</code></a>')
    cells[0].source = f"{cells[0].source.rstrip()}\n\n{links(name, ini, *more)}"
    nb.cells = cells
    nb.metadata = {"kernelspec": {"name": "python3", "display_name": "python3"},
                   "language_info": {"name": "python", "pygments_lexer": "ipython3"},
                   "source_map": lines}  # where a cell begins, for the messages of Sphinx
    return nb


def sidebar(sections):
    """Return the Markdown cell with the hidden tables of contents that make the sidebar."""
    trees = []
    for title, names in sections:
        caption = [f":caption: {title}"] if title else []
        docs = ["self" if name == "index.ipynb" else name for name in names]
        tree = ["```{toctree}", ":hidden:", ":titlesonly:", *caption, "", *docs, "```"]
        trees.append("\n".join(tree))
    return nbformat.v4.new_markdown_cell("\n\n".join(trees))


def build(notebooks=None, out=None, root=ROOT):
    """Build the site from the `notebooks` with their outputs into the folder `out`; return its first page."""
    from sphinx.cmd.build import build_main

    notebooks, out = notebooks or root / "nbs", out or root / "_build/site"
    sections, source = contents(root), out.with_name(f"{out.name}-src")
    listed = [name for _, names in sections for name in names]
    there = set(pages(notebooks))
    if lost := sorted(set(listed) ^ there):
        raise SiteError("\n".join(
            f"{name}: not in _quarto.yml" if name in there else
            f"{name}: in _quarto.yml, but not among the notebooks in {notebooks}"
            for name in lost))
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    for name in listed:
        nb = translate(nbformat.read(notebooks / name, as_version=4), name, root)
        if name == "index.ipynb":
            nb.cells.append(sidebar(sections))
            nb.metadata["source_map"].append(0)
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nb, source / name)
    config = str(Path(__file__).absolute().parent)
    if build_main(["-q", "-E", "-W", "--keep-going", "-b", "html", "-c", config,
                   "-d", str(source / ".doctrees"), str(source), str(out)]):
        raise SiteError("Sphinx found the faults above (line 702 is line 2 of cell 7).")
    return out / "index.html"


if __name__ == "__main__":
    try:
        print(f"Site built: {build(*map(Path, sys.argv[1:3]))}")
    except SiteError as error:
        sys.exit(f"The site was not built.\n{error}")
