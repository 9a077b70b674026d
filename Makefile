# make run | test | check | bench are all anyone must remember. Each sets up
# what it needs; a step of the set-up runs again only when its inputs changed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Each environment of Python has its own: `make VENV=.cache/python3.13 PYTHON=python3.13 unit` leaves .venv as it is.
STAMPS := $(if $(filter .venv,$(VENV)),.cache/stamps,$(VENV).stamps)
PURE   := tests/bayeux tests/delivery tests/limits tests/qos tests/topics
# What pytest loads for other tests, and would ask before and after each of these.
UNUSED := aiohttp valkey logging rerunfailures xdist junitxml pastebin doctest legacypath threadexception stepwise setuponly setupplan \
	faulthandler debugging
TESTERS ?= 2
# The longest level, whose tests wait most of their time: it is what the whole run lasts.
SERVER_TESTERS ?= 3
# A second session of Spark starts for a second of these. Beside other levels one does: the processors are busy then.
PIPELINE_TESTERS ?= 2
# Most faults wait more than half of their time. Their limits of time grow with the number of testers (tests/patience.py).
FAULT_TESTERS ?= 4
FAULT_NODES ?= 3
# Per cent of what the tests that count messages, frames, dead letters or runs of applications do: all of it takes an hour more.
FAULT_VOLUME ?= 20
PARALLEL := --dist worksteal --numprocesses
# Servers, browsers and Java share the machine with much else. What passes only in a later try is listed at the end of the run.
TRIES := --reruns 2 --max-suite-reruns 20 --rerun-show-tracebacks
# Whole jobs of Spark take minutes each, and what runs earlier versions needs the history: `make faults` runs them.
LONG   := tests/faults/test_mixed_versions.py tests/upgrade/test_clients.py tests/pipeline/test_tables_of_releases.py \
	tests/pipeline/test_found_faults.py tests/pipeline/test_ground_truth.py \
	tests/pipeline/test_cluster.py tests/pipeline/test_retention.py tests/pipeline/test_gold.py \
	tests/pipeline/test_object_store.py tests/pipeline/test_live_killed.py tests/pipeline/test_make_report.py \
	tests/pipeline/test_redrive_killed.py
# With another program for all stores (`make test-store STORE=redis-server`), the level `store` runs, and what kills server and store
# while messages are published, acknowledged, rejected and sent again.
STORE ?=
KILLED := $(addprefix tests/faults/,test_server_killed.py test_store_killed.py test_letters_killed.py test_jobs_killed.py)

# `make faults`: what measures delays, or keeps the whole machine busy, has it to itself; what only computes, and whole jobs of Spark,
# take a processor each.
ALONE    := $(addprefix tests/faults/,test_abuse.py test_costs.py test_fuzz.py test_fuzz_sockets.py test_letter_flood.py test_receivers.py) \
	tests/pipeline/test_planted.py
COMPUTED := $(PURE) tests/storage/test_interleavings.py tests/broker/test_shooting.py \
	tests/broker/mailboxes/test_max_open_at_random.py tests/broker/subscriptions/test_filters_at_random.py
# The longest tests come first, so that no tester is left with one at the end.
SHOT     := tests/faults/test_workers.py tests/faults/test_nodes_cut_off.py tests/faults/test_nodes_at_fault.py \
	tests/browser/test_nodes_killed.py tests/faults \
	tests/functional/test_abandonment.py tests/functional/test_bad_input.py tests/interop/test_cut_connections.py $(ALONE:%=--ignore %) $(LONG:%=--ignore %)
# tests/faults/history.py runs it; without Go it is not there, and nothing else needs Go.
CHECKER  := $(CURDIR)/.cache/history-checker
SHOOT    := FAULTS=full FAULT_VOLUME=$(FAULT_VOLUME) HISTORY_CHECKER=$(CHECKER) $(BIN)/pytest -p tests.faults.report --timeout 1500 --dist load --maxschedchunk 1

# A level runs with what its target declares, whatever else is installed: tests/declared.py.
PYTEST = DECLARED="$(notdir $(filter $(STAMPS)/%,$^))" $(BIN)/pytest -p tests.declared

# One step after another, also with `make -j`: no two installations at once, and none while tests run. What may run side by side was
# prepared before, and says so.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif
EACH := --no-print-directory --keep-going
AT_ONCE := $(EACH) SIDE_BY_SIDE=yes --output-sync=target --jobs

# The tests start hundreds of servers, and compiling the code again takes a sixth of each start.
export PYTHONDONTWRITEBYTECODE :=

PYTHON_READY   := $(STAMPS)/python
REDIS_READY    := $(STAMPS)/redis
PAGES_READY    := $(STAMPS)/pages
INTEROP_READY  := $(STAMPS)/interop
CHROMIUM_READY := $(STAMPS)/chromium
PROGRAMS_READY := $(STAMPS)/test-programs
PACKAGE_READY  := $(STAMPS)/package
PIPELINE_READY := $(STAMPS)/pipeline
REPORT_READY   := $(STAMPS)/report
DOCS_READY     := $(STAMPS)/docs
PROXIES_READY  := $(STAMPS)/proxies
S3_READY       := $(STAMPS)/object-store
EXAMPLES_READY := $(STAMPS)/examples
JAVA_READY     := $(STAMPS)/java
RELEASE_READY  := $(STAMPS)/release
RELEASE_VENV   := $(if $(filter .venv,$(VENV)),.cache/release,$(VENV).release)
# What `make test` needs, in this order.
TEST_READY     := $(PROGRAMS_READY) $(CHROMIUM_READY) $(PYTHON_READY) $(PIPELINE_READY) $(DOCS_READY) $(PAGES_READY) $(INTEROP_READY) $(PACKAGE_READY)

COMPILE := UV_CUSTOM_COMPILE_COMMAND="make lock" .cache/uv/bin/uv pip compile --universal --upgrade --quiet --generate-hashes
LOCK := $(COMPILE) pyproject.toml
S3 := tests/pipeline/object_store
INSTALL := $(BIN)/python tools/install.py --requirement
NPM := npm ci --no-audit --no-fund --loglevel=error --prefix

.DEFAULT_GOAL := help
.PHONY: help run pages report test prepare prepare-python prepare-pythons levels unit test-pure test-unit store-program test-store test-pythons test-server test-browser test-pipeline test-deploying test-java test-examples faults faults-checker faults-shot faults-computed faults-alone faults-long faults-nodes faults-redis check format docs tables bench java-classes wheel release lock clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(PYTHON_READY) $(PAGES_READY)  ## Serve the chat at http://127.0.0.1:8080/chat/
	@echo "serving; Ctrl+C ends it"
	@$(BIN)/crewel serve

pages: $(PAGES_READY)  ## Fetch the browser client, for pages and for a package

# An environment of its own, without what the tests need, unless that is there already. Where the store is, settings say.
REPORT_VENV := $(if $(wildcard $(PIPELINE_READY)),$(VENV),.cache/pipeline)
report: $(if $(wildcard $(PIPELINE_READY)),,$(REPORT_READY))  ## Write report.html of a running server; OPTIONS="--from 2h" and others
	@$(REPORT_VENV)/bin/crewel pipeline report --html report.html $(OPTIONS)
	@echo "report.html: a page for a browser"

# The levels of the tests, each with what it needs: tests/levels.py tells which test is of which.
# Most tests of servers and browsers wait for something most of their time, so two levels share the machine; three take each other's
# time, and the pipeline, which has one process, ends last. The order matters: the longest go first.
test:  ## Run all tests: the quick ones, then two levels at a time; a level that fails does not keep the others from running
	@$(MAKE) $(EACH) prepare
	@$(MAKE) $(EACH) unit levels

# Nothing is installed while tests run. All programs that are missing are named, not only the first.
prepare: $(TEST_READY) $(if $(CI),prepare-pythons)  ## Install all that make test needs, one step after another
	@echo "all that the tests need is there"

levels: $(TEST_READY)
	@echo "tests of pipeline, store, servers and browsers, two levels at a time: each prints its results at its end"
	@$(MAKE) $(AT_ONCE) 2 PIPELINE_TESTERS=1 test-pipeline test-server test-browser test-store $(if $(CI),test-pythons)

# Side by side: two processes that each read half of the tests are quicker than two that share them and both read all.
unit: $(PYTHON_READY)  ## Run the tests that start no process and open no connection
	@$(MAKE) $(AT_ONCE) 2 test-pure test-unit

test-unit: $(PYTHON_READY)
	$(PYTEST) --quiet -m unit

# The other Pythons that pyproject.toml promises, as far as they are here: tools/pythons. `.ci/run` takes the newest of them
# only: what works there and on the oldest one works between, as a rule, and a release tries all.
ONLY_NEWEST = $(if $(CI),| tail -n 1)

test-pythons:  ## Run the quick tests on each other Python that is found, in an environment of its own
	@$(MAKE) $(EACH) prepare-python $(addprefix test-python-,$(shell tools/pythons $(PYTHON) $(ONLY_NEWEST)))

prepare-pythons:
	@$(MAKE) $(EACH) prepare-python $(addprefix prepare-python-,$(shell tools/pythons $(PYTHON) 2>/dev/null $(ONLY_NEWEST)))

ON_PYTHON = $(EACH) SIDE_BY_SIDE= PYTHON="$$(tools/pythons --path $*)" VENV=.cache/python$*

test-python-%:
	@echo "the quick tests on Python $*"
	@$(MAKE) $(ON_PYTHON) test-pure test-unit

prepare-python-%:
	@$(MAKE) $(ON_PYTHON) prepare-python

prepare-python: $(PYTHON_READY)
	@:

test-store: $(PYTHON_READY) $(if $(STORE),store-program $(INTEROP_READY))  ## Run the tests of the store; STORE=redis-server chooses another one
	$(IN_STORE) $(PYTEST) $(PARALLEL) $(TESTERS) $(TRIES) -m store
	$(if $(STORE),$(IN_STORE) $(PYTEST) $(PARALLEL) $(TESTERS) $(TRIES) $(KILLED))

IN_STORE = $(if $(STORE),CREWEL_TEST_STORE=$(STORE))

store-program:
	@tools/need $(STORE) "the tests with another store" $(notdir $(STORE))
	@$(STORE) --version

test-server: $(PYTHON_READY) $(PAGES_READY) $(INTEROP_READY) $(PROGRAMS_READY)  ## Run the tests of whole servers, also with other clients
	$(PYTEST) $(PARALLEL) $(SERVER_TESTERS) $(TRIES) -m server $(LONG:%=--ignore %) --ignore tests/deploying --ignore tests/examples

test-browser: $(PYTHON_READY) $(PAGES_READY) $(INTEROP_READY) $(CHROMIUM_READY) $(PACKAGE_READY) $(DOCS_READY)  ## Run the tests in a browser
	$(PYTEST) $(PARALLEL) $(TESTERS) $(TRIES) -m browser

test-pipeline: $(PYTHON_READY) $(PIPELINE_READY)  ## Check the types of the pipeline, and run its tests
	$(BIN)/mypy
	$(PYTEST) --dist loadfile --numprocesses $(PIPELINE_TESTERS) $(TRIES) -m pipeline $(LONG:%=--ignore %)

test-deploying: $(PYTHON_READY) $(PAGES_READY) $(INTEROP_READY) $(PROXIES_READY)  ## Run the documented files of proxies, and the move from CometD Java
	$(BIN)/pytest --quiet tests/deploying

test-java: $(PYTHON_READY) $(JAVA_READY)  ## Run the tests of the Java client, and put it where Maven finds it
	CREWEL=$(CURDIR)/$(BIN)/crewel mvn --batch-mode --no-transfer-progress --file clients/java -Prelease install

# It takes minutes, and Maven, which `make test` does without: so the Java client is tested here.
test-examples: $(PYTHON_READY) $(EXAMPLES_READY)  ## Run the Java client, and the example projects in Node.js, Java and Next.js; the others are part of make test
	$(BIN)/pytest --quiet tests/examples

# Each of the passes ends after its time, and writes what it knows; the next one runs whatever its result was.
faults: $(PROGRAMS_READY) $(PYTHON_READY) $(PIPELINE_READY) $(S3_READY) $(PAGES_READY) $(INTEROP_READY) $(CHROMIUM_READY) $(REDIS_READY)  ## Shoot at server and store, for at most 192 minutes
	@FAULTS_BEGAN=$$(date +%s) $(MAKE) $(EACH) faults-checker faults-shot faults-computed faults-alone faults-long faults-nodes faults-redis; \
	status=$$?; $(BIN)/python -m tests.faults.report $$status; exit $$status

faults-checker:
	@rm -f $(CHECKER)
	@if command -v go >/dev/null; then cd tests/faults/checker && go vet . && go test . && go build -buildvcs=false -o $(CHECKER) .; \
	else echo "missing: go; the checker of histories does not run, and the ledgers do (Debian and Ubuntu: apt-get install golang-go)"; fi

faults-shot:
	$(SHOOT) --numprocesses $(FAULT_TESTERS) --session-timeout 4200 $(SHOT)

faults-computed:
	$(SHOOT) --numprocesses 2 --session-timeout 400 $(COMPUTED)

faults-alone:
	$(SHOOT) --numprocesses 0 --session-timeout 2400 -s $(ALONE)

faults-long:
	$(SHOOT) --dist loadfile --numprocesses 2 --session-timeout 2400 $(LONG)

# The tests of one server, with several nodes in its place: tests/functional/on_several_nodes.py names those that need not hold.
faults-nodes:
	CREWEL_TEST_NODES=$(FAULT_NODES) $(BIN)/pytest --quiet $(PARALLEL) $(SERVER_TESTERS) --timeout 180 --session-timeout 1200 tests/functional

# Redis itself in the place of Valkey.
faults-redis:
	redis-server --version
	CREWEL_TEST_STORE=redis-server $(BIN)/pytest --quiet $(PARALLEL) $(SERVER_TESTERS) --timeout 180 --session-timeout 600 -m store
	CREWEL_TEST_STORE=redis-server $(BIN)/pytest --quiet $(PARALLEL) $(SERVER_TESTERS) --timeout 180 --session-timeout 300 $(KILLED)

test-pure: $(PYTHON_READY)  ## Run the tests of the pure packages, which must cover every branch
	$(PYTEST) --quiet $(PURE) -p tests.branches $(UNUSED:%=-p no:%)

# The types of the pipeline need Spark: `make test-pipeline` checks them.
check: $(PYTHON_READY)  ## Check format, style, types, import directions, generated tables and prose
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy --exclude '^app/crewel/pipeline/'
	$(BIN)/lint-imports --cache-dir .cache/import_linter
	$(BIN)/python tools/sync_client.py --check
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/prose.py
	$(BIN)/python docs/stock_prose.py

format: $(PYTHON_READY)  ## Format the code and fix what can be fixed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: tables $(DOCS_READY)  ## Write the generated tables of docs/ again, and build the site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "$(BIN)/python -m http.server --directory build/site 8000 serves it at http://127.0.0.1:8000/"

tables: $(PYTHON_READY)
	$(BIN)/python tools/sync_client.py
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/stable.py

bench: $(PYTHON_READY)  ## Measure; docs/explanation/performance.md tells what
	$(BIN)/python bench/run.py

java-classes: $(PYTHON_READY) $(PIPELINE_READY)  ## After a change of Spark's version: note again which classes Java loads
	$(BIN)/python tools/java_classes.py

wheel: $(RELEASE_READY) $(PAGES_READY)  ## Build a wheel, with the browser client, in dist
	@rm -f dist/crewel-*.whl
	@$(RELEASE_VENV)/bin/python -m build --wheel --outdir dist >/dev/null
	@ls dist/crewel-*.whl

release: $(RELEASE_READY) $(DOCS_READY)  ## Build and try all that a release publishes, and publish nothing; OPTIONS="--without image"
	@VENV=$(VENV) $(RELEASE_VENV)/bin/python tools/release/release.py $(OPTIONS)

lock: $(PYTHON_READY)  ## Resolve the Python dependencies again
	$(BIN)/python tools/install.py
	$(LOCK) --extra test --output-file requirements.lock
	$(LOCK) --constraint requirements.lock --no-annotate --output-file requirements-server.lock
	$(LOCK) --extra docs --constraint requirements.lock --no-annotate --output-file requirements-docs.lock
	$(LOCK) --extra pipeline --constraint requirements.lock --no-annotate --output-file requirements-pipeline.lock
	$(COMPILE) $(S3)/requirements.in --constraint requirements.lock --no-annotate --output-file $(S3)/requirements.lock
	$(COMPILE) tools/lock/requirements.in --no-annotate --output-file tools/lock/requirements.lock
	$(COMPILE) tools/release/requirements.in --no-annotate --output-file tools/release/requirements.lock

clean:  ## Remove everything that make made
	rm -rf $(VENV) $(RELEASE_VENV) .cache build dist report.html app/crewel.egg-info static/node_modules static/vendor tools/site/node_modules tests/interop/node_modules browser/example/node_modules examples/node/node_modules examples/next/node_modules examples/next/.next examples/java/target examples/java-worker/target clients/java/target

$(STAMPS):
	@mkdir -p $@

# Asked for a Python, never test another one that is set up already.
ifneq ($(filter command environment,$(firstword $(origin PYTHON))),)
$(PYTHON_READY): | same-python
endif
.PHONY: same-python
same-python:
	@tools/venv --check $(VENV) $(PYTHON)

$(PYTHON_READY): requirements.lock pyproject.toml tools/venv | $(STAMPS)
	@tools/need $(PYTHON) "everything" python3 python3-venv
	@echo "setting up Python in $(VENV): once, a minute or two"
	@tools/venv $(VENV) $(PYTHON)
	@touch $@

# React, Vite and TypeScript: what the example of @crewel/client is built with.
$(PACKAGE_READY): browser/example/package.json browser/example/package-lock.json | $(STAMPS)
	@tools/need npm "the test of the browser package" nodejs npm
	@echo "installing the packages of browser/example from npm: once, some seconds"
	@$(NPM) browser/example >/dev/null
	@touch $@

# Debian keeps the server of PostgreSQL out of the path; the test knows where. The documentation uses the others.
$(PROGRAMS_READY): tools/need | $(STAMPS)
	@tools/need postgres,pg_ctlcluster "the tests of the inbox" postgresql
	@tools/need curl "the tests of the documentation" curl
	@tools/need git "the tests of the documentation" git
	@tools/need promtool "the tests of the alert rules" prometheus
	@touch $@

# PySpark comes as source and takes half a gigabyte; the server does not need it.
$(PIPELINE_READY): requirements-pipeline.lock $(PYTHON_READY) | $(STAMPS)
	@tools/need java "the data pipeline (PySpark)" openjdk-17-jre-headless,default-jre-headless
	@echo "installing the pipeline in $(VENV): once, one to three minutes"
	@$(INSTALL) requirements-pipeline.lock
	@touch $@

$(REPORT_READY): requirements-pipeline.lock pyproject.toml tools/venv | $(STAMPS)
	@tools/need $(PYTHON) "everything" python3 python3-venv
	@tools/need java "the data pipeline (PySpark)" openjdk-17-jre-headless,default-jre-headless
	@echo "setting up the pipeline in .cache/pipeline: once, one to three minutes"
	@tools/venv .cache/pipeline $(PYTHON) requirements-pipeline.lock
	@touch $@

# A server that imitates S3, and the jars with which Spark reaches it: 19 MB, in .cache/object-store.
$(S3_READY): $(S3)/requirements.lock $(S3)/pom.xml $(PIPELINE_READY)
	@tools/need mvn "the test of tables in an object store" maven
	@echo "installing a server that imitates S3 in $(VENV), and the jars for it: once, a minute"
	@$(INSTALL) $(S3)/requirements.lock
	mvn --quiet --batch-mode --file $(S3)/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.cache/object-store
	@touch $@

$(RELEASE_READY): tools/release/requirements.lock tools/venv | $(STAMPS)
	@tools/need $(PYTHON) "everything" python3 python3-venv
	@tools/venv $(RELEASE_VENV) $(PYTHON) tools/release/requirements.lock
	@touch $@

# What builds the site; the tests do without it.
$(DOCS_READY): requirements-docs.lock tools/site/package.json tools/site/package-lock.json $(PYTHON_READY)
	@tools/need npm "the search of the site" nodejs npm
	@echo "installing what builds the site in $(VENV), and its search from npm: once, some seconds"
	@$(INSTALL) requirements-docs.lock
	@$(NPM) tools/site >/dev/null
	@touch $@

$(EXAMPLES_READY): examples/node/package.json examples/node/package-lock.json examples/next/package.json examples/next/package-lock.json $(JAVA_READY) $(CHROMIUM_READY)
	@tools/need npm "the examples in Node.js and with Next.js" nodejs npm
	$(NPM) examples/node
	$(NPM) examples/next
	@touch $@

$(JAVA_READY): tools/need | $(STAMPS)
	@tools/need javac "the Java client" openjdk-17-jdk-headless,default-jdk-headless
	@tools/need mvn "the Java client" maven
	@touch $@

$(PROXIES_READY): tools/need | $(STAMPS)
	@tools/need nginx "the tests of the documented proxies" nginx
	@tools/need caddy "the tests of the documented proxies" caddy
	@tools/need haproxy "the tests of the documented proxies" haproxy
	@tools/need javac "the test of the move from CometD Java" openjdk-17-jdk-headless,default-jdk-headless
	@tools/need mvn "the test of the move from CometD Java" maven
	@touch $@

$(PAGES_READY): static/package.json static/package-lock.json | $(STAMPS)
	@tools/need npm "the browser client" nodejs npm
	@echo "installing the browser client from npm: once, some seconds"
	@$(NPM) static >/dev/null
	@touch $@

$(INTEROP_READY): tests/interop/package.json tests/interop/package-lock.json | $(STAMPS)
	@tools/need node "the interoperability tests" nodejs
	@tools/need npm "the interoperability tests" npm
	@echo "installing the clients of other projects from npm: once, some seconds"
	@$(NPM) tests/interop >/dev/null
	@touch $@

$(REDIS_READY): tools/need | $(STAMPS)
	@tools/need redis-server "the tests of the store with Redis" redis-server
	@touch $@

# Without its own windows it is quicker: tests/browser/conftest.py. Where that can not be installed, any other one does.
$(CHROMIUM_READY): tools/need | $(STAMPS)
	@tools/need chromium-headless-shell "the browser tests" chromium-headless-shell,chromium fonts-dejavu-core 2>/dev/null || \
		tools/need chromium,chromium-browser,google-chrome "the browser tests" chromium fonts-dejavu-core
	@touch $@
