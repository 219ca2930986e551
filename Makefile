# `make` alone lists what there is. Everything runs from .venv, which is made on first use.

PYTHON ?= python3
PYTEST_ARGS ?=
IMAGES ?=
NOTEBOOKS = $(wildcard notebooks/*.ipynb)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# An environment with everything serves every target; `make demo` alone is content with less.
DEV := .venv/.setup-dev
DEMO := $(if $(wildcard $(DEV)),$(DEV),.venv/.setup-demo)
made_elsewhere = $(if $(filter-out x$(CURDIR),x$(file <$(1))),FORCE)

##@ Use
.PHONY: demo
demo: $(DEMO) ## Train MNIST with two JAX processes through the pipeline; prints where the report is
	@kfp-jax pipeline mnist --nodes 2 --output build/demo

##@ Work on it
.PHONY: setup
setup: $(DEV) ## Make .venv with everything for development (PYTHON=python3.12: from that Python)
	@echo "setup: .venv is ready (to use it in this shell: . .venv/bin/activate)"

.PHONY: test
test: $(DEV) ## Run every test that needs no cluster (PYTEST_ARGS="-k launch" passes options on)
	@pytest -m "not bench and not e2e" -n 3 --cov --cov-report=term $(PYTEST_ARGS)

.PHONY: e2e
e2e: $(DEV) ## Run the tests that need a cluster, the one of KUBECONFIG; see tests/e2e/README.md
	@[ -n "$$KUBECONFIG" ] || { \
	    echo "e2e: KUBECONFIG is not set; name the cluster to test on, see tests/e2e/README.md" >&2; exit 2; }
	@pytest tests/e2e -m e2e $(PYTEST_ARGS)

.PHONY: lint
lint: $(DEV) ## Check format, lint, types, layers, and that notebooks carry no output
	@failed=; check() { echo "--- $$*"; "$$@" || failed="$$failed $$1"; }; \
	check ruff format --check; check ruff check; check mypy; check pyright; check lint-imports --no-logo; \
	$(if $(NOTEBOOKS),check nbstripout --verify $(NOTEBOOKS);) \
	if [ -n "$$failed" ]; then echo "lint: failed:$$failed" >&2; exit 1; fi

.PHONY: format
format: $(DEV) ## Format the code, mend what ruff can mend, strip the notebooks' output
	@ruff check --fix
	@ruff format
	@$(if $(NOTEBOOKS),nbstripout $(NOTEBOOKS))

.PHONY: bench
bench: $(DEV) ## Measure: accuracy, speed, overheads; prints a table, writes JSON under build/
	@pytest tests/bench -m bench --capture=no --timeout=3600 -p no:randomly $(PYTEST_ARGS)

.PHONY: notebooks
notebooks: $(DEV) ## Execute every notebook; the executed copies go to build/notebooks
	@python tools/notebooks.py

.PHONY: docs-check
docs-check: $(DEV) ## Run every command of README, CONTRIBUTING and docs (ALREADY_RUN="make demo" skips that line)
	@python tools/docs.py

##@ Make files that are kept in git, or published
.PHONY: compile
compile: $(DEV) ## Write the pipelines as YAML to pipelines/compiled
	@kfp-jax compile --output pipelines/compiled

.PHONY: constraints
constraints: $(DEV) ## Pin the newest allowed version of every package, for the images with hashes
	@mkdir -p build
	@pip install --quiet --dry-run --ignore-installed --report build/resolved.json \
	    --editable ".[dev]" hatchling pip setuptools
	@python tools/pin.py <build/resolved.json >build/constraints.txt
	@mv build/constraints.txt constraints.txt
	@python tools/lock_images.py

.PHONY: wheel
wheel: $(DEV) ## Build the sdist and wheel in dist/ and try the wheel in an empty environment
	@tools/wheel.sh

##@ Container images and what they are made of
.PHONY: images
images: $(DEV) ## Build them with docker, podman or buildah; prints sizes (IMAGES="launcher": only that)
	@python tools/images.py $(IMAGES)

.PHONY: images-again
images-again: $(DEV) ## Build them twice, the second time from nothing, and compare every file
	@python tools/images.py --again $(IMAGES)

.PHONY: audit
audit: $(DEV) ## Ask for known vulnerabilities of everything that is pinned
	@python tools/audit.py

##@ Other
.PHONY: clean
clean: ## Remove what was made here, except .venv
	@rm -rf build dist .coverage* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find components pipelines runtimes tests tools -name __pycache__ -prune -exec rm -rf {} +

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) } \
	    /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: FORCE
FORCE:

$(DEV): pyproject.toml constraints.txt $(call made_elsewhere,$(DEV))
	@tools/setup.sh "$(PYTHON)" dev $@

.venv/.setup-demo: pyproject.toml constraints.txt $(call made_elsewhere,.venv/.setup-demo)
	@tools/setup.sh "$(PYTHON)" kfp,jax $@
