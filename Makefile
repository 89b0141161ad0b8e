# What can be done here; `make` alone lists it.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready

export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PYTHONDONTWRITEBYTECODE =# without its byte code the environment starts seconds later

# Threads that spin while they wait stall each other as soon as anything else computes: a chapter of half a
# minute then takes two. So they sleep, but for timings. And NumPy gets one thread beside torch's.
course test lab site book slides sync processors: export OMP_WAIT_POLICY ?= PASSIVE
course test lab site book slides sync: export OPENBLAS_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help course test lab site book slides student bench equations sync processors clean

help:  ## list what make can do
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "make %-11s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

course: $(READY)  ## install, build the pages, execute every chapter with its checks, compare published numbers
	@$(PY) site/course.py

# First, in a run of its own that starts at once, whether the package is what the notebooks export; when it
# is not, the other tests have nothing to say. Then everything, with a worker for each core, one thread each.
test: export OMP_NUM_THREADS ?= 1
test: $(READY)  ## run the whole test suite
	@$(PY) -m pytest tests/test_notebooks.py -k "not chapter"
	@$(PY) -m pytest -n auto -k "chapter or not test_notebooks"

lab: $(READY)  ## open the notebooks in JupyterLab
	@$(PY) -m jupyterlab nbs/index.ipynb --notebook-dir=. $$([ "$$(id -u)" -ne 0 ] || echo --allow-root)

site: $(READY)  ## build the pages from the outputs that are stored in the notebooks
	@$(PY) site/build.py

book: $(READY)  ## print the whole course as one PDF, _build/book.pdf (needs Chromium; ARGS=01_kernels: these pages)
	@$(PY) site/book.py $(ARGS)

slides: $(READY)  ## make a deck of slides for each chapter, in _build/slides
	@$(PY) site/slides.py

student: $(READY)  ## the course in folders and archives: for students without solutions, for instructors with
	@$(PY) site/classroom.py

bench: $(READY)  ## time the library against its peers and the machine's limit (ARGS=--quick: tiny sizes)
	@$(PY) benchmarks/run.py $(ARGS)

equations: $(READY)  ## after changing a check: break each numbered equation, and see that its check refuses it
	@$(PY) tests/mutations.py

sync: $(READY)  ## after changing a notebook: export, execute, store outputs, write README.md
	@$(PY) site/notebooks.py export store readme

processors: $(READY)  ## execute every chapter as older processors do, and compare (an hour)
	@$(PY) site/notebooks.py processors

clean:  ## remove the environment and everything built
	rm -rf $(VENV) _build _docs _proc dist build *.egg-info .pytest_cache .hypothesis \
	  student instructor student.zip instructor.zip

$(READY): settings.ini setup.py pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "'$(PYTHON)' was not found. Install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name another one: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' lacks the modules venv and ensurepip. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Installing into $(VENV) (once; a few minutes and about 2 GB of disk)"
	@[ -x $(PY) ] || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -c constraints.txt -e '.[dev]'
	@touch $@
