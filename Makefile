# make demo: set up and show the point of it. make test: set up and run all checks and tests.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench torture clean

demo: .venv/ready
	$(BIN)/tacit demo --out runs/demo

test: check
	$(BIN)/python -m pytest -n 2

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/tacit bench

torture: .venv/ready
	$(BIN)/python -m tacit.lab.torture --out runs/torture

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,fastpsi]'
	touch $@

clean:
	rm -rf .venv runs
