# Who has which address in the cluster; sourced by cluster and machine.
# shellcheck shell=bash disable=SC2034  # used where it is sourced

bridge=es-bridge
host_address=10.99.0.1
control_address=10.99.0.2
dns_address=$control_address
api_url=https://$control_address:6443
service_subnet=10.96.0.0/16
first_service_address=10.96.0.1
max_nodes=9

node_address() { echo "10.99.0.$((10 + $1))"; }   # INDEX
pod_subnet() { echo "10.$((100 + $1)).0.0/24"; }  # INDEX

# Routes to the pods of every node but INDEX ("" for none), from inside a machine or on the host.
route_to_pods() { # NODES INDEX
  local i
  for ((i = 0; i < $1; i++)); do
    [[ "$i" == "$2" ]] || ip route replace "$(pod_subnet "$i")" via "$(node_address "$i")"
  done
}

# The folders of a node in the mounted cgroup hierarchies (one in version 2).
cgroup_folders() { # NAME
  local controller
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    echo "/sys/fs/cgroup/everstep-$1"
    return
  fi
  for controller in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
    echo "/sys/fs/cgroup/$controller/everstep-$1"
  done
}
