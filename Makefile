# The two commands of the README are `make demo` and `make test`; CI runs `make check` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

# of `make faults` and `make power-loss`
SECONDS := 60
SEED := 1
TRIALS := 300
# of `make ledger-model`: calls, and branches of the ledger's scripts that may be left out: never more than today
STEPS := 100000
NOT_TAKEN := 12
# of `make coverage`: lines and branches of shardsift/fleet in percent, never less than today
FLEET_COVERAGE := 98
# of `make test` and `make coverage`
EVERYDAY := not slow and not faults and not wheel

# of `make test-light`: the tests that need no torch
LIGHT_TESTS := tests/integration/test_embedded_redis.py tests/integration/ledger \
  tests/integration/finalizer tests/integration/outputs tests/integration/inputs \
  $(addprefix tests/integration/test_,dispatch.py filter.py status.py workers.py) \
  $(addprefix tests/unit/test_,demo_data.py destination.py message.py python_keywords.py settings.py shard.py spec.py storage_errors.py)

.PHONY: install demo dist test test-light test-wheel test-faults test-slow test-containers test-lowest release-check coverage faults power-loss parity ledger-model \
  check golden format docs site size bench bench-ledger
install: .venv/dev.installed  ## everything a developer needs, into .venv

demo: .venv/demo.installed    ## the main job on real text with a real small model, offline
	$(BIN)/producer demo

test: install                 ## the everyday tests, four at a time: many of them wait for processes
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder --durations 40 -m "$(EVERYDAY)"

test-light: .venv-light/installed  ## the control side, without torch, on any Python: make test-light PYTHON=python3.13
	.venv-light/bin/python -m pytest -p no:cacheprovider $(LIGHT_TESTS)

dist: .venv-light/installed   ## the source distribution, and the wheel that is built from it, into dist/
	rm -rf dist
	.venv-light/bin/python -m build

test-wheel: dist              ## the wheel without the tree: its files, every command's help on three Pythons, the README's first run
	.venv-light/bin/python -m pytest -p no:cacheprovider -m wheel --timeout 1800 tests/release

test-faults: install          ## the faults that `make test` leaves out: each of some dozens, put into a fleet of its own
	$(BIN)/python -m pytest --numprocesses 2 -m faults

test-slow: install            ## what is too long for every day: the demo, the tutorial, memory, the benchmarks, each family of models (2,000 texts, labels, passages), a compiled model, waves by xet
	$(BIN)/python -m pytest -m slow --timeout 1200
	$(BIN)/python -m pytest -m "$(EVERYDAY)" --hypothesis-profile random $$(grep -rl 'from hypothesis' tests/unit tests/integration)

test-containers: install      ## images and docker-compose.yml on a real Docker engine of its own; needs root: make test-containers CONTAINERS='--keep FOLDER'
	PYTHONPATH=tests:. $(BIN)/python -m containers $(CONTAINERS)

release-check: check test test-wheel test-slow test-faults  ## all tests, before a release: about an hour

test-lowest: .venv-lowest/installed  ## unit and integration tests with the lowest versions that pyproject.toml allows
	.venv-lowest/bin/python -m pytest -p no:cacheprovider --numprocesses 2 -W ignore::DeprecationWarning \
	  -m "not slow and not faults" tests/unit tests/integration

coverage: install             ## which branches of the product the everyday tests take; processes that they start count too
	$(BIN)/coverage run -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder --timeout 900 -m "$(EVERYDAY)" \
	  -k "not test_help_comes_in_under_a_second"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --sort=cover
	$(BIN)/coverage report --include='shardsift/fleet/*' --format=total --fail-under=$(FLEET_COVERAGE)

faults: install               ## run after run in a storm of kills: make faults SECONDS=2700 SEED=2 CHAOS='--min-faults 300'
	PYTHONPATH=tests:. $(BIN)/python -m chaos --seconds $(SECONDS) --seed $(SEED) $(CHAOS)

power-loss: install           ## run after run, in each of which the power of Redis fails: ten minutes
	PYTHONPATH=tests:tests/inject:. $(BIN)/python -m chaos.power_loss --trials $(TRIALS) --seed $(SEED) $(CHAOS)

GOLDEN_TESTS := $(addprefix tests/integration/,test_status.py test_metrics.py finalizer/test_finalizer_card.py)

PARITY_TESTS := $(addprefix tests/integration/test_,families.py ways_to_read.py)

parity: install               ## how close float32 scores are to those of transformers, as a table: five minutes
	rm -f parity.jsonl
	SHARDSIFT_TEST_PARITY=parity.jsonl $(BIN)/python -m pytest -q -m "slow or not slow" $(PARITY_TESTS)
	PYTHONPATH=tests:. $(BIN)/python -m support.parity parity.jsonl

ledger-model: install         ## random calls to the ledger and to a model of it, which must agree, and the branches that they take; six minutes
	PYTHONPATH=tests:. $(BIN)/python -m support.ledger_machine --steps $(STEPS) --seed $(SEED) --most-not-taken $(NOT_TAKEN)

check: install                ## form, types, layers, generated docs, the links of the site, deployment files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry shardsift producer worker
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/build_site.py
	$(BIN)/docker-compose --profile '*' config --quiet
	$(BIN)/hadolint ops/images/Dockerfile
	$(BIN)/shellcheck ops/slurm/worker.sh
	$(BIN)/shellcheck --shell sh ops/compose/init.sh
	$(BIN)/kubernetes-validate --strict --quiet ops/kubernetes/namespace.yaml ops/kubernetes/finalizer.yaml

bench: install                ## the scorer against what it replaces, on this machine's CPU: minutes
	$(BIN)/python -m benchmarks.scorer --device cpu $(BENCH)

bench-ledger: install         ## the ledger with 100,000 shards and 200 simulated workers: about ten minutes
	$(BIN)/python -m benchmarks.ledger $(BENCH)

golden: install               ## write tests/golden again; read what has changed before you commit it
	SHARDSIFT_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q -p no:randomly $(GOLDEN_TESTS)

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

size: install                 ## lines of code, options and words of docs
	PYTHONPATH=tests:. $(BIN)/python -m support.size

docs: install                 ## regenerate docs/cli.md and docs/settings.md
	$(BIN)/python docs/generate.py

site: .venv/site.installed    ## the documentation as a site, into build/site/html; broken links are errors
	$(BIN)/python docs/build_site.py

.venv-light/installed: pyproject.toml constraints.txt
	test -x .venv-light/bin/python || $(PYTHON) -m venv .venv-light
	.venv-light/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[light-dev]'
	touch $@

.venv-lowest/installed: pyproject.toml constraints.txt tests/support/lowest_versions.py
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python tests/support/lowest_versions.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --constraint .venv-lowest/constraints.txt --editable '.[dev]'
	touch $@

.venv/%.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@
