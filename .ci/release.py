"""Check that the version is the same wherever it is written: ``python .ci/release.py [TAG]``.

With a tag such as v0.1.0, that must be it too. Prints what CHANGELOG.md says of the version.
"""

import re
import sys
from pathlib import Path

PLACES = {
    "settings.ini": r"^version = (\S+)$",
    "rfteach/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (\S+)$",
    "README.md": r"^  version = \{(.+)\},$",
    "CHANGELOG.md": r"^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$",  # the first one with a number and a date
}


def notes(root, tag=None):
    """Return the section of CHANGELOG.md on the version; exit with a message where places disagree."""
    texts = {place: (root / place).read_text(encoding="utf-8") for place in PLACES}
    found = {place: next(iter(re.findall(PLACES[place], texts[place], re.M)), None) for place in PLACES}
    if tag is not None:
        found["the tag"] = tag.removeprefix("v")
    if len(set(found.values())) > 1:
        sys.exit("The version is not the same everywhere:\n" + "\n".join(f"  {v} in {k}" for k, v in found.items()))
    title = rf"^## \[{re.escape(found['settings.ini'])}\].*\n"
    return re.split(r"^(?:## |\[.*\]: )", re.split(title, texts["CHANGELOG.md"], flags=re.M)[1], flags=re.M)[0].strip()


if __name__ == "__main__":
    print(notes(Path(__file__).absolute().parent.parent, *sys.argv[1:]))
