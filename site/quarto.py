"""Finish the pages for Quarto, which runs this before it renders: ``python ../site/quarto.py``.

The folder is ``_proc``, where ``nbdev_docs`` puts the notebooks with title and description as Quarto
reads them. The rest is as on the project's own pages (see ``build.py``): links under the title, each
public name with its documentation above its source, source and solutions folded, nothing hidden.
Quarto takes the Python from the PATH.
"""

import ast
import re
import sys
from pathlib import Path

import nbformat
from build import ROOT, SiteError, directives, folded, home, links, pages, settings, shortened


def outline(code, top):
    """Return `code` of the definition `top` without bodies: signature, docstring, fields, public methods."""
    lines = code.split("\n")

    def head(node):
        first, start = node.body[0], min(n.lineno for n in [node, *node.decorator_list]) - 1
        if ast.get_docstring(node) or lines[first.lineno - 1][:first.col_offset].strip():  # or all in one line
            return lines[start:first.end_lineno]
        return [*lines[start:first.lineno - 1], *[" " * first.col_offset + "..."] * isinstance(node, ast.FunctionDef)]

    kept = head(top)
    for node in top.body if isinstance(top, ast.ClassDef) else []:
        if isinstance(node, ast.AnnAssign):
            kept += lines[node.lineno - 1:node.end_lineno]
        elif re.match("[^_]|__(init|call)__", getattr(node, "name", "_")):
            kept += ["", *head(node)]
    return "\n".join(kept)


def entries(code, module, public):
    """Return a Markdown cell for each of the `public` names of the `module` that `code` defines."""
    return [nbformat.v4.new_markdown_cell(
                f"### {node.name} {{#{module}.{node.name}}}\n\n```python\n{outline(code, node)}\n```")
            for node in ast.parse(code).body if getattr(node, "name", None) in public]


def page(nb, name, root=ROOT):
    """Return the cells of a page for the notebook `nb`, whose file is `name`, below title and description."""
    ini, module, public, cells = settings(root), None, [], []
    cells.append(nbformat.v4.new_markdown_cell(links(name, ini)))
    for cell in nb.cells[1:]:
        if cell.cell_type == "code":
            found, code = directives(cell.source)
            module, public = home(found, ini, root) or (module, public)
            if "hide" in found or not code.strip():
                continue
            if "export" in found or "exports" in found:
                cells += entries(code, module, public)
            text, prompt = folded(found, code)
            options = {key: found[key] for key in ("fig-alt",) if key in found}
            if prompt:
                options |= {"code-fold": "true", "code-summary": prompt}
            text = shortened(text, public) if "exports" in found else text
            cell.metadata.pop("jupyter", None)  # the options say what is folded
            cell.source = "\n".join([*(f"#| {key}: {value}" for key, value in options.items()), text])
        cells.append(cell)
    return cells


def finish(folder, root=ROOT):
    """Write the pages into the notebooks in `folder`; their first cell, the front matter, is nbdev's."""
    if folder.resolve() == (root / "nbs").resolve():
        raise SiteError("These are the sources. Call nbdev_docs in the folder above.")
    for name in pages(folder):
        made, source = (nbformat.read(place / name, as_version=4) for place in (folder, root / "nbs"))
        if made.cells[0].cell_type != "raw":
            raise SiteError(f"{name}: nbdev has found no title")
        made.cells = [made.cells[0], *page(source, name, root)]
        nbformat.write(made, folder / name)


if __name__ == "__main__":
    try:
        finish(Path.cwd())
    except SiteError as error:
        sys.exit(f"The pages were not finished.\n{error}")
