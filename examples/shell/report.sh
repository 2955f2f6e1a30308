#!/usr/bin/env bash
# A job that knows nothing of leases. Under
#
#   kubectl fencedlease run report-writer -n reports -- examples/shell/report.sh daily "all is well"
#
# it starts when the lease is held, its kubectl is fenced by the kubeconfig that it is given, and it is ended when the lease is lost.
set -euo pipefail

name=${1:?name of the report}
text=${2:?text of the report}

echo "writing report $name under ${FENCEDLEASE_TOKEN:?start this with kubectl fencedlease run}"
kubectl apply --server-side --force-conflicts --field-manager=report-job -f - <<YAML
apiVersion: example.com/v1
kind: Report
metadata:
  name: $name
  namespace: reports
spec:
  value: "$text"
YAML
