// The modules whose definitions tests install: nothing of them is compiled.
module github.com/fencedlease/fencedlease/hack/crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
