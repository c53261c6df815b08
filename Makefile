# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export RAG_EVAL_DATA ?= $(CURDIR)/data
export DAGSTER_HOME := $(RAG_EVAL_DATA)/dagster_home
unexport PYTHONDONTWRITEBYTECODE # every command, worker and daemon would compile the package anew

.PHONY: demo test verify lint ui bench lock clean help

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (torch and friends: a few minutes the first time)"
	@# torch first and by its exact version: where a CPU wheel of it is at hand it is taken; see README for the CPU index
	@# not compiled: what is used compiles itself at its first use, the rest is most of it
	@$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	@$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP) ## run the pipeline on the shipped corpus versions and print the loss waterfalls
	@$(BIN)/rag-eval demo

test: $(STAMP) ## unit tests and one small end to end
	@RAG_EVAL_ENCODER_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not full" rag_eval_pipeline_tests

verify: $(STAMP) ## everything at full size: generated inputs, kills, browser, benchmarks' figures
	@RAG_EVAL_PROFILE=full RAG_EVAL_ENCODER_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile rag_eval_pipeline_tests

lint: $(STAMP) ## ruff, types, import contracts
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

ui: $(STAMP) ## Dagster's UI on http://localhost:3000
	@mkdir -p $(DAGSTER_HOME) && cp dagster.yaml $(DAGSTER_HOME)/dagster.yaml
	@$(BIN)/dagster dev -h 127.0.0.1 -p $(or $(PORT),3000) -w workspace.yaml

bench: $(STAMP) ## ratios against named peers
	@$(BIN)/python -m rag_eval_pipeline_tests.bench

lock: $(STAMP) ## write constraints.txt from what is installed
	@$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt

clean: ## remove what runs made; corpora stay
	@rm -rf data/warehouse data/memo data/dagster_home data/rag_eval.duckdb*
