# make demo    the main job, end to end             make check   format, lint, types, fast tests
# make test    every test                           make bench   the benchmarks
# make format  rewrite the code in the project's style  make results docs/results.md from the runs in results/
# make docs    the documentation site, in site/      make clean   remove the environment and the caches
# make test-gpu  the kernels on this machine's GPU   make audit  pins, licences, known vulnerabilities
#
# Each makes .venv first, from requirements.lock, if it is not there yet.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CODE := $(wildcard src tests benchmarks examples results docs)

# Two workers, one thread each for the linear algebra; the kernels of the package may still use two.
TEST_ENV := OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=2 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 MPLBACKEND=Agg
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo test check test-gpu audit format bench results docs clean

demo: .venv/.installed
	$(BIN)/lidstone demo $(if $(SMOKE),--smoke)

test: .venv/.installed
	$(PYTEST)

check: .venv/.installed
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

test-gpu: .venv/.installed
	$(TEST_ENV) $(BIN)/python -m pytest -m gpu -rs tests/unit
	$(BIN)/python benchmarks/gpu.py --quick

# pip-audit asks the advisory service of PyPI: without a network it fails, and --strict lets no package pass unasked.
audit: .venv/.installed
	$(BIN)/python -m tests.audit
	test -x .venv/audit/bin/pip-audit || { $(PYTHON) -m venv .venv/audit && .venv/audit/bin/pip install -qq pip-audit; }
	@.venv/audit/bin/pip-audit --strict --requirement requirements.lock --no-deps --disable-pip \
	  || { echo "make audit: a vulnerability was found, or the advisory service cannot be reached."; exit 1; }

format: .venv/.installed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: .venv/.installed
	for script in benchmarks/[a-z]*.py; do $(BIN)/python "$$script" || exit 1; done

results: .venv/.installed
	$(BIN)/python results/make.py

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
	grep -v '^kenlm==' requirements.lock > .venv/requirements.txt
	$(PIP) install --requirement .venv/requirements.txt
	$(PIP) install "$$(grep '^kenlm==' requirements.lock)" \
	  || echo "kenlm could not be compiled: the tests that compare with it will be skipped."
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@
