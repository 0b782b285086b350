# Each target does all the set-up it needs on a machine that has Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-s3 test-story test-cluster lint bench bench-drift serve cluster

setup: .venv/ready ## install the project and what it needs into .venv

demo: .venv/ready ## the whole story: a plan, a model that is served, a light that changes, a model that works again
	$(BIN)/python -m jobs.demo

test: .venv/ready .venv/clients/ready .venv/browser/ready ## everything real: gloo workers, Ray, HTTP, files, a browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal tests/unit tests/contract tests/replay tests/browser
	$(BIN)/python -m pytest tests/ray tests/serving

test-s3: .venv/ready .venv/moto/ready ## results by URL, on a store of our own: trained, swept, gone on with, served, and the store away for a while
	$(BIN)/python -m pytest tests/object_store

test-story: .venv/ready .venv/browser/ready ## the demo to its end, whether what it tells stands in its records, and models adapted again
	$(BIN)/python -m pytest tests/end_to_end

test-cluster: .venv/ready ## a cluster that grows for what is submitted and shrinks after, as the README has it; hosts, links, and what goes wrong
	command -v tc > /dev/null || apt-get install --yes --no-install-recommends iproute2 > /dev/null || echo 'no iproute2 here: tests on hosts in miniature will be skipped'
	$(BIN)/python -m pytest tests/network
	$(BIN)/python -m pytest -rP tests/autoscaling

lint: .venv/ready ## style, types and the floors of the house
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python -m jobs.cluster.validate cluster.yaml cluster.gcp.yaml cluster.local.yaml services/kuberay/*.yaml

bench: .venv/peers .venv/servers/ready ## speed against peers, in interleaved pairs, and the search against others
	$(BIN)/python -m benchmarks.loop && $(BIN)/python -m benchmarks.augment && $(BIN)/python -m benchmarks.engines && $(BIN)/python -m benchmarks.serving && $(BIN)/python -m benchmarks.fault_tolerance && $(BIN)/python -m benchmarks.search_policies

bench-drift: .venv/watchers/ready ## every figure about drift, beside the detectors of others; it takes hours
	$(BIN)/python -m benchmarks.drift && $(BIN)/python -m benchmarks.drift.live_service && $(BIN)/python -m benchmarks.drift.end_to_end && $(BIN)/python -m benchmarks.drift.memory && $(BIN)/python -m benchmarks.monitoring_cost

serve: .venv/ready ## answer pictures by HTTP with the model published in bundles/vending; Ray keeps to loopback by that variable
	RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 $(BIN)/serve run services.app:build bundle=bundles/vending

cluster: .venv/ready ## a cluster on this machine that grows with what is submitted to it; Ctrl-C ends it
	$(BIN)/python -m jobs.cluster.local cluster.local.yaml

.venv/ready: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[dev]'
	touch $@

.venv/peers: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[dev,bench]'
	touch $@

# kserve's client wants other releases than Ray does, and so do the servers that ours is held against
.venv/clients/ready: .venv/ready
	$(PYTHON) -m venv .venv/clients
	.venv/clients/bin/python -m pip install --quiet kserve==0.21.0
	touch $@

# a store that speaks S3, on this machine; it wants another botocore than s3fs does
.venv/moto/ready: .venv/ready
	$(PYTHON) -m venv .venv/moto
	.venv/moto/bin/python -m pip install --quiet 'moto[server]==5.2.5'
	touch $@

# a browser, and what finds on pages that some people cannot read them; where neither can be had, tests say so
.venv/browser/ready: .venv/ready
	command -v chromium > /dev/null || apt-get install --yes --no-install-recommends chromium > /dev/null || echo 'no chromium here: tests in a browser will be skipped'
	npm install --silent --prefix .venv/browser axe-core@4.14.1 || echo 'no npm here: pages will not be tried with axe-core'
	touch $@

.venv/servers/ready: .venv/ready
	$(PYTHON) -m venv .venv/servers
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > $$(.venv/servers/bin/python -c 'import site; print(site.getsitepackages()[0])')/torch.pth
	.venv/servers/bin/python -m pip install --quiet litserve==0.2.19 bentoml==1.4.39
	.venv/servers/bin/python -m pip install --quiet mlserver==1.7.1 # by itself: what it asks for and what bentoml does exclude each other on paper
	touch $@

# detectors of drift by others, without the bounds of which each excludes the others; torch is the project's own
.venv/watchers/ready: .venv/ready
	$(PYTHON) -m venv .venv/watchers
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > $$(.venv/watchers/bin/python -c 'import site; print(site.getsitepackages()[0])')/torch.pth
	.venv/watchers/bin/python -m pip install --quiet 'pandas<3' river==0.26.1 evidently==0.7.23
	.venv/watchers/bin/python -m pip install --quiet --no-deps alibi-detect==0.13.0 torchdrift==0.1.0.post1 frouros==0.9.0
	.venv/watchers/bin/python -m pip install --quiet dill toml catalogue scikit-image numba opencv-python-headless transformers # alibi-detect's
	touch $@
