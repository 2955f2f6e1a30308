// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// writeConfiguration writes the files that the node's programs read.
func writeConfiguration(p place) error {
	for name, text := range map[string]string{
		"containerd.toml":        containerdConfig,
		"cni/10-bridge.conflist": cniConfig,
		"kubelet.yaml":           kubeletConfig,
		"kube-proxy.yaml":        proxyConfig,
		"resolv.conf":            "nameserver 10.96.0.10\n",
		"kubelet-plugins/.keep":  "",
		"logs/pods/.keep":        "",
	} {
		text = strings.NewReplacer("$PLACE", string(p), "$SOCKET", p.socket(), "$PAUSE", pauseImage, "$CNI", cniPlugins,
			"$PODS", podNetwork, "$GROUP", groupName).Replace(text)
		if err := p.write(name, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// restrict_oom_score_adj: without the capability CAP_SYS_RESOURCE no score can be lowered, and no pod would start.
const containerdConfig = `version = 2
root = "$PLACE/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "$SOCKET"
[plugins."io.containerd.internal.v1.opt"]
  path = "$PLACE/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE"
  restrict_oom_score_adj = true
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$CNI"
    conf_dir = "$PLACE/cni"
`

const cniConfig = `{
  "cniVersion": "0.4.0",
  "name": "fencedlease-node",
  "plugins": [{
    "type": "bridge",
    "bridge": "cni0",
    "isGateway": true,
    "hairpinMode": true,
    "ipMasq": false,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "$PODS"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

// failCgroupV1: the machine may have the first version of control groups only.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /$GROUP
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://$SOCKET
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PLACE/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PLACE/pki/kubelet.crt
tlsPrivateKeyFile: $PLACE/pki/kubelet.key
podLogsDir: $PLACE/logs/pods
volumePluginDir: $PLACE/kubelet-plugins
resolvConf: $PLACE/resolv.conf
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
# Images come from archives, so none may be collected.
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
makeIPTablesUtilChains: false
shutdownGracePeriod: 0s
# How soon changed Secrets are seen in pods: a minute is long for a test.
syncFrequency: 10s
`

// conntrack: its limits belong to the machine.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: $PODS
clientConnection: {kubeconfig: $PLACE/kube-proxy.kubeconfig}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`
