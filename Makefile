# The front door. Each target runs one command of one room, `python -m <room> <verb>`, in the tools' environment,
# which makes itself on first use and is kept for every clone, under a name made from the hash of its lock.

STORE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sglang-ddtree
LOCK  := requirements.lock
VENV  := $(STORE)/tools/$(shell sha256sum $(LOCK) | cut -c 1-16)
PY    := $(VENV)/bin/python
RUN   = @$(PY) -m

# Options that targets pass on. Only what stands on make's command line counts: some shells export a HOST of their own.
given   = $(if $(filter command,$(origin $1)),$(filter-out 0,$($1)))
host    = $(if $(call given,HOST),--host '$(HOST)')
json    = $(if $(call given,JSON),--json)
to      = $(if $(call given,TO),--to '$(TO)')
python  = $(if $(call given,HOST_PYTHON),--python '$(HOST_PYTHON)')
keep    = $(if $(call given,KEEP),--keep)
force   = $(if $(call given,FORCE),--force)
profile = $(if $(call given,PROFILE),--profile '$(PROFILE)')
site    = $(if $(call given,SITE),'$(SITE)',--profile '$(or $(call given,PROFILE),cpu)')
save    = $(if $(call given,SAVE),--save '$(SAVE)')
# Not by `given`, for which 0 is no value.
bench_option = $(if $(filter command,$(origin $1)),--$(shell echo $1 | tr A-Z a-z) '$($1)')
gpu     = $(if $(call given,GPU),--gpu '$(GPU)')

# The environment is the lock's alone: nothing of the caller's Python settings comes in.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F '|' '{ printf "%-17s %s\n", $$1, $$2 }'
	@echo "options: HOST=a host, or several (default: this machine), HOST_PYTHON=its interpreter, JSON=1, TO=release, INSTANCE=one of a host's servers,"
	@echo "         PROFILE=overlay profile, SITE=site root, virtual environment, folder of wheels or lock, GPU=sm_120, SAVE=facts.json (for doctor),"
	@echo "         KEEP=1 (a host's snapshot that is not the pin), FORCE=1 (edit and refresh: although work would be replaced)"

snapshot: $(PY) ## fetch the pinned SGLang by its hash; HOST=x: take that host's installed package and compare
	$(RUN) snapshot fetch $(host) $(python) $(keep) $(json)

snapshot-check: $(PY) ## compare the snapshot (HOST=x: the host's package) with the pin, file by file
	$(RUN) snapshot check $(host) $(python) $(json)

check-patches: $(PY) ## dry run of the series: headers, order, exact apply and reverse, compile
	$(RUN) patches check $(json)

tree: $(PY) ## lay out the patched tree under .cache/tree/
	$(RUN) patches tree $(json)

edit: $(PY) ## a git work tree of the series, one commit a patch
	$(RUN) patches edit $(force)

refresh: $(PY) ## write the edited commits back as patches
	$(RUN) patches refresh $(force)

doctor: $(PY) ## what of an environment will break, and what mends it: SITE=path, PROFILE=overlay profile or HOST=x; imports nothing
	$(RUN) overlay doctor $(if $(host),$(if $(call given,SITE),'$(SITE)') $(host) $(python),$(site)) $(gpu) $(save) $(json)

overlay-diff: $(PY) ## what a host (B=) needs to be as another (A=; without it as PROFILE's lock): hosts, paths, or saved facts
	$(RUN) overlay diff $(if $(call given,A),--a '$(A)') --b '$(B)' $(profile) $(python) $(json)

wheelhouse: $(PY) ## fetch an overlay profile's wheels by hash and unpack them: PROFILE=cu130, PYTHON=3.12, SCOPE=abi
	$(RUN) overlay wheelhouse '$(or $(call given,PROFILE),cu130)' $(if $(call given,PYTHON),--python '$(PYTHON)') \
	    $(if $(call given,SCOPE),--scope '$(SCOPE)') $(json)

explain: $(PY) ## read a traceback from standard input; say which rule it belongs to, the cause, what to check
	$(RUN) overlay explain $(json)

plan: $(PY) ## what `make apply` would do, step by step; changes nothing
	$(RUN) deploy plan $(host) $(json) $(profile)

apply: $(PY) ## put the patched SGLang on the host, start it, prove that it serves
	$(RUN) deploy apply $(host) $(json) $(profile)

rollback: $(PY) ## back to the previous release (TO=release: to that one), through the same health gate
	$(RUN) deploy rollback $(host) $(to) $(json)

status: $(PY) ## what the host serves now
	$(RUN) deploy status $(host) $(json)

unlock: $(PY) ## end the command that holds a host's lock, if it hangs
	$(RUN) deploy unlock $(host) $(json)

hosts: $(PY) ## the inventory: deploy/hosts.toml, and deploy/hosts.local.toml over it
	$(RUN) deploy hosts $(json)

stop: $(PY) ## stop the host's services
	$(RUN) deploy stop $(host) $(json)

logs: $(PY) ## the last lines of the services' logs; INSTANCE=name: of one
	$(RUN) deploy logs $(host) $(if $(call given,INSTANCE),--instance '$(INSTANCE)')

bench: $(PY) ## measure AR, DFLASH and DDTREE and draw a page; HOST=x: what serves there, with ALL=1 all three in its place
	$(RUN) tools.bench run $(host) $(if $(call given,ALL),--all) $(foreach o,BATCHES TEMPERATURES BUDGETS ROUNDS PROMPTS TOKENS OUT,$(call \
	    bench_option,$(o))) $(json)

bench-compare: $(PY) ## two measurements side by side, and which differences are more than chance: A=one.json B=other.json
	$(RUN) tools.bench compare $(if $(call given,A),--a '$(A)') $(if $(call given,B),--b '$(B)') $(json)

# Without a path in ARGS in two processes. Picked tests run in one, which starts sooner, and takes -s and --pdb.
test: $(PY) ## every test; ARGS='tests/snapshot -k hostile' picks some
	$(RUN) pytest $(if $(findstring tests/,$(ARGS)),,-n 2) $(ARGS)

test-hosts: $(PY) ## the deployer against real hosts, made here: systemd and OpenSSH in containers; needs root
	$(RUN) pytest tests/hosts $(ARGS)

python: $(PY) ## print the tools' interpreter, for scripts: make itself turns every failure into exit code 2
	@echo $(PY)

lint: $(PY) ## style of the Python code
	$(RUN) ruff check .

lock: $(PY) ## pin the tools' packages anew; PROFILE=cu130: those of that overlay profile, and say what changed
ifeq ($(call given,PROFILE),)
	$(RUN) uv pip compile --quiet --upgrade --universal --group test --group dev --generate-hashes \
	    --no-emit-index-url --no-header --no-annotate pyproject.toml --output-file $(LOCK)
else
	$(RUN) overlay lock '$(PROFILE)'
endif

$(PY):
	@sh tools/environment.sh '$(VENV)' '$(LOCK)'
