# Everything that is built, tested or tried goes through here. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
GUEST   := internal/guest/embedded/bin/lathe-guest
PKG     ?= ./...
SEED    ?= 0
STEPS   ?= 300

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: bin/lathe bin/runsc ## build bin/lathe (with the guest in it) and bin/runsc (gVisor)

ifeq ($(shell command -v $(GO)),)
$(error $(GO) is missing: install Go 1.26 or newer and put it into PATH)
endif

# go knows better than make what has changed, and does nothing where nothing has.
bin/lathe: guest FORCE
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/lathe

guest: FORCE
	@mkdir -p $(dir $(GUEST))
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(GUEST) ./cmd/lathe-guest

# Pinned in runsc/go.mod, a module of its own, so that lathe links none of it. With cgo its sandboxes die. Without the state of this
# repository in it, so that memory images fit as long as it is the same gVisor.
bin/runsc: runsc/go.mod runsc/go.sum runsc/main.go runsc/filters/main.go
	@mkdir -p bin
	cd runsc && CGO_ENABLED=0 $(GO) run ./filters filters_linux_$$($(GO) env GOARCH).go
	cd runsc && CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false \
		-ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$$($(GO) list -m -f '{{.Version}}' gvisor.dev/gvisor)" -o ../$@ .
	@touch $@

image: ## build the sandbox image `python` (into LATHE_IMAGE_DIR)
	@image/build.sh

test: ## install what the tests need, build, and run all of them
	@scripts/need.sh test
	@$(MAKE) --no-print-directory -j3 --output-sync=target build image
	$(GO) vet ./...
	$(GO) test -race -shuffle=on -timeout 20m $(PKG)

soak: build ## 300 random steps in containers, held against a model (SEED=n repeats one, STEPS=n makes more)
	$(GO) test -count=1 -timeout 2h -run TestSoak -v ./test/soak -seed=$(SEED) -steps=$(STEPS)

demo: ## build, start lathe with the demo model, and let it compute and plot
	@scripts/demo.sh

bench: build ## measure the sandbox and the gateway, each beside what it is compared with
	bin/lathe bench sandbox
	bin/lathe bench gateway

lint: ## gofmt, go vet and golangci-lint (built once, from tools/go.mod)
	@test -z "$$(gofmt -l cmd internal | tee /dev/stderr)" || { echo "run: make fmt"; exit 1; }
	$(GO) vet ./...
	cd tools && $(GO) build -o ../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run --allow-parallel-runners

fmt: ## format the Go files
	gofmt -w cmd internal

cross: ## build lathe for linux/amd64, linux/arm64 and darwin/arm64 into dist/
	@scripts/cross.sh '$(LDFLAGS)'

clean: ## remove what was built (not images, not data)
	rm -rf bin dist $(dir $(GUEST))lathe-guest runsc/filters_linux_*.go

FORCE:
.PHONY: help build guest image test soak demo bench lint fmt cross clean FORCE
