# Two commands do all the set-up: `make demo` and `make test`. A second run reuses .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
SOURCES := ctxguard $(wildcard adapters/ctxguard_*)
READERS = $(shell grep -rlE --include='test_*.py' 'pytest\.mark\.recordings|def test.*\btranscripts\b' tests) # what reads recordings has the mark
CORE := $(addprefix tests/,test_artifacts.py test_drivers.py test_laws.py test_public_face.py checks history report/test_report.py pii/test_masking.py pii/test_match.py stages tokens)
unexport PYTHONDONTWRITEBYTECODE # set in many images: every process would compile what it imports anew
.DEFAULT_GOAL := help

help: ## list what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ctxguard needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(PIP) install --no-compile -e '.[cli,tokens]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) install --upgrade pip
	$(PIP) install --no-compile -e '.[all]' --group dev
	@touch $@

$(VENV)/.docs: $(VENV)/.test
	$(PIP) install --no-compile --group docs
	@touch $@

demo: $(VENV)/.demo ## run the main job on a session that ships with the package
	$(BIN)/ctxguard demo

test: $(VENV)/.test ## every gate, and every test but the slow ones
	$(MAKE) --no-print-directory -j2 types layers
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: $(VENV)/.test ## every gate and every test, with more generated examples
	$(MAKE) --no-print-directory -j2 types layers
	CTXGUARD_EXAMPLES=12 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

QUICK := $(addprefix tests/,test_artifacts.py test_drivers.py test_public_face.py test_structure.py test_contributing.py checks history stages report/test_report.py pii/test_standard_rules.py adapters/openai adapters/anthropic)
quick: $(VENV)/.test ## lint, and the tests of the core without generated histories: under a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q -n 2 -m "not hypothesis and not slow" $(QUICK)

test-without-recordings: $(VENV)/.test ## the tests that read recordings, as they run for someone who has none
	CTXGUARD_RECORDINGS= $(BIN)/python -m pytest -n 2 --dist loadfile -m recordings $(READERS)

COVERED ?= 90
cover: $(VENV)/.test ## the lines that no test runs; fails below COVERED=n percent
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-fail-under=$(COVERED) --cov-report=term-missing:skip-covered

.venv-oldest/.done: pyproject.toml adapters/constraints/oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install -q --no-compile -c adapters/constraints/oldest.txt -e '.[cli,files,tokens,vault,bedrock,google,langchain,langgraph,pydantic-ai,openai-agents,strands,testing]' openai anthropic pytest-asyncio pytest-timeout httpx fastapi
	@touch $@

test-oldest: .venv-oldest/.done ## adapters and files with the oldest supported versions
	.venv-oldest/bin/python -m pytest tests/adapters tests/content

# frameworks that cannot stand beside what `all` brings: each end of their versions has an environment of its own
.venv-apart/%/.done: pyproject.toml adapters/constraints/oldest.txt adapters/constraints/newest.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -q --no-compile -e '.[cli,tokens,vault,testing,$(*D)]' "$$(grep -E '^(google-)?$(*D)==' adapters/constraints/$(*F).txt)" pytest-asyncio pytest-timeout
	@touch $@

APART := tests/adapters/test_two_users_at_every_door.py tests/adapters/test_new_values_at_every_door.py tests/adapters/test_missing_frameworks.py tests/adapters/test_wrong_stabilizers.py tests/adapters/test_wrong_vaults.py
QUIET := CREWAI_DISABLE_TELEMETRY=true CREWAI_DISABLE_TRACKING=true # nothing is sent
test-adk: ## the adapter of Google's ADK, in environments of its own
test-crewai: ## the adapter of CrewAI, in environments of its own
test-adk test-crewai: test-%: .venv-apart/%/oldest/.done .venv-apart/%/newest/.done
	$(QUIET) .venv-apart/$*/oldest/bin/python -m pytest -W ignore tests/adapters/$** $(APART) -k $*
	$(QUIET) .venv-apart/$*/newest/bin/python -m pytest -W ignore tests/adapters/$** $(APART) tests/test_docs.py -k $*

.venv-litellm/.done: pyproject.toml adapters/constraints/newest.txt
	$(PYTHON) -m venv .venv-litellm
	.venv-litellm/bin/python -m pip install -q --no-compile -c adapters/constraints/newest.txt -e '.[cli,tokens,vault,proxy,testing]' 'litellm[proxy]' openai anthropic pytest-asyncio pytest-timeout
	@touch $@

test-litellm: .venv-litellm/.done ## the guardrail in LiteLLM's own proxy, in an environment of its own
	.venv-litellm/bin/python -m pytest -W ignore tests/wire/test_litellm_guard.py tests/adapters/test_two_users_at_every_door.py -k litellm

.venv-durable/.done: pyproject.toml
	$(PYTHON) -m venv .venv-durable
	.venv-durable/bin/python -m pip install -q --upgrade pip
	.venv-durable/bin/python -m pip install -q --no-compile --group durable -e '.[cli,tokens,vault,testing]' pytest-asyncio pytest-timeout markdown-it-py httpx
	@touch $@

test-durable: .venv-durable/.done ## guarded agents under Temporal, DBOS and Prefect, in an environment of their own
	.venv-durable/bin/python -m pytest tests/adapters/durable

test-newest: $(VENV)/.test ## adapters with the newest frameworks there are, release candidates included
	$(PIP) install --upgrade --upgrade-strategy eager --pre -e '.[bedrock,google,langchain,langgraph,pydantic-ai,openai-agents,strands]' anthropic openai
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/adapters tests/wire

types: $(VENV)/.test ## lint and format, and the types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/typos

layers: $(VENV)/.test ## who may import whom, and what the wheel holds
	PYTHONPATH=adapters $(BIN)/lint-imports
	$(BIN)/python -m build --wheel --no-isolation --outdir build/dist . >/dev/null
	$(BIN)/check-wheel-contents build/dist

replay-all: $(VENV)/.test ## the laws at every model call of every recorded session, every recorded file at every limit
	CTXGUARD_REPLAY_ALL=1 $(BIN)/python -m pytest -s tests/test_recorded.py tests/content/test_shared_files.py

EXAMPLES ?= 150
SECONDS_A_TARGET ?= 120
hunt: $(VENV)/.test ## every property with many more examples, and every parser fuzzed; EXAMPLES=n, SECONDS_A_TARGET=n
	-$(PIP) install --group hunt
	$(BIN)/python tests/adversarial/fuzz.py --seconds $(SECONDS_A_TARGET)
	CTXGUARD_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n 2 --dist loadfile --timeout=0 -m hypothesis tests

PYTHONS ?= 3.11 3.12 3.13
.venv-%/.done: pyproject.toml
	PYENV_VERSION=$* python$* -m venv .venv-$*
	.venv-$*/bin/python -m pip install -q --no-compile -e '.[cli,files,tokens,vault,semantic,testing]' pytest-asyncio pytest-timeout pytest-xdist httpx Pillow
	@touch $@

matrix: ## the core's tests under each Python that is installed; PYTHONS="3.11 3.13" names others
	@found=0; for version in $(PYTHONS); do \
	  if ! PYENV_VERSION=$$version python$$version -c "" 2>/dev/null; then echo "== Python $$version is not installed: left out"; continue; fi; \
	  echo "== Python $$version"; found=1; \
	  $(MAKE) --no-print-directory .venv-$$version/.done || exit 1; \
	  .venv-$$version/bin/python -m pytest -q -n 2 --dist loadfile $(CORE) || exit 1; \
	done; test $$found = 1 || { echo "none of Python $(PYTHONS) is installed"; exit 1; }

wheel-test: $(VENV)/.test ## build sdist and wheel, run the sdist's tests, try the wheel in a bare environment of each Python, list what it brings
	rm -rf build/release build/sdist build/sbom
	$(BIN)/python -m build --no-isolation --outdir build/release . >/dev/null
	$(BIN)/check-wheel-contents build/release
	mkdir -p build/sdist build/sbom
	tar -xf build/release/*.tar.gz -C build/sdist --strip-components=1
	cd build/sdist && $(CURDIR)/$(BIN)/python -m pytest -q -n 2 -m "not hypothesis" $(QUICK) tests/test_release.py
	@wheel=$$(ls build/release/*.whl); version=$$(basename $$wheel | cut -d- -f2); found=0; \
	for python in $(PYTHONS); do \
	  if ! PYENV_VERSION=$$python python$$python -c "" 2>/dev/null; then echo "== Python $$python is not installed: left out"; continue; fi; \
	  found=1; bare=build/bare-$$python; rm -rf $$bare; \
	  PYENV_VERSION=$$python python$$python -m venv $$bare || exit 1; \
	  $$bare/bin/python -m pip install -q --disable-pip-version-check --no-compile "$$PWD/$$wheel" || exit 1; \
	  $$bare/bin/python -I tests/try_wheel.py $$version || exit 1; \
	  $(BIN)/cyclonedx-py environment $$bare -o build/sbom/python-$$python.cdx.json || exit 1; \
	  $$bare/bin/python -m pip install -q --disable-pip-version-check --no-compile "$$PWD/$$wheel[cli]" || exit 1; \
	  $$bare/bin/python -I tests/try_wheel.py $$version cli || exit 1; \
	done; test $$found = 1 || { echo "none of Python $(PYTHONS) is installed"; exit 1; }

release-check: $(VENV)/.test ## what is still to be done before VERSION=n can be published
	$(BIN)/python tests/release.py $(VERSION)

bench: $(VENV)/.test ## ratios measured side by side
	for script in $(filter-out benchmarks/pii_corpus.py benchmarks/pii_template_sets.py benchmarks/quality.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done
	$(BIN)/ctxguard bench --with benchmarks.peers

goldens: $(VENV)/.test ## rewrite what the default policy leaves of the small sessions in tests/quality; read the change
	$(BIN)/python tests/quality/goldens.py

derived: $(VENV)/.test ## derive anew what is read of the rules' expressions when a process starts, after a change of rules or words
	$(BIN)/python tests/pii/derived.py

RECORDINGS ?= ../shared/data/transcripts
QUALITY ?= --baseline benchmarks/quality.json # --write-baseline instead writes the figures anew
quality: $(VENV)/.test ## what stays of recorded and of invented sessions, by both judges, against benchmarks/quality.json; RECORDINGS=folder
	$(BIN)/python benchmarks/quality.py invented $(wildcard $(RECORDINGS)) --calls 6 $(QUALITY)

NPM_CLIENTS := node@22 @openai/codex@0.169.0 @anthropic-ai/claude-code@2.1.197 @google/gemini-cli@0.61.0 @qwen-code/qwen-code@0.15.10 opencode-ai@1.18.33 cline@3.0.65
PIP_CLIENTS := llm==0.32.1 aider-chat
CLIENTS ?= # those to run; all of them if none are named
CLIENTS_AT ?= $(or $(TMPDIR),/tmp)/ctxguard-clients
clients: $(VENV)/.test ## run real clients from npm and PyPI through the guard, against a strict provider on loopback
	mkdir -p $(CLIENTS_AT)/bin
	npm install --prefix $(CLIENTS_AT) --no-audit --no-fund --loglevel=error $(NPM_CLIENTS)
	for name in node codex claude gemini qwen opencode cline; do ln -sf ../node_modules/.bin/$$name $(CLIENTS_AT)/bin/; done
	for name in $(PIP_CLIENTS); do at=$(CLIENTS_AT)/$${name%%=*}; test -d $$at || { $(PYTHON) -m venv $$at && $$at/bin/pip install -q $$name; } || exit 1; done
	ln -sf ../llm/bin/llm ../aider-chat/bin/aider $(CLIENTS_AT)/bin/
	unshare -rn sh -c 'ip link set lo up && exec $(BIN)/python tests/clients/run.py --bin $(CLIENTS_AT)/bin $(CLIENTS)'

docs: $(VENV)/.docs ## build the documentation into site/; warnings are errors
	$(BIN)/python docs/scripts/before_after.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.notebooks: pyproject.toml | $(BIN)/python
	$(PIP) install --no-compile -e '.[all,notebooks]'
	@touch $@

notebooks: $(VENV)/.notebooks ## open the notebooks in JupyterLab
	$(BIN)/jupyter lab --notebook-dir notebooks

notebook-pages: $(VENV)/.docs ## run every notebook and render it to HTML, in build/notebooks
	$(BIN)/jupyter nbconvert --to html --execute --output-dir build/notebooks notebooks/*.ipynb

outputs: $(VENV)/.test ## run the notebooks that are committed with their outputs, and keep what they show
	$(BIN)/python tests/notebook_outputs.py

format: $(VENV)/.test ## rewrite the sources in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what was built, .venv too
	rm -rf $(VENV) .venv-* build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

.PHONY: help demo clients test test-all quick test-without-recordings cover types layers test-durable test-oldest test-adk test-crewai test-litellm test-newest matrix wheel-test release-check replay-all hunt bench goldens derived quality docs notebooks notebook-pages outputs format clean
