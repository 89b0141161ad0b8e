"""Make README.md from nbs/index.ipynb."""

import base64
import posixpath
import re

import nbformat
from build import directives
from compare import merged


def relink(markdown):
    """Make links that are relative to nbs/ relative to the project."""
    def link(match):
        return f"{match[1]}{posixpath.normpath(posixpath.join('nbs', match[2]))}{match[3]}"
    parts = re.split(r"(```.*?```)", markdown, flags=re.S)
    target = r"(?![a-z]+:|#|/)([^\s)\"']+)"
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(rf"(\]\(){target}(\)|\s)", link, parts[i])
        parts[i] = re.sub(rf"((?:src|href)=\"){target}(\")", link, parts[i])
    return "".join(parts)


def readme(notebook):
    """Return README.md and its images as nbs/index.ipynb makes them, ``{path: bytes}``.

    Nothing is executed. Hidden cells are left out, of folded cells the outputs stay.
    """
    parts, files = [], {}
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(relink(cell.source))
            continue
        found, code = directives(cell.source)
        if "hide" in found or "nbdev_export()" in code:
            continue
        if code.strip() and "code-fold" not in found:
            parts.append(f"```python\n{code.strip()}\n```")
        for output in merged(cell.outputs):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                name = f"README_files/{len(files) + 1}.png"
                files[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![{found.get('fig-alt', '')}]({name})")
            elif "text/markdown" in data:
                parts.append(relink("".join(data["text/markdown"])))
            else:
                parts.append(f"```text\n{''.join(data.get('text/plain', '')).rstrip()}\n```")
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    notice = "<!-- Generated from nbs/index.ipynb by `make sync`; edit the notebook. -->"
    return {"README.md": f"{text}\n\n{notice}\n".encode(), **files}
