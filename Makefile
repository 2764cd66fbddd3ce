# "make help" lists targets and variables.

PYTHON ?= /usr/bin/python3
PREFIX ?= /usr/local
GOLANGCI_VERSION = v2.15.0

# How far "make test-nightly" goes.
SEEDS    ?= 5000
CHECKS   ?= 2000
KILLS    ?= 300
FUZZTIME ?= 3m
# Properties are tried with the same random inputs each time, except in test-nightly.
export RAPID_SEED ?= 1

describe = cat VERSION || git describe --tags --always --dirty || echo unknown
version  = $(or $(VERSION),$(shell { $(describe); } 2>/dev/null))
# Without paths of this folder, what another clone has compiled is used again.
export GOFLAGS := -trimpath $(filter-out -trimpath,$(or $(GOFLAGS),$(shell go env GOFLAGS)))
# NVIDIA's binding, the judge of nvml, calls functions that its header calls deprecated.
quiet := -Wno-deprecated-declarations
export CGO_CFLAGS := $(quiet) $(filter-out $(quiet),$(shell go env CGO_CFLAGS))
go_build = CGO_ENABLED=0 go build -trimpath
goarch   = $(or $(GOARCH),$(shell go env GOARCH))
# $(call program,NAME,FOLDER) builds a program into a folder for $GOOS and $GOARCH, without tables
# for debuggers, which double its size; the traces of a panic need none.
named    = -X rankpool/cmd/internal/version.Text=$(version)
program  = $(go_build) -ldflags '-s -w $(named)' -o $(2)/$(1) ./cmd/$(1)
# The machine that a wheel is for, in pip's spelling.
machine  = $(patsubst amd64,x86_64,$(patsubst arm64,aarch64,$(goarch)))
golangci = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
deps     = PYTHON=$(PYTHON) scripts/deps.sh
to       = $(DESTDIR)$(PREFIX)
fashion  = build/fashion
traces   = benchmarks/traces/fashion
simulate = bin/rankpool-lab simulate --losses $(traces)-losses.npy --labels $(traces)-labels.npy \
	--embeddings $(traces)-embeddings.npy --systems all --capacity 0.1,0.2,0.4 --ranks 8 --batch-size 8

# Packages that start no goroutine, tests included: the race detector finds nothing there, and makes
# them five times slower.
one_goroutine = $(addprefix rankpool/,scheduler/draw scheduler/plan scheduler/stager \
	scheduler/protocol scheduler/systems scheduler/systems/hnsw slurm \
	staging/npy staging/shards benchmarks/clusters benchmarks/planning \
	benchmarks/plots benchmarks/simulator contrib docs \
	$(addprefix cmd/rankpool/internal/,batchscript launchers) cmd/internal/report cmd/internal/runlog \
	mpicache/stats)
# Tests in which one goroutine runs at a time, in a package that starts others: simulated jobs.
in_turns      = ^Test(JobsUnderFaults|RanksThatLoseEachOther|JobsReplay|JobsFindFlaws)$$
packages      = $(shell go list ./mpicache ./...) # what takes longest first
race          = CGO_ENABLED=1 go test -race -p 4 -parallel 8 -timeout 30m
# By default, a program with the race detector sleeps for a second before it exits.
no_sleep      = GORACE='atexit_sleep_ms=0 $(GORACE)'
test_imports  = {{.ImportPath}} {{.TestImports}} {{.XTestImports}}
with_rapid    = $(shell go list -f '$(test_imports)' ./... | \
	awk '/pgregory.net.rapid/ { print $$1 }')

.PHONY: help build deps run simulate test test-full test-nightly simulate-faults fuzz check \
	test-go test-go-race test-go-plain test-mpi test-python test-e2e test-slurm test-debian13 \
	test-wheel test-dlio test-formats test-frameworks pictures lint fmt bench bench-staging \
	bench-peers install uninstall wheel dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PREFIX=DIR   where \"make install\" installs (default: /usr/local; DESTDIR is put before)"
	@echo "  VERSION=V    the version that \"rankpool version\" prints and \"make dist\" puts into its"
	@echo "               file's name (default: the file VERSION, or what git describes)"
	@echo "  SEEDS=N CHECKS=N KILLS=N FUZZTIME=T   simulated worlds and jobs, tries of a property,"
	@echo "               runs with kills, and time of a fuzz test in \"make test-nightly\"; SEEDS:"
	@echo "               also jobs of \"make simulate-faults\""
	@echo "               (default: $(SEEDS), $(CHECKS), $(KILLS), $(FUZZTIME))"
	@echo "  WORKERS=N    tests at once in test-e2e and test-slurm (default: 6 and 3)"
	@echo "  PYTHON=PATH  the Python that has PyTorch (default: /usr/bin/python3)"

build: ## build bin/rankpool, which finds an MPI library when it runs, and bin/rankpool-lab
	@scripts/go-version.sh
	$(call program,rankpool,bin)
	$(call program,rankpool-lab,bin)

deps: ## install the Debian packages that run and test need
	@$(deps) run test

run: ## train on Fashion-MNIST on slow storage, with plain files and with rankpool
	@echo "This builds rankpool, writes 10,000 images of Fashion-MNIST to $(fashion), and trains a"
	@echo "small network on emulated slow storage, which it mounts: with plain files, then with"
	@echo "rankpool. On two cores that takes less than 3 minutes. Debian packages that are missing"
	@echo "(PyTorch is large) take some minutes the first time."
	@$(deps) build run
	@$(MAKE) --no-print-directory build
	@$(PYTHON) scripts/fashion_mnist.py $(fashion)
	@$(PYTHON) scripts/first_run.py $(fashion) build

simulate: ## compare all systems on a recorded trace, as a table and plots in build/simulate
	@echo "This builds rankpool and simulates every system on 10 recorded epochs of Fashion-MNIST,"
	@echo "twice: with each system's own sampler, and with the same draws for all. On two cores that"
	@echo "takes a minute."
	@$(MAKE) --no-print-directory build
	$(simulate) --plot build/simulate/own
	$(simulate) --sampler pads --plot build/simulate/pads

test: ## install what is missing, then run the tests, in some ten minutes
	@$(deps) test
	@$(MAKE) --no-print-directory check test-go test-mpi test-python test-e2e test-slurm

test-full: ## run the long matrix, which "make test" leaves out
	@$(deps) test
	@$(MAKE) --no-print-directory build
	go test -p 4 -timeout 30m $(one_goroutine)
	$(race) -skip '^TestPapers$$' $(filter-out $(one_goroutine),$(packages))
	go test ./cmd/rankpool-lab -run '^TestPapers$$' -v -timeout 30m
	go test ./scheduler/stager -run UnderFaults -seeds 1000
	$(MAKE) --no-print-directory simulate-faults SEEDS=1000
	scripts/test-e2e.sh -m full
	scripts/test-slurm.sh -m full
	scripts/fuzz-door.sh 800x

test-nightly: export RAPID_SEED = 0
test-nightly: ## run many seeds, kills and fuzz tests for hours (SEEDS, CHECKS, KILLS, FUZZTIME)
	@$(deps) test
	@$(MAKE) --no-print-directory build
	go test ./scheduler/stager -run UnderFaults -seeds $(SEEDS) -timeout 0
	$(MAKE) --no-print-directory simulate-faults
	go test $(with_rapid) -rapid.checks $(CHECKS) -timeout 0
	RANKPOOL_KILLS=$(KILLS) scripts/test-e2e.sh -m nightly
	scripts/fuzz.sh $(FUZZTIME)

simulate-faults: ## simulate whole jobs with faults in virtual time (SEEDS=N, docs/develop.md)
	go test ./mpicache -run JobsUnderFaults -jobs $(SEEDS) -timeout 0 -v

fuzz: FUZZTIME = 10m
fuzz: ## have hostile clients say anything to two ranks beside a training (FUZZTIME=10m)
	scripts/fuzz-door.sh $(FUZZTIME)

check: ## check formatting, and what go vet sees
	@scripts/go-version.sh
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || \
		{ echo "not formatted (make fmt): $$unformatted" >&2; exit 1; }
	go vet ./...

test-go: ## run the Go tests, those with goroutines under the race detector
	@$(MAKE) --no-print-directory -j 2 test-go-race test-go-plain

test-go-race:
	$(no_sleep) $(race) -short -skip '$(in_turns)' $(filter-out $(one_goroutine),$(packages))

test-go-plain:
	go test -short -p 2 $(one_goroutine)
	go test -short -run '$(in_turns)' ./mpicache

test-mpi: build ## run the ranks' tests under Open MPI and MPICH
	mpicache/transport/test-mpi.sh
	scripts/test-stage.sh

test-python: ## run the Python client's tests
	$(PYTHON) -m pytest -q -n 4 python/tests

test-e2e: build ## run trainings end to end
	scripts/test-e2e.sh

test-slurm: build ## run the trainings on a Slurm of four nodes, which it starts and stops
	scripts/test-slurm.sh

test-debian13: ## run "make run" and "make test" on a Debian 13 (as root; docs/start.md)
	@$(deps) debian13
	scripts/test-debian13.sh

test-wheel: wheel ## install the wheel on a bare Debian 13, without MPI, and train there (as root)
	scripts/test-wheel.sh

test-dlio: build ## run DLIO, MLPerf Storage's benchmark, from PyPI, 0.5 GB (benchmarks/dlio.md)
	$(PYTHON) -m venv --system-site-packages build/dlio
	build/dlio/bin/pip install -q --no-deps dlio_benchmark==2.0.0 pydftracer==1.0.2 \
		antlr4-python3-runtime==4.9.3 \
		mpi4py hydra-core omegaconf 'h5py<3.12' 'pandas<2.2' psutil pytz tzdata
	build/dlio/bin/pip install -q 'tensorflow-cpu==2.15.*' pytest
	build/dlio/bin/python -m pytest -v -p no:cacheprovider python/frameworks/test_dlio.py

test-formats: ## decode HDF5, NetCDF4, Zarr, kerchunk with the newest libraries from PyPI, 0.7 GB
	$(PYTHON) -m venv build/formats
	build/formats/bin/pip install -q h5py zarr numcodecs netCDF4 hdf5plugin kerchunk pyarrow pandas \
		pytest
	build/formats/bin/python -m pytest -q -p no:cacheprovider python/formats \
		python/tests/test_pieces.py

test-frameworks: build ## train with scripts of seven frameworks from PyPI, 6 GB (docs/python.md)
	$(PYTHON) -m venv build/frameworks
	build/frameworks/bin/pip install -q torch torchvision webdataset lightning accelerate \
		transformers timm grain pytest
	build/frameworks/bin/python -m pytest -v -p no:cacheprovider python/frameworks \
		--ignore python/frameworks/test_dlio.py --imagenet "$(IMAGENET)" --torchvision "$(TORCHVISION)"

pictures: ## make the pictures in docs/pictures again, by the tests that look at them
	@$(deps) test
	RANKPOOL_PICTURES=$(CURDIR)/docs/pictures scripts/test-e2e.sh -k test_picture

lint: ## run golangci-lint, which Go builds the first time, in three minutes
	CGO_ENABLED=0 $(golangci) run --allow-parallel-runners ./...

fmt: ## format the Go files
	$(golangci) fmt ./...

bench: ## measure the ratios of benchmarks/README.md in nine minutes (QUICK=1: only a check)
	@$(deps) build bench
	@$(MAKE) --no-print-directory build
	$(go_build) -o bin/benchmarks ./benchmarks
	bin/benchmarks -python $(PYTHON) $(if $(QUICK),-quick)

bench-staging: ## measure a cold epoch on emulated storage in seven minutes (QUICK=1: only a check)
	@$(deps) build bench-staging
	@$(MAKE) --no-print-directory build
	$(go_build) -o bin/benchmarks ./benchmarks
	bin/benchmarks -python $(PYTHON) -only staging,stage,pfs $(if $(QUICK),-quick)

bench-peers: ## compare with six loaders from PyPI, 7 GB, in 30 minutes (as root; QUICK=1: a check)
	@$(MAKE) --no-print-directory build
	$(go_build) -o bin/benchmarks ./benchmarks
	$(PYTHON) -m venv build/peers
	build/peers/bin/pip install -q torch webdataset mosaicml-streaming litdata spdl nvidia-dali-cuda130
	bin/benchmarks -python build/peers/bin/python -only peers,accelerators \
		-out build/peers/results.md $(if $(QUICK),-quick)

install: build ## install programs, manual, completions and the Python client to PREFIX
	rm -rf build/man
	install -D -t $(to)/bin bin/rankpool bin/rankpool-lab
	install -D -m 644 -t $(to)/share/rankpool/python/rankpool python/rankpool/*.py \
		python/rankpool/py.typed
	@$(MAKE) --no-print-directory manual-of-rankpool manual-of-rankpool-lab
	install -D -m 644 -t $(to)/share/man/man1 build/man/*.1
	install -D -m 644 -t $(to)/share/doc/rankpool README.md CHANGELOG.md LICENSE
	install -D -m 644 -t $(to)/share/doc/rankpool/docs docs/*.md

manual-of-%:
	$(go_build) -tags manual -ldflags '$(named)' -o build/$* ./cmd/$*
	build/$* docs man build/man
	bin/$* completion bash | \
		install -D -m 644 /dev/stdin $(to)/share/bash-completion/completions/$*
	bin/$* completion zsh | install -D -m 644 /dev/stdin $(to)/share/zsh/site-functions/_$*
	bin/$* completion fish | \
		install -D -m 644 /dev/stdin $(to)/share/fish/vendor_completions.d/$*.fish

uninstall: ## remove what "make install" has installed to PREFIX
	rm -rf $(to)/share/rankpool $(to)/share/doc/rankpool
	rm -f $(to)/bin/rankpool $(to)/bin/rankpool-lab $(to)/share/man/man1/rankpool.1 \
		$(to)/share/man/man1/rankpool-*.1 $(to)/share/zsh/site-functions/_rankpool* \
		$(to)/share/bash-completion/completions/rankpool* \
		$(to)/share/fish/vendor_completions.d/rankpool*.fish

wheel: ## write build/rankpool-….whl, the Python client with both programs inside (GOARCH=arm64)
	@scripts/go-version.sh
	rm -rf build/wheel build/rankpool-*-linux_$(machine).whl
	mkdir -p build/wheel/rankpool/bin
	cp python/pyproject.toml build/wheel
	cp python/rankpool/*.py python/rankpool/py.typed build/wheel/rankpool
	GOOS=linux $(call program,rankpool,build/wheel/rankpool/bin)
	GOOS=linux $(call program,rankpool-lab,build/wheel/rankpool/bin)
	$(PYTHON) -m pip wheel -q --no-deps --wheel-dir build \
		--config-settings=--build-option=--plat-name=linux_$(machine) build/wheel
	rm -rf build/wheel

dist: ## write build/rankpool-VERSION.tar.gz, which builds without a network (VERSION=0.1.0)
	rm -rf build/rankpool-$(version) build/rankpool-$(version).tar.gz
	mkdir -p build/rankpool-$(version)
	git archive HEAD | tar -x -C build/rankpool-$(version)
	echo $(version) >build/rankpool-$(version)/VERSION
	cd build/rankpool-$(version) && go mod vendor
	tar -czf build/rankpool-$(version).tar.gz -C build rankpool-$(version)
	rm -rf build/rankpool-$(version)

clean: ## remove what make has built
	rm -rf bin build
