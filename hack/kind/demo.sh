#!/usr/bin/env bash
# Plays the demo's scenes on a kind cluster with real kubelets: `make kind-demo`, or KEEP=1 to leave the cluster up.
# Every claim is checked; the first false one ends the script with 1. Needs docker, kind and kubectl; touches no cluster
# but the one it creates, and no kubeconfig but its own.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "${here}/../.." && pwd)"
cluster="${KIND_CLUSTER:-gangsched}"
keep="${KEEP:-0}"
gpus_per_node=8
patience_s=120

fail() {
  printf 'kind-demo: %s\n' "$*" >&2
  exit 1
}

say() {
  printf '\n== %s\n' "$*"
}

need() { # need COMMAND FIX
  command -v "$1" >/dev/null 2>&1 || fail "'$1' is not installed; $2"
}

need docker "see https://docs.docker.com/engine/install/, or run 'make demo', which needs no containers."
need kind "see https://kind.sigs.k8s.io/docs/user/quick-start/#installation."
need kubectl "see https://kubernetes.io/docs/tasks/tools/."
docker info >/dev/null 2>&1 || fail "the Docker engine does not answer; start it, or run 'make demo', which needs none."
if kind get clusters 2>/dev/null | grep -Fx -- "${cluster}" >/dev/null; then
  fail "a kind cluster '${cluster}' exists; run 'kind delete cluster --name ${cluster}' or set KIND_CLUSTER."
fi

work="$(mktemp -d)"
export KUBECONFIG="${work}/kubeconfig"

clean_up() {
  local code=$?
  trap - EXIT INT TERM
  if [[ "${code}" -ne 0 ]] && [[ -s "${KUBECONFIG}" ]]; then
    kubectl get pods,podgroups.scheduling.x-k8s.io --all-namespaces -o wide || true
    kubectl -n gangsched-system logs deployment/gangsched --tail=50 || true
  fi
  if [[ "${keep}" == 1 ]] && [[ -s "${KUBECONFIG}" ]]; then
    printf '\nThe cluster is up. export KUBECONFIG=%s\n' "${KUBECONFIG}"
    printf 'Remove it with: kind delete cluster --name %s\n' "${cluster}"
  else
    kind delete cluster --name "${cluster}" >/dev/null 2>&1 || true
    rm -rf -- "${work}"
  fi
  exit "${code}"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

bound() { # bound PREFIX [NAMESPACE]: how many pods whose name starts with PREFIX have a node
  kubectl -n "${2:-default}" get pods \
    -o jsonpath='{range .items[?(@.spec.nodeName)]}{.metadata.name}{"\n"}{end}' |
    grep -c -- "^$1" || true
}

expect_bound() { # expect_bound COUNT PREFIX [NAMESPACE]: waits until exactly COUNT are bound
  local until=$((SECONDS + patience_s))
  while [[ "$(bound "$2" "${3:-default}")" -ne "$1" ]]; do
    ((SECONDS < until)) || fail "expected $1 bound pods named $2*, found $(bound "$2" "${3:-default}")."
    sleep 0.5
  done
  printf '   ok: %s pods named %s* are bound\n' "$1" "$2"
}

expect_refused() { # expect_refused POD: waits for a PodScheduled=False with a sentence and prints it
  local until=$((SECONDS + patience_s)) message=""
  while [[ -z "${message}" ]]; do
    ((SECONDS < until)) || fail "pod $1 was never told why it waits."
    sleep 0.5
    message="$(kubectl get pod "$1" \
      -o jsonpath='{.status.conditions[?(@.type=="PodScheduled")].message}')"
  done
  printf '   ok: %s says: %s\n' "$1" "${message}"
}

gang() { # gang NAME MEMBERS GPUS: a PodGroup and its pods on stdout
  cat <<YAML
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: $1}
spec: {minMember: $2}
YAML
  local i
  for ((i = 0; i < $2; i++)); do
    cat <<YAML
---
apiVersion: v1
kind: Pod
metadata:
  name: $1-${i}
  labels: {scheduling.x-k8s.io/pod-group: $1}
spec:
  schedulerName: gangsched
  terminationGracePeriodSeconds: 0
  containers:
    - name: worker
      image: registry.k8s.io/pause:3.10
      resources: {limits: {nvidia.com/gpu: "$3"}}
YAML
  done
}

drop() { # drop FILE: deletes what FILE applied and waits until it is gone
  kubectl delete --wait=true --ignore-not-found -f "$1" >/dev/null
}

say "A kind cluster with three workers"
kind create cluster --name "${cluster}" --config "${here}/cluster.yaml" --kubeconfig "${KUBECONFIG}" --wait 180s

say "The image, built here and loaded into the nodes"
# To the end of its input: kubectl would die of SIGPIPE, and the script with it.
image="$(kubectl kustomize "${here}" | awk '$1 == "image:" && !image {print image = $2}')"
docker build --tag "${image}" "${root}"
kind load docker-image "${image}" --name "${cluster}"

say "${gpus_per_node} fake GPUs on each worker"
workers="$(kubectl get nodes --selector '!node-role.kubernetes.io/control-plane' \
  -o jsonpath='{.items[*].metadata.name}')"
for node in ${workers}; do
  kubectl patch node "${node}" --subresource=status --type=json --patch \
    "[{\"op\": \"add\", \"path\": \"/status/capacity/nvidia.com~1gpu\", \"value\": \"${gpus_per_node}\"}]"
  kubectl wait "node/${node}" --timeout="${patience_s}s" \
    --for=jsonpath='{.status.allocatable.nvidia\.com/gpu}'="${gpus_per_node}"
done

say "gangsched, as kubectl apply -k installs it"
kubectl apply -k "${here}"
kubectl wait --for=condition=Established --timeout="${patience_s}s" \
  crd/podgroups.scheduling.x-k8s.io
kubectl -n gangsched-system rollout status deployment/gangsched --timeout="${patience_s}s"

say "A PodGroup gang that fits"
kubectl apply -f "${root}/examples/podgroup-gang.yaml"
expect_bound 4 resnet-
drop "${root}/examples/podgroup-gang.yaml"

say "A gang of three whole nodes while one GPU is taken: none is bound, and it says why"
gang small 1 1 >"${work}/small.yaml"
kubectl apply -f "${work}/small.yaml"
expect_bound 1 small-
gang big 3 "${gpus_per_node}" >"${work}/big.yaml"
kubectl apply -f "${work}/big.yaml"
expect_refused big-0
expect_bound 0 big-

say "The GPU is given back: the gang starts by itself"
drop "${work}/small.yaml"
expect_bound 3 big-
drop "${work}/big.yaml"

say "Two gangs race for room that is enough for one"
gang red 2 "${gpus_per_node}" >"${work}/red.yaml"
gang blue 2 "${gpus_per_node}" >"${work}/blue.yaml"
kubectl apply -f "${work}/red.yaml" -f "${work}/blue.yaml"
until=$((SECONDS + patience_s))
while [[ "$(bound red-)$(bound blue-)" != 20 ]] && [[ "$(bound red-)$(bound blue-)" != 02 ]]; do
  ((SECONDS < until)) || fail "expected one gang whole and one untouched: red $(bound red-), blue $(bound blue-)."
  sleep 0.5
done
printf '   ok: red has %s bound, blue has %s\n' "$(bound red-)" "$(bound blue-)"
drop "${work}/red.yaml"
drop "${work}/blue.yaml"

say "A gang by annotations alone"
kubectl apply -f "${root}/examples/annotation-gang.yaml"
expect_bound 3 etl-
drop "${root}/examples/annotation-gang.yaml"

say "A launcher and its workers, as mpi-operator creates them"
kubectl apply -f "${root}/examples/mpi-launcher-workers.yaml"
expect_bound 3 pi-

say "A head and its workers, as KubeRay creates them"
kubectl apply -f "${root}/examples/kuberay-head-workers.yaml"
expect_bound 3 raycluster-

say "Where everything is"
kubectl get podgroups.scheduling.x-k8s.io
kubectl get pods -o wide
printf '\nAll scenes played as claimed.\n'
