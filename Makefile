# Each target does all the set-up it needs on a machine that has Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint bench serve

setup: .venv/ready ## install the project and what it needs into .venv

demo: .venv/ready ## train digits on two workers and show what was measured
	$(BIN)/python -m jobs.demo

test: .venv/ready ## everything real: gloo workers, Ray, files
	$(BIN)/python -m pytest

lint: .venv/ready ## style, types and the floors of the house
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

bench: .venv/peers ## speed against peers, in interleaved pairs, and the search against others
	$(BIN)/python -m tests.bench.loop && $(BIN)/python -m tests.bench.augment && $(BIN)/python -m tests.bench.engines && $(BIN)/python -m tests.policies

serve: .venv/ready ## answer pictures by HTTP with the model published in bundles/vending
	$(BIN)/serve run services.app:build bundle=bundles/vending

.venv/ready: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[dev]'
	touch $@

.venv/peers: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[dev,bench]'
	touch $@
