# Run `make help` for the list of targets. None needs a container engine except those whose name begins with docker-.

SHELL := /usr/bin/env bash -o pipefail
.SHELLFLAGS := -ec
.DEFAULT_GOAL := all
# Generators and checks share files of the tree, so targets run one after the other.
.NOTPARALLEL:

# Image of the manager, as it is written into dist/install.yaml.
IMG ?= ghcr.io/fencedlease/fencedlease-manager:v0.1.0
CONTAINER_TOOL ?= docker
PLATFORMS ?= linux/amd64,linux/arm64,linux/s390x,linux/ppc64le
# How long robustness-long goes on.
DURATION ?= 2h
# What image-archive writes, and for which platforms, separated by spaces.
IMAGE_ARCHIVE ?= bin/fencedlease-manager-image.tar
ARCHIVE_PLATFORMS ?= linux/$(shell go env GOARCH)
# Set to true to let uninstall and undeploy pass over what is not there.
ignore-not-found ?= false
# Time for each target of `make fuzz`, and the number of runs of `make deflake`.
FUZZTIME ?= 30s
COUNT ?= 10
# What `make test` runs.
TEST_GROUPS ?= unit integration

# Tools are pinned in modules of their own; `go tool` builds them once into Go's build cache.
CONTROLLER_GEN = go tool -modfile=hack/tools/go.mod controller-gen
GOTESTSUM      = go tool -modfile=hack/tools/go.mod gotestsum
RUN_TESTS      = $(GOTESTSUM) --format=pkgname --hide-summary=skipped --raw-command -- hack/make/test-json.sh
GOLANGCI_LINT  = go tool -modfile=hack/tools/lint/go.mod golangci-lint-kube-api-linter
CRD_REF_DOCS   = go tool -modfile=hack/tools/apidocs/go.mod crd-ref-docs
# One way of building all binaries, so that they share what is compiled.
GO_BUILD       = CGO_ENABLED=0 go build -trimpath
# kubectl, for kustomize and apply, comes from the folder that also holds etcd and the API server (hack/controlplane).
# Give KUBECTL=kubectl to use the one of the machine, or KUBEBUILDER_ASSETS=<folder> to use other binaries for all.
ifndef KUBECTL
KUBECTL = "$$(hack/controlplane/build.sh)/kubectl"
endif

##@ General

.PHONY: all
all: build ## Build the binaries.

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make \033[36m<target>\033[0m\n"} \
	  /^[a-zA-Z_0-9-]+:.*?##/ { printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2 } \
	  /^##@/ { printf "\n\033[1m%s\033[0m\n", substr($$0, 5) }' $(MAKEFILE_LIST)

##@ Development

.PHONY: manifests
manifests: ## Generate the CRD, the manager's role and the webhook manifest from markers.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=manager-role webhook paths="./internal/..." \
	  output:rbac:artifacts:config=config/rbac output:webhook:artifacts:config=config/webhook

.PHONY: generate
generate: ## Generate deep copies and apply configurations.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	$(CONTROLLER_GEN) applyconfiguration:headerFile=hack/boilerplate.go.txt paths=./api/...

.PHONY: api-docs
api-docs: ## Generate docs/api.md from the comments of the API types.
	@mkdir -p docs
	$(CRD_REF_DOCS) --source-path=api --config=hack/tools/apidocs/config.yaml --templates-dir=hack/tools/apidocs/templates \
	  --renderer=markdown --output-path=docs/api.md --log-level=WARN

.PHONY: plugin-docs
plugin-docs: ## Generate docs/kubectl-fencedlease.md from the commands of the kubectl plugin.
	go run ./hack/plugindocs > docs/.kubectl-fencedlease.md
	@mv docs/.kubectl-fencedlease.md docs/kubectl-fencedlease.md

.PHONY: metrics-docs
metrics-docs: ## Generate docs/metrics.md from the metrics that the manager registers.
	go run ./hack/metricsdocs > docs/.metrics.md
	@mv docs/.metrics.md docs/metrics.md

.PHONY: fmt
fmt: ## Format the code.
	go fmt ./...

.PHONY: vet
vet: ## Run go vet, also over tests of the real API server.
	go vet ./...
	go vet -tags=integration ./...

.PHONY: lint
lint: ## Run the linters.
	$(GOLANGCI_LINT) run
	cd hack/node && go tool -modfile=../tools/lint/go.mod golangci-lint-kube-api-linter run --config=../../.golangci.yml

.PHONY: lint-fix
lint-fix: ## Run the linters and apply the fixes that they offer.
	$(GOLANGCI_LINT) run --fix

.PHONY: lint-api
lint-api: ## Check the API types against the Kubernetes API conventions.
	$(GOLANGCI_LINT) run --config=.golangci-kal.yml ./api/...

.PHONY: lint-config
lint-config: ## Check the linters' own configuration.
	hack/make/lint-config.sh .golangci.yml .golangci-kal.yml

.PHONY: verify
verify: manifests generate api-docs plugin-docs metrics-docs chart lint-config lint lint-api ## Generate everything anew, lint, and fail on any difference to what is committed.
	hack/make/verify-clean.sh

##@ Test

.PHONY: test-packages
test-packages: ## Install what Debian has of what tests need: SPIN and a C compiler for formal/, PostgreSQL for pkg/sqlfence.
	@hack/make/packages.sh spin=spin gcc=cc 'postgresql=/usr/lib/postgresql/*/bin/initdb'

.PHONY: test
test: test-packages ## Run all tests: unit tests, then those against a real API server. TEST_GROUPS="unit integration e2e" is all there is.
	@assets=$$(hack/controlplane/build.sh); echo "test: $(TEST_GROUPS), on the API server of $$assets"; \
	export KUBEBUILDER_ASSETS="$$assets" IMG=$(IMG); $(RUN_TESTS) $(TEST_GROUPS)

.PHONY: test-all
test-all: ## Run what `make test` does and then the end-to-end specs, with one summary.
	@$(MAKE) test TEST_GROUPS="unit integration e2e"

.PHONY: test-unit
test-unit: ## Run the unit tests.
	@$(RUN_TESTS) unit

.PHONY: test-integration
test-integration: ## Run the tests against a real API server; PKGS limits them to packages.
	@assets=$$(hack/controlplane/build.sh); echo "test: on the API server of $$assets"; \
	export KUBEBUILDER_ASSETS="$$assets"; $(RUN_TESTS) integration

.PHONY: setup-test-e2e
setup-test-e2e: ## Start a cluster for the end-to-end specs: by kind if it and a container engine are there, else by hack/node.
	@IMG=$(IMG) hack/make/e2e.sh setup

.PHONY: test-e2e
test-e2e: ## Run the end-to-end specs in pods on a real node; a cluster that setup-test-e2e has not started is ended afterwards.
	@IMG=$(IMG) hack/make/e2e.sh test

.PHONY: cleanup-test-e2e
cleanup-test-e2e: ## End the cluster of the end-to-end specs.
	@IMG=$(IMG) hack/make/e2e.sh cleanup

.PHONY: test-node
test-node: ## Start and end the cluster of hack/node in all ways, and look for what is left. Needs root.
	@cd hack/node && go test -tags=e2e -count=1 -timeout=20m .

.PHONY: deflake
deflake: ## Run the tests against a real API server COUNT times, and stop at the first failure.
	@assets=$$(hack/controlplane/build.sh); export KUBEBUILDER_ASSETS="$$assets"; for i in $$(seq 1 $(COUNT)); do \
	  echo "deflake: run $$i of $(COUNT)"; \
	  $(RUN_TESTS) integration; \
	done

.PHONY: formal
formal: ## Check the Promela model with SPIN, and that it fails without each of its guards.
	@hack/make/packages.sh spin=spin gcc=cc
	go test -count=1 -v ./formal

.PHONY: robustness
robustness: ## Prove the promise under faults, as the tests of the API server do: traffic, pauses, stories and mutants.
	@hack/make/packages.sh spin=spin gcc=cc
	@$(MAKE) --no-print-directory test-integration PKGS="./test/robustness/... ./test/scenarios"

.PHONY: robustness-long
robustness-long: ## Run traffic under faults for DURATION, each run with another seed; the histories of failures are kept.
	@assets=$$(hack/controlplane/build.sh); export KUBEBUILDER_ASSETS="$$assets"; \
	ROBUSTNESS_DURATION=$(DURATION) go test -tags=integration -count=1 -timeout=0 -v -run=TestLong ./test/robustness

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME.
	FUZZTIME=$(FUZZTIME) hack/make/fuzz.sh

.PHONY: bench
bench: ## Compare guarded writes with unguarded ones, and measure the decision alone.
	hack/make/bench.sh

.PHONY: bench-seal
bench-seal: ## Compare handovers by seal with as many plain patches, and measure writes under a sealed term.
	hack/make/bench-seal.sh

.PHONY: demo
demo: build build-installer ## Show a paused leader's late write being refused by a real API server.
	$(GO_BUILD) -o bin/demo ./hack/demo
	$(GO_BUILD) -o bin/demo-worker ./hack/demo/worker
	@assets=$$(hack/controlplane/build.sh); export KUBEBUILDER_ASSETS="$$assets"; \
	exec bin/demo -manager bin/manager -worker bin/demo-worker -install dist/install.yaml -kubectl "$$assets/kubectl"

.PHONY: envtest-binaries
envtest-binaries: ## Build etcd, the API server, the controller manager and kubectl, and print their folder.
	@hack/controlplane/build.sh

##@ Build

.PHONY: build
build: ## Build the binaries into bin/.
	$(GO_BUILD) -o bin/ ./cmd/...

.PHONY: run
run: ## Run the manager on this machine against the current cluster; ARGS are its flags.
	go run ./cmd/manager $(ARGS)

.PHONY: build-installer
build-installer: ## Write dist/install.yaml, everything that an installation needs, with the image IMG.
	@mkdir -p dist
	KUBECTL=$(KUBECTL) IMG=$(IMG) hack/make/kustomize.sh config/default > dist/.install.yaml
	@mv dist/.install.yaml dist/install.yaml

.PHONY: chart
chart: build-installer ## Write the Helm chart dist/chart from the same manifests.
	KUBECTL=$(KUBECTL) hack/make/chart.sh dist/install.yaml dist/chart

.PHONY: docker-build
docker-build: ## Build the manager's image.
	$(CONTAINER_TOOL) build -t $(IMG) .

.PHONY: image-archive
image-archive: ## Write the manager's image for ARCHIVE_PLATFORMS to IMAGE_ARCHIVE, without a container engine.
	hack/make/image-archive.sh $(IMG) $(IMAGE_ARCHIVE) $(ARCHIVE_PLATFORMS)

.PHONY: docker-push
docker-push: ## Push the manager's image.
	$(CONTAINER_TOOL) push $(IMG)

.PHONY: docker-buildx
docker-buildx: ## Build and push the manager's image for PLATFORMS.
	$(CONTAINER_TOOL) buildx build --push --platform=$(PLATFORMS) --tag $(IMG) .

##@ Deployment

.PHONY: install
install: ## Install the CRD into the current cluster.
	$(KUBECTL) apply --server-side -k config/crd

.PHONY: uninstall
uninstall: ## Remove the CRD, and with it every FencedLease and registration, from the current cluster.
	$(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -k config/crd

.PHONY: deploy
deploy: ## Install everything into the current cluster, with the image IMG.
	KUBECTL=$(KUBECTL) IMG=$(IMG) hack/make/kustomize.sh config/default | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: ## Remove everything from the current cluster.
	$(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -k config/default
