# make demo: set up and show the point of it. make test: set up and run all checks and tests but slow ones (browser, docs,
# kills of whole processes), which make test-all runs as well.
# make docs: the docs as a site that can be searched, in docs/_build/html.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all check bench papers torture docs clean

demo: .venv/ready
	$(BIN)/tacit demo --out runs/demo

test: check
	$(BIN)/python -m pytest -n 2 -m "not slow"
	@command -v chromium chromium-browser google-chrome > /dev/null || \
		echo "no browser here: the tests of the pages were left out; to run them: apt-get install chromium"

test-all: check
	$(BIN)/python -m pytest -n 2

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy examples

bench: .venv/ready
	$(BIN)/python -m benchmarks

papers: .venv/ready
	$(BIN)/python -m papers all

torture: .venv/ready
	$(BIN)/python -m tests.torture --out runs/torture

docs: .venv/ready
	$(BIN)/python -m sphinx -W -q -b html -d docs/_build/trees docs docs/_build/html
	@echo "the site: docs/_build/html/index.html"

.venv/ready: pyproject.toml constraints.txt
	@echo "setting up .venv with PyTorch and more: some minutes and 2.4 GB or more, the first time"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,fastpsi]'
	touch $@

clean:
	rm -rf .venv runs docs/_build
