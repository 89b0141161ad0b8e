"""Where Chromium is, and how it is started: by the tests, and to print the book."""

import shutil

NAMES = ["chromium", "chromium-browser", "google-chrome"]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]
MISSING = "no Chromium found (on Debian: apt-get install chromium)"


def path():
    """Return the path of Chromium, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def launch(playwright):
    """Start it."""
    return playwright.chromium.launch(executable_path=path(), args=FLAGS)
