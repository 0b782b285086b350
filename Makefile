# Each target does all the set-up it needs on a machine that has Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
# tests start hundreds of commands and workers: without bytecode each of them compiles the project, and pytest its tests
unexport PYTHONDONTWRITEBYTECODE
# two test files at a time, each process with a Ray of its own: a file mostly waits for one process of its command to start
TWO_CLUSTERS := --numprocesses 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-detection test test-browser test-ray test-slow test-slow-ray test-thorough mutants test-docs test-object-store test-end-to-end test-cluster test-examples
.PHONY: test-wheel test-frameworks lint wheel docs docs-reference bench bench-drift serve cluster

help: ## list the targets with what they do
	@awk -F ':.* ## ' '/^[a-z-]+:.* ## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: .venv/ready ## install the project and what it needs into .venv

demo: .venv/ready ## the whole story: find a plan, train, serve, detect a change of light, adapt
	$(BIN)/python -m jobs.demo

demo-detection: .venv/ready ## the story of a detector: train, serve, detect a change of light, draw boxes on the labelling page, adapt
	$(BIN)/python -m jobs.demo --act detection --out runs/demo-detection

test: .venv/ready ## unit and contract tests; everything is real, nothing is mocked
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow and not thorough" tests/unit tests/contract tests/replay tests/docs/test_reference.py

test-browser: .venv/ready .venv/browser/ready ## pages in a real browser: what they show, keys, phones, accessibility
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow and not thorough" tests/browser

test-ray: .venv/ready .venv/clients/ready .venv/browser/ready ## commands and the site on a real Ray, and the prediction service over HTTP
	$(BIN)/python -m pytest $(TWO_CLUSTERS) -m "not slow and not thorough" tests/ray tests/serving

test-slow: .venv/ready .venv/browser/ready ## how often intervals hold, how rare false alarms are, how good the search is
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -rs -m "slow and not thorough" tests/unit tests/contract tests/browser

test-slow-ray: .venv/ready ## killed jobs and swapped models
	$(BIN)/python -m pytest -rs -m "slow and not thorough" tests/ray tests/serving

test-thorough: .venv/ready .venv/browser/ready .venv/moto/ready ## further cases of what slow tests show: more kinds of sharding, compression and servers under kill -9; the detection act, and the site from an empty folder
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m thorough tests/unit tests/contract
	$(BIN)/python -m pytest $(TWO_CLUSTERS) -m thorough tests/ray tests/serving
	$(BIN)/python -m pytest -m thorough tests/object_store
	$(BIN)/python -m pytest -m thorough tests/end_to_end

test-object-store: .venv/ready .venv/moto/ready ## train, sweep, resume and serve on a local S3 server, also while it is down
	$(BIN)/python -m pytest -m "not thorough" tests/object_store

test-end-to-end: .venv/ready .venv/browser/ready ## the whole demo, checked against the records it writes, and adaptation end to end
	$(BIN)/python -m pytest -m "not thorough" tests/end_to_end

test-cluster: .venv/ready ## autoscaling, the guide to clusters, and faults between hosts in network namespaces
	command -v tc > /dev/null || apt-get install --yes --no-install-recommends iproute2 > /dev/null || echo 'iproute2 is not available: tests in network namespaces will be skipped'
	$(BIN)/python -m pytest tests/network
	$(BIN)/python -m pytest -rP tests/autoscaling

test-docs: .venv/ready ## the commands of the README and the guides, links, and the strict build of the site
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup tests/docs

test-examples: .venv/ready ## run every program of examples/ and check what it prints
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile tests/examples

test-wheel: .venv/ready ## build the wheel, install it elsewhere, and train with it outside of the checkout
	$(BIN)/python -m pytest tests/wheel

test-frameworks: .venv/frameworks/ready ## models of transformers and timm from a sweep to a service, adapters of peft, callbacks of Lightning, transformers and Accelerate
	OMP_NUM_THREADS=1 .venv/frameworks/bin/python -m pytest tests/unit/callbacks tests/unit/bundle/test_framework_models.py tests/unit/workloads/text tests/unit/training/initialization tests/unit/training/sharding/test_tensor_hugging_face.py tests/ray/test_framework_story.py tests/examples/test_library_examples.py -k "callbacks or framework or hugging_face or lora"

mutants: .venv/ready ## plant 100 faults in the library and 100 in the pure parts of the rest, and count those that tests catch; SEEDS="1 2 3" draws three samples
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutation --count 100 --seeds $(or $(SEEDS),1)

lint: .venv/ready ## style, types, import layers and cluster files
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python -m jobs.cluster.validate cluster.yaml cluster.gcp.yaml cluster.local.yaml services/kuberay/*.yaml

wheel: .venv/ready ## build the wheel into dist/
	rm -rf build dist # files that the source no longer has would stay in the wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

docs: .venv/ready ## build the documentation into site/; a broken link fails the build
	$(BIN)/zensical build --strict --clean

bench: .venv/peers .venv/servers/ready ## speed against other libraries, in interleaved pairs, and the search against other search methods
	$(BIN)/python -m benchmarks.loop && $(BIN)/python -m benchmarks.augment && $(BIN)/python -m benchmarks.engines && $(BIN)/python -m benchmarks.serving && $(BIN)/python -m benchmarks.serving_same_engine && $(BIN)/python -m benchmarks.serving_boxes && $(BIN)/python -m benchmarks.fault_tolerance && $(BIN)/python -m benchmarks.search_policies

bench-drift: .venv/watchers/ready ## every drift figure, beside other detectors; takes hours
	$(BIN)/python -m benchmarks.drift && $(BIN)/python -m benchmarks.drift.tables && $(BIN)/python -m benchmarks.drift.table_peers && $(BIN)/python -m benchmarks.drift.texts && $(BIN)/python -m benchmarks.drift.live_service && $(BIN)/python -m benchmarks.drift.end_to_end && $(BIN)/python -m benchmarks.drift.memory && $(BIN)/python -m benchmarks.monitoring_cost && $(BIN)/python -m benchmarks.drift_conditions && $(BIN)/python -m benchmarks.drift.known_lights --served && $(BIN)/python -m benchmarks.drift.three_adaptations && $(BIN)/python -m benchmarks.drift.shelf_lights

docs-reference: .venv/ready ## write the pages in docs/reference from the code that they describe
	$(BIN)/python -m docs.generate

serve: .venv/ready ## serve bundles/vending over HTTP; the variable keeps Ray on loopback
	RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 $(BIN)/serve run services.app:build bundle=bundles/vending

cluster: .venv/ready ## an autoscaling cluster on this machine; Ctrl-C ends it
	$(BIN)/python -m jobs.cluster.local cluster.local.yaml

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/ready: pyproject.toml requirements.lock | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --config-settings editable_mode=compat --editable '.[dev]'
	touch $@

.venv/peers: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --config-settings editable_mode=compat --editable '.[dev,bench]'
	touch $@

# kserve's client needs other releases than Ray, and so do the servers that ours is compared with
.venv/clients/ready: | $(BIN)/python
	$(PYTHON) -m venv .venv/clients
	.venv/clients/bin/python -m pip install --quiet kserve==0.21.0
	touch $@

# a local S3 server; it needs another botocore than s3fs
.venv/moto/ready: | $(BIN)/python
	$(PYTHON) -m venv .venv/moto
	.venv/moto/bin/python -m pip install --quiet 'moto[server]==5.2.5'
	touch $@

# a browser, axe-core for accessibility checks, and onnxruntime-web for pages that run a model; tests that need them are
# skipped where they are missing
.venv/browser/ready: | $(BIN)/python
	command -v chromium > /dev/null || apt-get install --yes --no-install-recommends chromium > /dev/null || echo 'chromium is not available: browser tests will be skipped'
	npm install --silent --prefix .venv/browser axe-core@4.14.1 onnxruntime-web@1.30.0 || echo 'npm is not available: checks with axe-core and pages that run a model will be skipped'
	touch $@

# frameworks whose trainers are observed; torch, pytest and the rest are the project's own
.venv/frameworks/ready: .venv/ready requirements.lock
	$(PYTHON) -m venv .venv/frameworks
	$(BIN)/python -c 'import os, site; print(site.getsitepackages()[0], os.getcwd(), sep="\n")' > $$(.venv/frameworks/bin/python -c 'import site; print(site.getsitepackages()[0])')/project.pth
	.venv/frameworks/bin/python -m pip install --quiet --constraint requirements.lock accelerate lightning peft timm transformers
	touch $@

.venv/servers/ready: .venv/ready
	$(PYTHON) -m venv .venv/servers
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > $$(.venv/servers/bin/python -c 'import site; print(site.getsitepackages()[0])')/torch.pth
	.venv/servers/bin/python -m pip install --quiet litserve==0.2.19 bentoml==1.4.39
	.venv/servers/bin/python -m pip install --quiet mlserver==1.7.1 # installed by itself: its requirements conflict with bentoml's
	touch $@

# other drift detectors, installed without their version bounds, which exclude each other; torch is the project's own
.venv/watchers/ready: .venv/ready
	$(PYTHON) -m venv .venv/watchers
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > $$(.venv/watchers/bin/python -c 'import site; print(site.getsitepackages()[0])')/torch.pth
	.venv/watchers/bin/python -m pip install --quiet 'pandas<3' river==0.26.1 evidently==0.7.23 nannyml==0.13.1 # nannyml needs Python < 3.13
	.venv/watchers/bin/python -m pip install --quiet --no-deps alibi-detect==0.13.0 torchdrift==0.1.0.post1 frouros==0.9.0
	.venv/watchers/bin/python -m pip install --quiet dill toml catalogue scikit-image numba opencv-python-headless transformers # alibi-detect's
	touch $@
