# Every target does its own set-up; `make help` lists them. Python >= 3.11 and make are all that must be there.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
UV := .cache/uv/bin/uv
RUN := .venv/bin/
CONTROL_PLANE := .cache/control-plane/bin/kube-apiserver
# What `make conformance` runs of another release than the gate.
CONFORMANCE := etcd kwok kube-apiserver kube-controller-manager kube-scheduler e2e
comma := ,
N ?= 500
SEED ?= 1
RUNS ?= 3
MINUTES ?= 600
OUT ?= docs/performance
SBOM ?= dist/gangsched.cdx.json
IMAGE ?= gangsched
BUILD ?= docker build
# What gangsched is measured on: the image and distributions build Python with profile-guided optimization, as kube-scheduler
# is built optimized; pyenv and the like do not, and are about 15 % slower.
BENCH_PYTHON ?= $(shell /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/python3 || echo $(PYTHON))
BENCH := .cache/bench/bin/

.PHONY: help install control-plane prometheus lint types imports unit properties mutants parity e2e real-node faults fault-matrix kills crashes leader-trials test check docs-tables docs-pictures docs-messages packages demo trace bench bench-ingest bench-page bench-start bench-wakeup bench-plan bench-holders bench-completeness bench-memory bench-pools soak bench-writes bench-tenants bench-packing bench-backfill bench-reservation bench-fgd bench-fight sbom audit image image-multiarch release-check release-files kind-demo lock clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(UV):
	@hack/ensure-python.sh $(PYTHON)
	@$(PYTHON) -m venv .cache/uv && .cache/uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9'

PROJECTS := pyproject.toml hack/control-plane/pyproject.toml packages/kubectl-gangsched/pyproject.toml packages/kubernetes-cel/pyproject.toml

.venv/.installed: uv.lock $(PROJECTS) | $(UV)
	@UV_PROJECT_ENVIRONMENT=.venv $(UV) sync --quiet --locked --python $(PYTHON)
	@touch $@

.cache/bench/.installed: uv.lock $(PROJECTS) | $(UV)
	@UV_PROJECT_ENVIRONMENT=.cache/bench $(UV) sync --quiet --locked --group bench --python $(BENCH_PYTHON)
	@touch $@

install: .venv/.installed ## Install the project, editable, with its tools into .venv from uv.lock
	@:

control-plane: ## Build etcd, kube-apiserver, -controller-manager, -scheduler, kwok, kubectl and helm into .cache (once); VERSION=1.32 to 1.35 or 1.37
	@hack/ensure-python.sh $(PYTHON)
	@$(PYTHON) hack/control-plane/build.py $(if $(VERSION),--version '$(VERSION)')

.PHONY: placement-reviews
placement-reviews: install control-plane ## Ask about N=200 generated gangs of SEED, apply each, and compare
	@REVIEW_CASES=$(if $(filter command line,$(origin N)),$(N),200) REVIEW_SEED=$(SEED) \
	$(RUN)pytest -q -o faulthandler_timeout=0 tests/e2e/visibility/test_reviews.py

prometheus: .cache/prometheus/bin/promtool ## Put prometheus and promtool into .cache: those of PATH, else of Debian's package

.cache/prometheus/bin/promtool:
	@hack/ensure-prometheus.sh

lint: install ## Check style and format (ruff)
	@$(RUN)ruff check .
	@$(RUN)ruff format --check --quiet .

.PHONY: lint-workflows
lint-workflows: ## Check the workflows of GitHub (actionlint; with shellcheck, if that is in PATH, their scripts too)
	@$(PYTHON) hack/control-plane/build.py actionlint
	@command -v shellcheck >/dev/null || echo 'shellcheck is not in PATH: the scripts in the workflows are not checked' >&2
	@.cache/control-plane/bin/actionlint

types: install ## Check types (mypy --strict)
	@$(RUN)mypy

imports: install ## Check which package may import which (import-linter)
	@$(RUN)lint-imports

# In three processes, of which one mostly has something to do while another waits. All keep compiled tests: without them
# each takes seconds more to begin.
STATE_TESTS := tests/properties tests/unit/state
CORE_TESTS := tests/unit/api tests/unit/bench tests/unit/core tests/unit/kube tests/unit/model tests/unit/simulate tests/unit/visibility/reviews
unit: install ## Run the tests that need no control plane; about five minutes on two cores
	@export PYTHONDONTWRITEBYTECODE=; status=0; \
	$(RUN)pytest -q $(STATE_TESTS) & state=$$!; \
	$(RUN)pytest -q $(CORE_TESTS) & core=$$!; \
	$(RUN)pytest -q -m 'not e2e and not real_node and not histories and not page' $(patsubst %,--ignore %,$(STATE_TESTS) $(CORE_TESTS) tests/sim) tests packages || \
		status=$$?; \
	wait $$state || status=$$?; wait $$core || status=$$?; exit $$status

.PHONY: histories
histories: install ## Play 200 histories of the whole daemon, and each scenario with its changes together; about three minutes
	@export PYTHONDONTWRITEBYTECODE=; status=0; \
	$(RUN)pytest -q -m histories tests/scenarios & scenarios=$$!; \
	$(RUN)pytest -q tests/sim || status=$$?; wait $$scenarios || status=$$?; exit $$status

properties: install ## 2,000 generated cases of each property, and the long forms of other tests, on two cores
	@export HYPOTHESIS_PROFILE=nightly; status=0; \
	$(RUN)pytest -q --hypothesis-show-statistics tests/properties -k moment & first=$$!; \
	$(RUN)pytest -q --hypothesis-show-statistics -m 'hypothesis or long' tests/properties tests/unit -k 'not moment' || \
		status=$$?; wait $$first || status=$$?; exit $$status

.PHONY: nightly
nightly: properties sentences device-gangs tree-gangs moved-labels lives starts mutants sim parity crashes faults attacks ## What takes hours: more cases and trials than the gate has

.PHONY: lives
lives: install ## Compare the phase of LIVES=10000 random lives of a gang from SEED with an oracle
	@export LIVES=$(or $(LIVES),10000) SEED=$(or $(SEED),1); \
	$(RUN)pytest -q -s -o faulthandler_timeout=0 tests/properties/test_gang_lives.py

mutants: install ## Plant known bugs one by one and see that the tests find each; PART=2/5 for the second fifth
	@$(RUN)python -m tests.mutants.run --part $(or $(PART),1/1)

parity: install control-plane ## Compare N generated pods of SEED with the real kube-scheduler
	@$(RUN)python -m tests.parity --number $(N) --seed $(SEED)

.PHONY: parity-devices
parity-devices: install control-plane ## Compare single pods with ResourceClaims live with kube-scheduler: NUMBER=400 SEEDS="1 2 3"
	@status=0; for seed in $(or $(SEEDS),1 2 3); do \
	$(RUN)python -m tests.parity.devices --number $(or $(NUMBER),400) --seed $$seed || status=$$?; done; exit $$status

.PHONY: next-release
next-release: install control-plane ## CompositePodGroups on an API server of Kubernetes 1.37, the only release that has them
	@$(PYTHON) hack/control-plane/build.py --version 1.37 etcd kube-apiserver
	@$(RUN)pytest -q tests/next_release

.PHONY: support-matrix
support-matrix: install control-plane ## Install, start, refuse and preempt on each release that is built, as a table in docs/install.md; RELEASES="1.35 1.36"
	@$(RUN)python -m tests.support_matrix $(RELEASES)

.PHONY: conformance
conformance: install control-plane ## Kubernetes' own specs of scheduling, with gangsched and with kube-scheduler; SIDE=gangsched FOCUS=regex TABLE=1
	@$(PYTHON) hack/control-plane/build.py --version 1.37 $(CONFORMANCE)
	@$(RUN)python -m tests.conformance $(if $(SIDE),--side '$(SIDE)') $(if $(FOCUS),--focus '$(FOCUS)') $(if $(TABLE),--table)

e2e: install control-plane prometheus ## Run the tests on a real etcd and kube-apiserver
	@status=0; \
	$(RUN)pytest -q -m 'e2e and not alone' --numprocesses 3 --dist loadfile || status=$$?; \
	$(RUN)pytest -q -m 'e2e and alone' || status=$$?; exit $$status

DEVICE_CRASHES := tests/e2e/test_device_crash.py tests/e2e/test_device_pools.py tests/e2e/test_group_claims.py

crashes: install control-plane ## Kill the scheduler after each write of a preemption, and of a start with devices: CRASH_AFTER=1,2,3
	@CRASH_AFTER=$(or $(CRASH_AFTER),$(shell seq -s, 1 20)) $(RUN)pytest -q -s -k 'crash or a_kill' tests/e2e/test_preemption_crash.py $(DEVICE_CRASHES)

.PHONY: device-kills
device-kills: install control-plane ## Kill the scheduler TIMES=4 times after each write of starts with devices of five kinds, 220 kills in all: half an hour
	@CRASH_AFTER=$(shell seq -s, 1 12) CRASH_TIMES=$(or $(TIMES),4) $(RUN)pytest -q -k a_kill $(DEVICE_CRASHES)

.PHONY: operators
operators: install control-plane ## The real operators of docs/guides and Kueue, built from their modules: what they emit is scheduled
	@$(PYTHON) hack/control-plane/build.py mpi-operator training-operator jobset lws kueue kuberay trainer spark-operator
	@$(RUN)pytest -q -o faulthandler_timeout=0 tests/operators

.PHONY: sim
sim: install ## Play SEEDS=200 histories from SEED=0 on: the whole daemon on a virtual clock, with faults
	@$(RUN)python -m tests.sim --seeds $(or $(SEEDS),200) --first $(if $(filter command line,$(origin SEED)),$(SEED),0) \
	$(if $(SHOW),--show '$(SHOW)')

.PHONY: soak-jobs
soak-jobs: install control-plane ## Real Jobs of a real controller-manager, disturbed in all ways: JOBS=2000 from SEED=0; none may be stuck
	@$(RUN)python -m tests.soak --jobs $(or $(JOBS),2000) --seed $(if $(filter command line,$(origin SEED)),$(SEED),0)

.PHONY: device-gangs
device-gangs: install ## Compare GANGS=8000 random gangs with devices from SEED=0 on with all choices of nodes and devices: 0 may differ
	@$(RUN)python -m tests.properties.device_gangs --gangs $(or $(GANGS),8000) --first $(if $(filter command line,$(origin SEED)),$(SEED),0)

.PHONY: tree-gangs
tree-gangs: install ## Compare TREES=20000 random trees of gangs from SEED=0 on with all choices of children and nodes: 0 may differ
	@$(RUN)python -m tests.properties.tree_gangs --trees $(or $(TREES),20000) --first $(if $(filter command line,$(origin SEED)),$(SEED),0)

.PHONY: moved-labels
moved-labels: install ## Histories in which labels of nodes change, SEEDS=5000 from SEED=0 on: no verdict is refused by the verifier
	@$(RUN)python -m tests.properties.moved_labels --seeds $(or $(SEEDS),5000) --first $(if $(filter command line,$(origin SEED)),$(SEED),0)

START_HISTORIES := starts,claims,kills,kills-with-claims,preemption,claims-with-preemption,kills-with-preemption,all

.PHONY: rests
rests: install ## Histories with rests, SEEDS=10000 from SEED=0 on: nobody sleeps wrongly, and at rest hardly anything is planned
	@$(RUN)python -m tests.properties.rests --seeds $(or $(SEEDS),10000) --first $(if $(filter command line,$(origin SEED)),$(SEED),0)

.PHONY: sentences
sentences: install ## Check each fact of refusals by brute force, SEEDS=20000 from SEED=0 on
	@$(RUN)python -m tests.properties.facts_of --seeds $(or $(SEEDS),20000) --first $(if $(filter command line,$(origin SEED)),$(SEED),0)

.PHONY: headlines
headlines: install ## Print 100 first sentences of conditions and Events, drawn from the scenarios with SEED=51
	@$(RUN)python -m tests.headlines --seed $(if $(filter command line,$(origin SEED)),$(SEED),51)

.PHONY: starts
starts: install ## Histories of trees and gangs: nothing starts in part or sleeps; OF=claims,kills SEEDS=10000 from SEED=0 on
	@for of in $(subst $(comma), ,$(or $(OF),$(START_HISTORIES))); do \
		$(RUN)python -m tests.properties.rests --of $$of --seeds $(or $(SEEDS),10000) \
			--first $(if $(filter command line,$(origin SEED)),$(SEED),0) || exit 1; done

faults: install control-plane ## Trials through the fault proxy in their long form: FAULT_SEEDS=1,2,3 FAULT_HITS=50
	@FAULT_SEEDS=$(or $(FAULT_SEEDS),1$(comma)2$(comma)3) FAULT_HITS=$(or $(FAULT_HITS),50) $(RUN)pytest -q -s tests/faults

fault-matrix: install control-plane ## Every fault for each kind of gang, as a table in OUT=.cache/fault-matrix.md; FAULT_ROWS=regex
	@FAULT_MATRIX='$(if $(filter command line,$(origin OUT)),$(OUT),.cache/fault-matrix.md)' \
	$(RUN)pytest -q -s -o faulthandler_timeout=0 tests/faults/test_matrix.py

.PHONY: dead-connections
dead-connections: install control-plane ## Gangs that are created when a middlebox passes nothing on any more, TRIALS=20 times
	@DEAD_CONNECTIONS=$(or $(TRIALS),20) $(RUN)pytest -q -s -o faulthandler_timeout=0 tests/faults/test_middlebox.py

kills: install control-plane ## kill -9 at every API call of scheduling gangs; OUT=.cache/kills.jsonl KILL_SIZES=1,2,8,32 KILL_CALLS=binds
	@KILLS='$(if $(filter command line,$(origin OUT)),$(OUT),.cache/kills.jsonl)' \
	$(RUN)pytest -q -s -o faulthandler_timeout=0 tests/faults/test_kills.py

leader-trials: install control-plane ## Kill, stop and end the leader of two replicas under load, N times each
	@LEADER_TRIALS=$(if $(filter command line,$(origin N)),$(N),20) $(RUN)pytest -q -s -o faulthandler_timeout=0 tests/e2e/test_leader.py

real-node: install control-plane ## Play on three real nodes: install, rollouts, lost nodes, kubelets, Helm; LONG=1 renews tokens, TRIALS=20 Jobs, RELEASE=1 from dist
	@$(PYTHON) hack/control-plane/build.py kubelet kube-proxy
	@RELEASE=$(RELEASE) REAL_NODE_LONG=$(LONG) REAL_NODE_TRIALS=$(TRIALS) $(RUN)pytest -q -s -x -m real_node -o faulthandler_timeout=0 tests/real_node

test: lint types imports unit histories e2e page real-node ## All checks and all tests; exactly what CI runs

check: test ## The same as test

docs-tables: install ## Write the tables of the manual that are made from the code
	@$(RUN)python -m tests.docs_tables

packages: install control-plane ## Write install.yaml, and what of the chart is made from manifests and settings
	@$(RUN)python -m tests.packaging

docs-messages: install control-plane ## Write what is said in each case of docs/troubleshooting.md, from a real API server; CASES=a b
	@$(RUN)python -m tests.newcomer $(CASES)

docs-pictures: install ## Draw the README's pictures of terminals from examples of the manual
	@$(RUN)python -m tests.docs_pictures

.PHONY: page page-long docs-page page-vendor page-types chromium
chromium: ## Install Debian's chromium where there is none (as root)
	@hack/ensure-chromium.sh

page: install chromium ## Open the page of kubectl gangsched in chromium: contents, accessibility, keyboard, hostile names, speed
	@$(RUN)pytest -q -m 'page and not long' tests/page

page-long: install chromium ## The same with every planted bug, and how fast 5,000 nodes are; on a quiet machine: PAGE_MINUTES=60 under load
	@$(if $(PAGE_MINUTES),PAGE_MINUTES=$(PAGE_MINUTES)) $(RUN)pytest -q -s -o faulthandler_timeout=0 -m page tests/page

docs-page: install chromium ## Draw the pictures of the page, of the demo and of 5,000 nodes, into docs/pictures
	@$(RUN)python -m tests.docs_page

page-vendor: ## Bundle preact, htm and signals of hack/page's lock file into the page's vendor.js (needs Node)
	@hack/page/vendor.sh

page-types: ## Check the types of the page's own modules with typescript (needs Node)
	@cd hack/page && npm ci --ignore-scripts --no-audit --no-fund --silent && node_modules/.bin/tsc -p .

.PHONY: docs-dashboard
docs-dashboard: .cache/bench/.installed control-plane prometheus ## Draw the dashboard with what a real Prometheus answers: DASHBOARD_MINUTES=8
	@$(BENCH)python -m bench.dashboard $(if $(DASHBOARD_MINUTES),--minutes $(DASHBOARD_MINUTES))

# Only what is started, longest first, while the tools of Python are installed.
DEMO_PARTS := etcd kube-apiserver kube-scheduler kwok
PLAYGROUND_PARTS := $(DEMO_PARTS) kube-controller-manager kubectl

.PHONY: demo-parts playground-parts playground
demo-parts playground-parts:
	@hack/ensure-python.sh $(PYTHON)
	@$(PYTHON) hack/control-plane/build.py $(if $(filter demo-parts,$@),$(DEMO_PARTS),$(PLAYGROUND_PARTS))

demo: ## Watch gangs being scheduled on a real API server, beside kube-scheduler; PACE=0 without pauses, 2 slower
	@$(MAKE) --no-print-directory --jobs=2 install demo-parts
	@PACE=$(PACE) $(RUN)python -m demo

playground: ## A cluster of two fake GPU nodes with gangsched, for the guides, until ctrl-C
	@$(MAKE) --no-print-directory --jobs=2 install playground-parts
	@$(RUN)python -m demo.playground

trace: install control-plane ## Replay N jobs of TRACE=file.csv (or a small generated trace) through the running system
	@$(RUN)python -m bench.trace --jobs $(N) --seed $(SEED) $(TRACE)

bench: install .cache/bench/.installed control-plane ## Gangs beside kube-scheduler and a raw binder; CASES=a,b RUNS=3 OUT=folder RESUME=1 MINUTES=30
	@env -u PYTHONDONTWRITEBYTECODE $(BENCH)python -m compileall -q gangsched bench
	@env -u PYTHONDONTWRITEBYTECODE $(RUN)python -m compileall -q gangsched
	@$(BENCH)python -m bench.gangs --cases '$(CASES)' --runs $(RUNS) --out '$(OUT)' --minutes $(MINUTES) \
		$(if $(RESUME),--resume)

bench-ingest: .cache/bench/.installed control-plane ## Start on 50,000 pods and 5,000 nodes; RUNS=3 OUT=folder
	@$(BENCH)python -m bench.ingest --runs $(RUNS) --out '$(OUT)/ingest.json'

bench-page: .cache/bench/.installed ## Put the figures of OUT=docs/performance into docs/performance.md, and draw the plot
	@$(BENCH)python -m bench.gangs.page --figures '$(OUT)'

bench-start: install control-plane ## Measure how long gangs wait that are created soon after the start; TRIALS=5
	@$(RUN)python -m bench.start $(if $(TRIALS),--trials $(TRIALS))

.PHONY: bench-waiting
bench-waiting: install ## Count what an event costs the loop while 10,000 gangs wait; PART=10 takes a tenth of them
	@$(RUN)python -m bench.waiting $(if $(PART),--part $(PART))

.PHONY: bench-scale
bench-scale: .cache/bench/.installed ## Start on 15,000 nodes and 150,000 pods of a server that only speaks lists and watches
	@$(BENCH)python -m bench.scale

.PHONY: bench-sizing
bench-sizing: .cache/bench/.installed ## Memory and CPU of a replica by nodes and pods, as the table in the chart's README
	@$(BENCH)python -m bench.sizing

.PHONY: bench-replacements
bench-replacements: .cache/bench/.installed control-plane ## Measure from the creation of a lost member's replacement to its bind, on 5,000 nodes: TRIALS=100
	@$(BENCH)python -m bench.replacements --seed $(SEED) $(if $(TRIALS),--trials $(TRIALS))

bench-wakeup: .cache/bench/.installed control-plane ## Measure from a pod's deletion to the last bind of the gang that waited for its room
	@$(BENCH)python -m bench.wakeup

bench-plan: .cache/bench/.installed ## Time plans on large clusters, beside a naive loop, and in required domains; DEMANDS=200
	@$(BENCH)python -m bench.plan
	@$(BENCH)python -m bench.domains --demands $(or $(DEMANDS),200)
	@$(BENCH)python -m bench.heads

.PHONY: bench-devices
bench-devices: install ## Plan gangs of MEMBERS=1000 whose members claim devices of NODES=5000 nodes, and 3,000 kinds of pods; fails above 50 ms a plan
	@$(RUN)python -m bench.devices --nodes $(or $(NODES),5000) --members $(or $(MEMBERS),1000)
	@$(RUN)python -m bench.served

.PHONY: bench-device-gangs
bench-device-gangs: install control-plane ## Gangs and pods with devices beside kube-scheduler on one control plane: GANGS=40 SEED=35 PODS=1000 NODES=500
	@$(RUN)python -m bench.device_gangs --gangs $(or $(GANGS),40) --seed $(if $(filter command line,$(origin SEED)),$(SEED),35) --pods $(or $(PODS),1000) --nodes $(or $(NODES),500)

.PHONY: bench-trees
bench-trees: install ## What it costs the loop to start trees of gangs beside the same gangs without parents; PART=10 takes a tenth of them
	@$(RUN)python -m bench.trees $(if $(PART),--part $(PART))

.PHONY: bench-hostile
bench-hostile: install ## The longest plan and turn that generated hostile gangs cause, on up to 5,000 nodes; fails above 50 ms; GANGS=400 FIRST=0 SEED=30 SLICES=1 TREES=1 ONLY=
	@$(RUN)python -m bench.hostile --gangs $(or $(GANGS),400) --first $(or $(FIRST),0) --seed $(if $(filter command line,$(origin SEED)),$(SEED),30) $(if $(SLICES),--slices) $(if $(TREES),--trees) $(if $(ONLY),--only $(ONLY))

bench-memory: install ## Count what is left in memory of thousands of pods that are gone; fails above 20 MiB
	@$(RUN)python -m bench.memory

bench-pools: install control-plane ## One backlog for one instance, and for two instances with a node pool each; RUNS=3 of both, in turns
	@$(RUN)python -m bench.pools --rounds $(RUNS)

soak: install control-plane ## Gangs of every kind come and go: MINUTES=30 RATE=50 (pods a second) OUT_CSV=; fails if memory grows 2 MB an hour
	@$(RUN)python -m bench.soak --minutes $(if $(filter command line,$(origin MINUTES)),$(MINUTES),30) --rate $(or $(RATE),50) \
		$(if $(OUT_CSV),--out '$(OUT_CSV)')

bench-writes: install control-plane ## Count the conditions and statuses of gangs that wait; CODE=folder of another checkout
	@$(RUN)python -m bench.writes $(if $(CODE),--code '$(CODE)')

bench-tenants: install control-plane ## Wait of one namespace's gangs without and with a hostile tenant; GANGS=10000 SAMPLES=30
	@$(RUN)python -m bench.tenants $(if $(GANGS),--gangs $(GANGS)) $(if $(SAMPLES),--samples $(SAMPLES))

.PHONY: bench-counting
bench-counting: install ## The longest plan beside 100,000 running pods, about which others ask what nobody asked before; PODS=100000 CASE=new_keys
	@$(RUN)python -m bench.counting $(if $(PODS),--pods $(PODS)) $(if $(CASE),--case $(CASE))

.PHONY: bench-crowds bench-floods
bench-crowds: install control-plane ## Wait of a pod beside a user of another namespace with 10,000 of anything, also after a restart; OBJECTS=10000 CASE=trees SAMPLES=40
	@$(RUN)python -m bench.crowds $(if $(OBJECTS),--objects $(OBJECTS)) $(if $(CASE),--case $(CASE)) $(if $(SAMPLES),--samples $(SAMPLES))

bench-floods: install ## The longest turn while objects that thousands of gangs look at are changed; fails above 50 ms; GANGS=2000 CASE=lists
	@$(RUN)python -m bench.floods $(if $(GANGS),--gangs $(GANGS)) $(if $(CASE),--case $(CASE))

bench-holders: install control-plane ## Bind young plain pods while NonStrict gangs hold and wait; CODE=folder of another checkout
	@$(RUN)python -m bench.holders $(if $(CODE),--code '$(CODE)')

bench-completeness: .cache/bench/.installed ## Count which small gangs that fit are placed, against an exhaustive and a constraint solver; CASES_EACH=5000
	@$(BENCH)python -m bench.completeness
	@$(BENCH)python -m bench.solver --cases $(or $(CASES_EACH),5000)

bench-packing: install ## Fill clusters with the traces of OPENB_NODES= and OPENB_PODS=, PHILLY=, against three baselines
	@$(RUN)python -m bench.packing $(if $(OPENB_PODS),--openb '$(OPENB_NODES)' '$(OPENB_PODS)') \
	$(if $(PHILLY),--philly '$(PHILLY)')

bench-backfill: .cache/bench/.installed ## Waits by job size beside FIFO, skipping and EASY, on our trace or PHILLY=; NODES=72 JOBS= OUT_JSON= PLOT=
	@$(BENCH)python -m bench.backfill $(if $(PHILLY),--philly '$(PHILLY)') $(if $(NODES),--nodes $(NODES)) \
	$(if $(JOBS),--jobs $(JOBS)) $(if $(OUT_JSON),--out '$(OUT_JSON)') $(if $(PLOT),--plot '$(PLOT)')

bench-reservation: install control-plane ## A gang of whole nodes against an endless stream: does it start when told? RUNS=20 WITHOUT=3 MINUTES=10
	@$(RUN)python -m bench.reservation --runs $(if $(filter command line,$(origin RUNS)),$(RUNS),20) \
	  $(if $(WITHOUT),--without $(WITHOUT)) $(if $(filter command line,$(origin MINUTES)),--minutes $(MINUTES))

.PHONY: bench-heal
bench-heal: install ## Gangs lose nodes: loss to bind, effective time and torn gangs by policy; NODES=200 DAYS=60 POLICY=preempt RATE=6.5
	@$(RUN)python -m bench.heal --nodes $(or $(NODES),200) --days $(or $(DAYS),60) --rate $(or $(RATE),6.5) \
		--seed $(SEED) $(if $(POLICY),--policy $(POLICY))

bench-fight: install control-plane ## Three priorities fight for room, beside kube-scheduler's preemption; MINUTES=10 LOAD=small SEED=1 VIRTUAL=1 OUT_JSON=
	@$(RUN)python -m bench.fight $(if $(LOAD),--load $(LOAD)) --minutes $(if $(filter command line,$(origin MINUTES)),$(MINUTES),10) \
		--seed $(SEED) $(if $(VIRTUAL),--virtual) $(if $(OUT_JSON),--out '$(OUT_JSON)')

.PHONY: bench-waves
bench-waves: install control-plane ## Hundreds of groups preempt at once; CASES='singles-4 hero-256' BESIDE=1 RAW=1 OUT_JSON=
	@$(RUN)python -m bench.waves $(CASES) $(if $(BESIDE),--beside) $(if $(RAW),--raw) $(if $(OUT_JSON),--out '$(OUT_JSON)')

.PHONY: bench-turns
bench-turns: install ## The longest turn of the loop in each of these waves, on a virtual clock; CASES='singles-4 hero-256'; fails above 50 ms
	@$(RUN)python -m bench.waves.turns $(CASES)

.PHONY: attacks api-attacks
attacks: install control-plane ## A rival scheduler, lost writes and killed leaders against gangs of all kinds, MINUTES=20 each, from SEED=1; KIND=regex
	@ATTACK_MINUTES=$(if $(filter command line,$(origin MINUTES)),$(MINUTES),20) ATTACK_SEED=$(SEED) \
	$(RUN)pytest -q -s -o faulthandler_timeout=0 tests/e2e/test_attacks.py $(if $(KIND),-k '$(KIND)')

api-attacks: install control-plane ## Attack the gangs API, and time what bystanders notice: ATTACK_S=60, KIND=regex
	@ATTACK_S=$(or $(ATTACK_S),60) $(RUN)pytest -q -s -o faulthandler_timeout=0 tests/e2e/visibility/test_attacks.py $(if $(KIND),-k '$(KIND)')

.PHONY: bench-visibility
bench-visibility: install control-plane ## Time kubectl get gangs -A with GANGS=1000, and binds while requests flood in; fails above 300 ms
	@$(RUN)python -m bench.visibility $(if $(GANGS),--gangs $(GANGS))

.PHONY: bench-pairs
bench-pairs: install control-plane ## Create 4,000 PodGroups, each followed at once by its pod; CODE=folder of another checkout
	@$(RUN)python -m bench.pairs $(if $(CODE),--code '$(CODE)')

.PHONY: bench-beside
bench-beside: install control-plane ## Nodes that kube-scheduler and gangsched over-commit together, and none apart: TRIALS=10 OVER_S=0
	@$(RUN)python -m bench.beside $(if $(TRIALS),--trials $(TRIALS)) $(if $(OVER_S),--seconds $(OVER_S))

bench-fgd: install ## The packing experiment of FGD (ATC'23) on the trace in OPENB=folder; RUNS=10
	@$(RUN)python -m bench.fgd '$(OPENB)' --seeds $(if $(filter command line,$(origin RUNS)),$(RUNS),10)

sbom: $(UV) ## Write what is in the image as CycloneDX 1.5; SBOM=dist/gangsched.cdx.json
	@mkdir -p '$(dir $(SBOM))'
	@$(UV) export --quiet --frozen --no-dev --extra scheduler --extra uvloop --format cyclonedx1.5 --output-file '$(SBOM)' \
		--no-emit-package pygments --no-emit-package markdown-it-py --no-emit-package mdurl >/dev/null

audit: $(UV) ## Look the dependencies of the image up among known vulnerabilities (asks pypi.org)
	@hack/audit.sh $(UV)

image: ## Build the image: BASE=docker.io/library/python@sha256:… or the tag of a base that is here, IMAGE=name:tag; needs Docker
	@grep -Eq '^[^@[:space:]]+(@sha256:[0-9a-f]{64}|:[^:/@[:space:]]+)$$' <<<'$(BASE)' || \
		{ echo 'make image takes its base by digest, BASE=docker.io/library/python@sha256:…, or by tag' >&2; exit 2; }
	$(BUILD) --build-arg 'BASE=$(BASE)' --tag '$(IMAGE)' .

image-multiarch: ## The same for linux/amd64 and linux/arm64 with buildx; PUSH=1 pushes it, with provenance and SBOM
	@grep -Eq '^[^@[:space:]]+@sha256:[0-9a-f]{64}$$' <<<'$(BASE)' || \
		{ echo 'make image-multiarch takes its base by digest: BASE=docker.io/library/python@sha256:…' >&2; exit 2; }
	@mkdir -p dist
	docker buildx build --platform linux/amd64,linux/arm64 --build-arg 'BASE=$(BASE)' --tag '$(IMAGE)' \
		--metadata-file dist/image.json $(if $(PUSH),--provenance mode=max --sbom true --push) .

release-check: install ## Say whether TAG=vX.Y.Z is the version of the code, the manifests and the chart
	@$(RUN)python -m tests.release check '$(TAG)'

release-files: install ## Write install.yaml and the chart for IMAGE=repository@sha256:… into dist
	@$(PYTHON) hack/control-plane/build.py helm
	@$(RUN)python -m tests.release files '$(IMAGE)'

.PHONY: release release-notes release-packages
release-notes: install ## Print the section of the changelog for TAG=vX.Y.Z
	@$(RUN)python -m tests.release notes '$(TAG)'

release-packages: $(UV) ## Write wheels and sdists of gangsched, its plugin and kubernetes-cel into dist
	@for package in gangsched kubectl-gangsched kubernetes-cel; do $(UV) build --quiet --package $$package --out-dir dist; done

release: install $(UV) ## Write wheel, sdist, image, chart, install.yaml, SBOM and checksums into dist, and install from each; as root
	@$(PYTHON) hack/control-plane/build.py etcd kube-apiserver kube-scheduler kube-controller-manager kwok kubectl helm
	@$(RUN)python -m tests.distribution build

kind-demo: ## Scenes on kind, with real kubelets; needs Docker, kind and kubectl
	@hack/kind/demo.sh

lock: $(UV) ## Update uv.lock after a change of dependencies
	@$(UV) lock

clean: ## Remove the virtual environment and caches, but not the built control plane
	@rm -rf .venv .cache/bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
