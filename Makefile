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

check: .venv/ready-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy examples

bench: .venv/ready-tests
	$(BIN)/python -m benchmarks

# without DATA: figures and claims as docs/ref-papers.md records them; FILES holds adult, skin and fashion, for claims
# about these. With DATA, as criteo, and the FOLDER of its files: figures and claims of these files, whole
papers: .venv/ready-tests
ifdef DATA
	$(BIN)/python -m papers all --data $(DATA) $(if $(FOLDER),--folder $(FOLDER)) --scale $(or $(SCALE),paper)
	$(BIN)/python -m papers claims --data $(DATA) $(if $(FOLDER),--folder $(FOLDER)) --device auto
else
	$(BIN)/python -m papers all --scale $(or $(SCALE),small)
	$(BIN)/python -m papers claims $(if $(FILES),--files $(FILES))
	$(BIN)/python scripts/make_docs.py
endif

torture: .venv/ready-tests
	$(BIN)/python -m tests.torture --out runs/torture

docs: .venv/ready-tests
	$(BIN)/python -m sphinx -W -q -b html -d docs/_build/trees docs docs/_build/html
	@echo "the site: docs/_build/html/index.html"

# what a user has, and what `make demo` runs
.venv/ready: pyproject.toml constraints.txt
	@echo "setting up .venv with PyTorch: a minute or more and 1.4 GB, the first time"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

# what tests, docs and benchmarks need beside it
.venv/ready-tests: .venv/ready
	@echo "adding to .venv what tests and docs need: another minute and 1.1 GB, the first time"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,fastpsi]'
	touch $@

clean:
	rm -rf .venv runs docs/_build
