# A private Kubernetes cluster for tests, of one to four nodes. Sourced by ./test; `scripts/kubernetes`
# runs it by hand.
#
# etcd, containerd, runc and the plug-ins of CNI are the distribution's. The programs of Kubernetes are
# built from their Go module once and kept below /var/cache/tare/kubernetes; nothing is installed. With
# TARE_KUBERNETES_CONTAINERD containerd, runc and gVisor's shim are built too, for what an older one cannot do. Each
# node has a network namespace and a mount namespace of its own, with the state of all in one directory.
# The cgroup /kubepods is on the host, because the tests read pods there.
#
# The other nodes are for loaders and for systems on several hosts: each has a kubelet, containerd and
# kube-proxy, its pods in a cgroup of its own, and its own state directory of Tare. A veth pair links it to
# the first node, which routes between all of them. All have the CPUs and the kernel of this machine.

kubernetes_version=${TARE_KUBERNETES_VERSION:-v1.34.1}
# The sums of its module: this version and the two before, to which Tare promises to be compatible.
case $kubernetes_version in
v1.34.1) kubernetes_sum=h1:F3p8dtpv+i8zQoebZeK5zBqM1g9x1aIdnA5vthvcuUk= ;;
v1.33.5) kubernetes_sum=h1:uf0/5VVQodYf61FudCbwtWjg5ApQcKKA7mwanTLjxyw= ;;
v1.32.9) kubernetes_sum=h1:w4Zv/2dVwQKUqCZOSBnMzjMYZQ33TNuSZvbkJ9HEaGE= ;;
*) kubernetes_sum="" ;; # the build refuses it
esac
kubernetes_containerd=${TARE_KUBERNETES_CONTAINERD:-} # the distribution's, if it is empty
case $kubernetes_containerd in
v2.1.9) kubernetes_containerd_sum=h1:lOQQ3qVEtauZCHKh8S2Xph5fGXFX2uZxMHmaslOZtW0= ;;
*) kubernetes_containerd_sum="" ;;
esac
kubernetes_runc=v1.3.7 # beside that containerd
kubernetes_runc_sum=h1:1lQXoPXNbYmUzD4utKkbcBSai3jqmuvJr218kAvIwGc=
kubernetes_cache=/var/cache/tare/kubernetes
kubernetes_programs="kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy"
kubernetes_names="tare-node tare-second tare-third tare-fourth" # of the nodes
kubernetes_nodes=1          # how many of them are started
kubernetes_dir=""         # /tmp/tare-kubernetes-PID.XXXXXX with the script's PID
kubernetes_netns=""       # the first node's network namespace: /proc/PID/ns/net
kubernetes_pids=""
kubernetes_holders=""       # the processes that hold the namespaces of the nodes
kubernetes_command=""
kubernetes_build_pid=""

# --- the programs ---------------------------------------------------------------------------------

# Prints the scripts that build what is missing.
kubernetes_missing() {
    for program in $kubernetes_programs; do
        [ -x "$kubernetes_cache/$kubernetes_version/$program" ] || { echo build && break; }
    done
    [ -n "$kubernetes_containerd" ] || return 0
    for program in containerd containerd-shim-runc-v2 runc; do
        [ -x "$kubernetes_cache/containerd-$kubernetes_containerd/$program" ] || { echo build-containerd && break; }
    done
    [ -x "$kubernetes_cache/gvisor-$runsc_version/containerd-shim-runsc-v1" ] || echo build-gvisor
}

# Whether all programs are built.
kubernetes_found() { [ -z "$(kubernetes_missing)" ]; }

# Builds the programs in the background unless they are there: about 15 minutes of CPU time, once.
# Without Go the tests of Kubernetes skip themselves and say why.
kubernetes_build() {
    if kubernetes_found; then return; fi
    if ! kubernetes_go=$(find_go); then
        say "$script: there is no Go to build Kubernetes with; its tests are skipped"
        return
    fi
    case $("$kubernetes_go" version) in
    *" go1.1"[0-9]* | *" go1.20"*)
        say "$script: $kubernetes_go is too old to build Kubernetes with; its tests are skipped"
        return
        ;;
    esac
    missing=$(kubernetes_missing | tr '\n' ' ')
    say "$script: building Kubernetes $kubernetes_version${kubernetes_containerd:+, containerd $kubernetes_containerd} below $kubernetes_cache" \
        "with Go, as far as they are missing; nothing is installed"
    mkdir -p "$kubernetes_cache"
    kubernetes_build_dir=$(mktemp -d "$kubernetes_cache/build.XXXXXX") || return 0
    # A separate process group, so that its compilers end with it.
    # shellcheck disable=SC2016 # expands in the inner shell
    kubernetes_go=$kubernetes_go kubernetes_build_dir=$kubernetes_build_dir kubernetes_sum=$kubernetes_sum \
        kubernetes_version=$kubernetes_version kubernetes_programs=$kubernetes_programs \
        kubernetes_containerd=$kubernetes_containerd kubernetes_containerd_sum=$kubernetes_containerd_sum \
        kubernetes_runc=$kubernetes_runc kubernetes_runc_sum=$kubernetes_runc_sum \
        runsc_version=$runsc_version runsc_sum=$runsc_sum \
        setsid nice -n 19 sh -euc 'for script in $2; do sh -eu "$1/$script"; done' \
        sh "$root/tests/kubernetes" "$missing" >"$kubernetes_build_dir/log" 2>&1 &
    kubernetes_build_pid=$!
}

# Waits for the build and puts the programs in their places, all or none.
kubernetes_build_ready() {
    [ -n "$kubernetes_build_pid" ] || return 0
    if wait "$kubernetes_build_pid"; then
        for built in "$kubernetes_build_dir"/built/*; do
            rm -rf "${kubernetes_cache:?}/${built##*/}"
            mv "$built" "$kubernetes_cache/"
        done
    else
        tail -n 5 "$kubernetes_build_dir/log" >&2
        say "$script: Kubernetes could not be built; its tests are skipped"
    fi
    kubernetes_build_pid=""
    rm -rf "$kubernetes_build_dir"
}

# Ends a build that is still under way.
kubernetes_build_stop() {
    [ -n "$kubernetes_build_pid" ] || return 0
    kill -TERM -- "-$kubernetes_build_pid" 2>/dev/null || kill -TERM "$kubernetes_build_pid" 2>/dev/null || true
    wait "$kubernetes_build_pid" 2>/dev/null || true
    kubernetes_build_pid=""
    rm -rf "$kubernetes_build_dir"
}

# --- the cluster ------------------------------------------------------------------------------------

# Prints what a cluster needs and this machine lacks.
kubernetes_lacks() {
    for program in etcd containerd ctr runc iptables ip nsenter cc openssl conntrack; do
        command -v "$program" >/dev/null 2>&1 || printf '%s\n' "$program"
    done
    [ -x /usr/lib/cni/bridge ] || printf 'the plug-ins of CNI\n'
    kubernetes_found || printf 'the programs of Kubernetes\n'
}

# Removes the clusters of scripts that were killed before they could clean up. The processes of the node
# ended with their script (pdeathsig), its shims and pods did not. Pods are in one cgroup of the host, so
# a machine has one cluster at a time.
kubernetes_sweep() {
    for old in /tmp/tare-kubernetes-*.*; do
        [ -d "$old" ] || continue
        name=${old##*/}
        name=${name%.*}
        if kill -0 "${name##*-}" 2>/dev/null; then
            fail "process ${name##*-} has a cluster here, $old; wait for its end"
        fi
    done
    for old in /tmp/tare-kubernetes-*.*; do
        [ -d "$old" ] || continue
        say "$script: removing what an earlier run left: $old"
        kubernetes_remove "$old"
    done
}

# kubernetes_hide DIRECTORY...: makes and records the missing directories as mount points. The node's
# mount namespace has an empty file system there.
kubernetes_hide() {
    for dir in "$@"; do
        [ -d "$dir" ] && continue
        # The highest missing directory is the first line, so that all of them can be removed.
        missing=""
        parent=$dir
        while [ ! -d "$parent" ]; do
            missing="$parent
$missing"
            parent=${parent%/*}
        done
        mkdir -p "$dir"
        printf '%s' "$missing" >>"$kubernetes_dir/mount-points"
    done
}

# kubernetes_of NUMBER: sets what belongs to a node: its name, the process that holds its namespaces, its
# directory, its address, the network of its pods, the cgroup above those, and the end of its logs' names.
kubernetes_of() {
    node=$(printf '%s\n' "$kubernetes_names" | cut -d ' ' -f "$1")
    node_holder=$(printf '%s\n' "$kubernetes_holders" | cut -d ' ' -f "$1")
    case $1 in
    1) node_dir=$kubernetes_dir node_cgroup=/ node_log="" ;;
    *) node_dir=$kubernetes_dir/node-$1 node_cgroup=/kubepods-$node node_log=-$1 ;;
    esac
    node_address=192.0.2.$1
    node_pods=10.244.$(($1 - 1)).0/24
}

# kubernetes_hold NUMBER: starts the process that holds the namespaces of a node, and waits until they are
# there.
kubernetes_hold() {
    hidden="/run/containerd /run/netns /var/lib/cni /var/log/pods /var/log/containers /var/lib/kubelet"
    # shellcheck disable=SC2086 # a list, split on purpose
    kubernetes_hide $hidden /var/lib/tare
    # shellcheck disable=SC2016 # expands in the inner shell
    setsid setpriv --pdeathsig KILL unshare --net --mount --propagation slave sh -ec '
        for own in $2; do mount --no-mtab -t tmpfs tare-kubernetes "$own"; done
        ip link set lo up
        # The end of another node is linked to the first one later.
        if [ "$3" = 1 ]; then
            ip link add tare-node0 type veth peer name tare-node1
            ip link set tare-node1 up
        else
            mkdir -p "$1/node-$3/tare"
            mount --no-mtab --bind "$1/node-$3/tare" /var/lib/tare
        fi
        echo 1 >/proc/sys/net/ipv4/ip_forward
        readlink /proc/self/ns/net >"$1/netns-$3.part"
        mv "$1/netns-$3.part" "$1/netns-$3"
        exec sleep infinity
    ' sh "$kubernetes_dir" "$hidden" "$1" >"$kubernetes_dir/holder-$1.log" 2>&1 &
    holder=$!
    [ "$1" != 1 ] || kubernetes_netns=/proc/$holder/ns/net
    kubernetes_holders="${kubernetes_holders:+$kubernetes_holders }$holder"
    kubernetes_wait "holder-$1" "$holder" 100 test -e "$kubernetes_dir/netns-$1"
}

# kubernetes_ip NUMBER ARGUMENTS: runs ip in a node's network namespace.
kubernetes_ip() {
    kubernetes_of "$1"
    shift
    nsenter --net="/proc/$node_holder/ns/net" ip "$@"
}

# Gives the first node the address that pods and kubelet use, and a default route, which kubelet wants.
kubernetes_address() {
    kubernetes_ip 1 address add 192.0.2.1/24 dev tare-node0 &&
        kubernetes_ip 1 link set tare-node0 up &&
        kubernetes_ip 1 route add default via 192.0.2.254 dev tare-node0
}

# kubernetes_link NUMBER: links another node to the first one, which routes between the nodes and their pods.
kubernetes_link() {
    kubernetes_of "$1"
    link=tare-node$1 address=$node_address pods=$node_pods
    kubernetes_ip 1 link add "$link" type veth peer name tare-node0 netns "$node_holder" &&
        kubernetes_ip 1 link set "$link" up &&
        kubernetes_ip 1 route add "$address" dev "$link" src 192.0.2.1 &&
        kubernetes_ip 1 route add "$pods" via "$address" &&
        kubernetes_ip "$1" address add "$address/32" dev tare-node0 &&
        kubernetes_ip "$1" link set tare-node0 up &&
        kubernetes_ip "$1" route add 192.0.2.1 dev tare-node0 src "$address" &&
        kubernetes_ip "$1" route add default via 192.0.2.1
}

# kubernetes_cgroup PATH: makes the cgroup in which a kubelet makes that of its pods, in every hierarchy.
# Version 1 has one for each controller, and a new one of cpuset has neither CPUs nor memory nodes.
kubernetes_cgroup() {
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        mkdir "/sys/fs/cgroup$1" && echo "+cpu +cpuset +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
        return
    fi
    for hierarchy in /sys/fs/cgroup/*; do
        if [ -L "$hierarchy" ] || [ ! -e "$hierarchy/cgroup.procs" ]; then continue; fi
        mkdir "$hierarchy$1" || return 1
        [ -e "$hierarchy/cpuset.cpus" ] || continue
        for of in cpus mems; do cat "$hierarchy/cpuset.$of" >"$hierarchy$1/cpuset.$of" || return 1; done
    done
}

# kubernetes_huge_pages NUMBER: reserves so many huge pages of 2 MiB, which kubelets count at their start, and
# mounts their controller where cgroups are of version 1 and it is not mounted. What was before is recorded.
kubernetes_huge_pages() {
    cat /proc/sys/vm/nr_hugepages >"$kubernetes_dir/huge-pages"
    echo $(($(cat /proc/sys/vm/nr_hugepages) + $1)) >/proc/sys/vm/nr_hugepages
    if [ -d /sys/fs/cgroup/memory ] && [ ! -d /sys/fs/cgroup/hugetlb ]; then
        touch "$kubernetes_dir/hugetlb"
        mkdir /sys/fs/cgroup/hugetlb && mount --no-mtab -t cgroup -o hugetlb tare-kubernetes /sys/fs/cgroup/hugetlb
    fi
}

# kubernetes_wait NAME PID TRIES COMMAND...: waits until the command succeeds, at most TRIES tenths of a
# second. If the process ends first or it takes too long, its last words are printed.
kubernetes_wait() {
    waiting=$1 process=$2 tries=$3
    shift 3
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ] || ! kill -0 "$process" 2>/dev/null; then
            tail -n 20 "$kubernetes_dir/$waiting.log" >&2
            say "$script: $waiting did not get ready"
            return 1
        fi
        sleep 0.1
    done
}

# kubernetes_run NAME COMMAND...: starts a program in the namespaces of the node that kubernetes_of set.
kubernetes_run() {
    program=$1
    shift
    setsid setpriv --pdeathsig TERM nsenter --net="/proc/$node_holder/ns/net" \
        --mount="/proc/$node_holder/ns/mnt" "$@" >"$kubernetes_dir/$program.log" 2>&1 &
    kubernetes_pid=$!
    kubernetes_pids="$kubernetes_pid $kubernetes_pids"
}

# kubernetes_run_again NAME COMMAND...: starts a program as kubernetes_run does. A test may kill the process
# whose number is in NAME.pid: as long as the file NAME.down is there, it is not started again.
kubernetes_run_again() {
    again=$kubernetes_dir/$1 program=$1
    shift
    # shellcheck disable=SC2016 # expands in the inner shell
    kubernetes_run "$program" sh -c '
        own=$1 child=""
        shift
        trap "[ -z \"\$child\" ] || kill \"\$child\"; wait; exit 143" TERM
        while true; do
            "$@" &
            child=$!
            echo "$child" >"$own.pid"
            status=0
            wait "$child" || status=$?
            child=""
            [ -e "$own.down" ] || exit "$status"
            while [ -e "$own.down" ]; do sleep 0.2; done
        done
    ' sh "$again" "$@"
}

# kubernetes_get PATH: asks the API server as the administrator, without a client of Kubernetes.
kubernetes_get() {
    printf 'GET %s HTTP/1.0\r\nAuthorization: Bearer %s\r\n\r\n' "$1" "$kubernetes_token" |
        nsenter --net="$kubernetes_netns" timeout 5 openssl s_client -quiet -verify_return_error \
            -CAfile "$kubernetes_dir/pki/apiserver.crt" -connect 127.0.0.1:6443 2>/dev/null
}

kubernetes_api_ready() { kubernetes_get /readyz | grep -q '^ok'; }

# kubernetes_node_ready NAME
kubernetes_node_ready() {
    kubernetes_get "/api/v1/nodes/$1" | tr -d ' \n' |
        grep -q '"type":"Ready","status":"True"'
}

# Pods of a namespace start only when its account is there, which a controller makes.
kubernetes_account_ready() {
    kubernetes_get /api/v1/namespaces/default/serviceaccounts/default | grep -q '"uid"'
}

# kubernetes_access FILE USER TOKEN [ADDRESS]: writes the access of a user, as kubectl writes it. ADDRESS is
# that of the API server, where it is on another node.
kubernetes_access() {
    cat >"$1" <<ACCESS
apiVersion: v1
kind: Config
clusters:
- name: tare
  cluster:
    server: "https://${4:-127.0.0.1}:6443"
    # The address in the certificate.
    tls-server-name: "192.0.2.1"
    certificate-authority: "$kubernetes_dir/pki/apiserver.crt"
users:
- name: $2
  user: {token: "$3"}
contexts:
- name: $2
  context: {cluster: tare, user: $2}
current-context: $2
ACCESS
}

kubernetes_secret() { openssl rand -hex 16; }

# Makes an image of one static program: the archive that docker save writes, with one layer.
kubernetes_image() {
    image=$1 program=$2 archive=$3
    work=$(mktemp -d "$kubernetes_dir/image.XXXXXX")
    mkdir "$work/layer"
    cp "$program" "$work/layer/${program##*/}"
    tar --create --file "$work/layer.tar" --owner 0 --group 0 --directory "$work/layer" .
    digest=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
    printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/%s"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
        "$(dpkg --print-architecture)" "${program##*/}" "$digest" >"$work/config.json"
    printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$image" >"$work/manifest.json"
    tar --create --file "$archive" --directory "$work" manifest.json config.json layer.tar
    rm -rf "$work"
}

kubernetes_configure() {
    dir=$kubernetes_dir
    mkdir -p "$dir/pki" "$dir/access"
    kubernetes_token=$(kubernetes_secret)
    powerless=$(kubernetes_secret)
    (
        umask 077
        printf '%s,admin,admin,system:masters\n%s,powerless,powerless\n' "$kubernetes_token" "$powerless" \
            >"$dir/pki/tokens"
        openssl genrsa -out "$dir/pki/accounts.key" 2048 2>/dev/null
        openssl rsa -in "$dir/pki/accounts.key" -pubout -out "$dir/pki/accounts.pub" 2>/dev/null
    )
    kubernetes_access "$dir/access/admin" admin "$kubernetes_token"
    # A user without rights, for the tests of what is refused.
    kubernetes_access "$dir/access/powerless" powerless "$powerless"
    # The kubelets and the proxies of the other nodes.
    kubernetes_access "$dir/access/other" admin "$kubernetes_token" 192.0.2.1
    TARE_KUBERNETES_GVISOR="" # the handler of a runtime class, if the nodes have it
    for number in $(seq "$kubernetes_nodes"); do kubernetes_configure_node "$number" || return 1; done
}

# kubernetes_configure_node NUMBER: configures containerd, CNI and kubelet. With other nodes, pods reach
# their pods with their own address. Only the first one gives pods CPUs of their own.
kubernetes_configure_node() {
    kubernetes_of "$1"
    dir=$node_dir
    mkdir -p "$dir/cni" "$dir/containerd" "$dir/kubelet" "$dir/pki"
    manager=${TARE_KUBERNETES_CPU_MANAGER:-static}
    [ "$1" = 1 ] || manager=none
    masquerade=true
    [ "$kubernetes_nodes" = 1 ] || masquerade=false
    cat >"$dir/containerd.toml" <<CONTAINERD
# Version 2.0 and later convert it.
version = 2
root = "$dir/containerd/root"
state = "$dir/containerd/state"
oom_score = 0
# It would listen in /var/run.
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "$dir/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "tare.test/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
CONTAINERD
    kubernetes_configure_gvisor
    cat >"$dir/cni/10-tare.conflist" <<CNI
{"cniVersion": "0.4.0", "name": "tare", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": $masquerade, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$node_pods"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
CNI
    cat >"$dir/kubelet.yaml" <<KUBELET
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failSwapOn: false
failCgroupV1: false
containerRuntimeEndpoint: "unix://$dir/containerd.sock"
cpuManagerPolicy: $manager
cgroupRoot: $node_cgroup
reservedSystemCPUs: "0"
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
podLogsDir: /var/log/pods
volumePluginDir: "$dir/kubelet/plugins-none"
registerNode: true
nodeStatusUpdateFrequency: 2s
KUBELET
}

# Adds gVisor's runsc to the runtimes of the containerd of the node that kubernetes_of set, if both are there.
# Its shim speaks to containerd 2.0 and later.
kubernetes_configure_gvisor() {
    [ -n "$kubernetes_containerd" ] || return 0
    runsc=$(find_runsc) || return 0
    cat >>"$node_dir/containerd.toml" <<CONTAINERD
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc]
    runtime_type = "io.containerd.runsc.v1"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc.options]
      TypeUrl = "io.containerd.runsc.v1.options"
      ConfigPath = "$node_dir/runsc.toml"
CONTAINERD
    printf 'binary_name = "%s"\nroot = "%s"\n' "$runsc" "$node_dir/runsc" >"$node_dir/runsc.toml"
    TARE_KUBERNETES_GVISOR=runsc
}

# kubernetes_runtime NUMBER: starts containerd on a node, and gives it the image of the pause program.
kubernetes_runtime() {
    kubernetes_of "$1"
    socket=$node_dir/containerd.sock
    # It finds its shims there, which find runc.
    path=${kubernetes_containerd:+$kubernetes_cache/containerd-$kubernetes_containerd:$kubernetes_cache/gvisor-$runsc_version:}$PATH
    kubernetes_run "containerd$node_log" env PATH="$path" containerd --config "$node_dir/containerd.toml"
    kubernetes_wait "containerd$node_log" "$kubernetes_pid" 300 ctr --address "$socket" version || return 1
    nsenter --net="/proc/$node_holder/ns/net" --mount="/proc/$node_holder/ns/mnt" \
        ctr --address "$socket" --namespace k8s.io images import "$kubernetes_dir/pause.tar" >/dev/null
}

# kubernetes_kubelet NUMBER ACCESS: starts kubelet and kube-proxy on a node, and waits until it takes pods.
kubernetes_kubelet() {
    kubernetes_of "$1"
    kubernetes_run "kubelet$node_log" "$bin/kubelet" --config="$node_dir/kubelet.yaml" --kubeconfig="$2" \
        --hostname-override="$node" --root-dir="$node_dir/kubelet" --cert-dir="$node_dir/pki/kubelet" \
        --node-ip="$node_address"
    kubernetes_wait "kubelet$node_log" "$kubernetes_pid" 1200 kubernetes_node_ready "$node" || return 1
    kubernetes_run "kube-proxy$node_log" "$bin/kube-proxy" --kubeconfig="$2" --proxy-mode="${TARE_KUBERNETES_PROXY:-iptables}" \
        --hostname-override="$node" --conntrack-max-per-core=0 \
        --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
        --bind-address=127.0.0.1 --metrics-bind-address=127.0.0.1:10249
}

# Starts the cluster and waits until its nodes take pods. Exports KUBECONFIG and where the tests find
# the first node, and the names of the others, separated by spaces.
kubernetes_start() {
    lacks=$(kubernetes_lacks | tr '\n' ' ')
    [ -z "$lacks" ] || fail "a cluster needs what this machine lacks: $lacks"
    kubernetes_sweep
    for cgroup in /sys/fs/cgroup/kubepods /sys/fs/cgroup/*/kubepods; do
        [ ! -d "$cgroup" ] || fail "this machine has the cgroup $cgroup, so a kubelet runs on it"
    done
    kubernetes_dir=$(mktemp -d "/tmp/tare-kubernetes-$$.XXXXXX")
    # The users of a pod with a user namespace pass it on the way to their files.
    chmod 711 "$kubernetes_dir"
    if [ -n "${TARE_KUBERNETES_HUGE_PAGES:-}" ]; then
        kubernetes_huge_pages "$TARE_KUBERNETES_HUGE_PAGES" || return 1
    fi
    kubernetes_hold 1 || return 1
    kubernetes_address || return 1
    for number in $(seq 2 "$kubernetes_nodes"); do
        kubernetes_hold "$number" || return 1
        kubernetes_link "$number" || return 1
        kubernetes_cgroup "$node_cgroup" || return 1
    done
    kubernetes_configure || return 1
    dir=$kubernetes_dir bin=$kubernetes_cache/$kubernetes_version
    cc -static -O2 -o "$dir/pause" "$root/tests/kubernetes/pause.c" || return 1
    kubernetes_image tare.test/pause:1 "$dir/pause" "$dir/pause.tar"

    kubernetes_of 1
    kubernetes_run etcd etcd --data-dir "$dir/etcd" --unsafe-no-fsync \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380
    kubernetes_run_again kube-apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
        --bind-address=0.0.0.0 --advertise-address=192.0.2.1 --secure-port=6443 --cert-dir="$dir/pki" \
        --token-auth-file="$dir/pki/tokens" --authorization-mode=RBAC \
        --service-account-key-file="$dir/pki/accounts.pub" \
        --service-account-signing-key-file="$dir/pki/accounts.key" \
        --service-account-issuer=https://kubernetes.default.svc \
        --service-cluster-ip-range=10.96.0.0/24 --allow-privileged=true \
        --kubelet-preferred-address-types=InternalIP
    server=$kubernetes_pid
    for number in $(seq "$kubernetes_nodes"); do kubernetes_runtime "$number" || return 1; done
    kubernetes_wait kube-apiserver "$server" 1200 kubernetes_api_ready || return 1
    kubernetes_of 1
    kubernetes_run kube-controller-manager "$bin/kube-controller-manager" --kubeconfig="$dir/access/admin" \
        --bind-address=127.0.0.1 --leader-elect=false --cert-dir="$dir/pki/controllers" \
        --service-account-private-key-file="$dir/pki/accounts.key"
    controllers=$kubernetes_pid
    kubernetes_run kube-scheduler "$bin/kube-scheduler" --kubeconfig="$dir/access/admin" \
        --bind-address=127.0.0.1 --leader-elect=false --cert-dir="$dir/pki/scheduler"
    kubernetes_kubelet 1 "$dir/access/admin" || return 1
    TARE_KUBERNETES_OTHERS=""
    for number in $(seq 2 "$kubernetes_nodes"); do
        kubernetes_kubelet "$number" "$dir/access/other" || return 1
        TARE_KUBERNETES_OTHERS="$TARE_KUBERNETES_OTHERS${TARE_KUBERNETES_OTHERS:+ }$node"
    done
    kubernetes_wait kube-controller-manager "$controllers" 600 kubernetes_account_ready || return 1
    KUBECONFIG=$dir/access/admin
    TARE_KUBERNETES_NETNS=$kubernetes_netns
    export KUBECONFIG TARE_KUBERNETES_NETNS TARE_KUBERNETES_OTHERS TARE_KUBERNETES_GVISOR
    say "$script: a private cluster answers in the network namespace $kubernetes_netns"
}

# Ends the cluster that kubernetes_start started and removes it. Idempotent.
kubernetes_stop() {
    if [ -n "$kubernetes_command" ]; then
        kill -TERM "$kubernetes_command" 2>/dev/null || true
        wait "$kubernetes_command" 2>/dev/null || true
        kubernetes_command=""
    fi
    kubernetes_end_started
    [ -n "$kubernetes_dir" ] || return 0
    for pid in $kubernetes_pids; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in $kubernetes_pids; do
        tries=100
        while [ "$tries" -gt 0 ] && kill -0 "$pid" 2>/dev/null; do
            tries=$((tries - 1))
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    for holder in $kubernetes_holders; do
        kill -KILL "$holder" 2>/dev/null || true
        wait "$holder" 2>/dev/null || true
    done
    kubernetes_remove "$kubernetes_dir"
    kubernetes_dir="" kubernetes_pids="" kubernetes_holders=""
}

# Ends what the command has started and not waited for, while the cluster still answers: a study then
# thaws and removes its environments. These processes have the variable of the node.
kubernetes_end_started() {
    [ -n "$kubernetes_netns" ] || return 0
    tries=300
    while [ "$tries" -gt 0 ]; do
        started=""
        for process in $(kubernetes_processes "$kubernetes_dir"); do
            if tr '\0' '\n' <"/proc/$process/environ" | grep -qxF "TARE_KUBERNETES_NETNS=$kubernetes_netns"
            then started="$started $process"; fi
        done 2>/dev/null
        [ -n "$started" ] || return 0
        # A second signal would make Tare leave what it is removing.
        if [ "$tries" = 300 ]; then
            for process in $started; do kill -TERM "$process" 2>/dev/null || true; done
        fi
        tries=$((tries - 1))
        sleep 0.1
    done
}

# kubernetes_thaw PROCESS: thaws the cgroup of a process and those above it, because a frozen process of
# version 1 cannot end. In version 2 it can.
kubernetes_thaw() {
    frozen=$(sed -n 's/^[0-9]*:freezer://p' "/proc/$1/cgroup" 2>/dev/null) || return 0
    while [ -n "${frozen#/}" ]; do
        echo THAWED >"/sys/fs/cgroup/freezer$frozen/freezer.state" || true
        frozen=${frozen%/*}
    done 2>/dev/null
}

# kubernetes_processes DIRECTORY: prints the processes in the network namespaces of the nodes.
kubernetes_processes() {
    all=$(cat "$1"/netns* 2>/dev/null || true)
    [ -n "$all" ] || return 0
    for process in /proc/[0-9]*; do
        netns=$(readlink "$process/ns/net" 2>/dev/null) || continue
        if printf '%s\n' "$all" | grep -qxF "$netns"; then printf '%s\n' "${process#/proc/}"; fi
    done
}

# kubernetes_remove DIRECTORY: kills what is left in the nodes' network namespaces (shims) and cgroups
# (pods), then removes cgroups and directory. Mounts, links and chains end with the namespaces.
kubernetes_remove() {
    tries=100
    while [ "$tries" -gt 0 ]; do
        groups=$(find /sys/fs/cgroup -depth -type d -path '*/kubepods*' 2>/dev/null || true)
        left=$(kubernetes_processes "$1")
        for group in $groups; do left="$left $(cat "$group/cgroup.procs" 2>/dev/null || true)"; done
        [ -n "$(printf '%s' "$left" | tr -d ' \n')" ] || break
        for process in $left; do
            kill -KILL "$process" 2>/dev/null || true
            kubernetes_thaw "$process"
        done
        tries=$((tries - 1))
        sleep 0.1
    done
    for group in $groups; do rmdir "$group" 2>/dev/null || true; done
    if [ -e "$1/hugetlb" ]; then
        umount --no-mtab /sys/fs/cgroup/hugetlb 2>/dev/null || true
        rmdir /sys/fs/cgroup/hugetlb 2>/dev/null || true
    fi
    if [ -e "$1/huge-pages" ]; then cat "$1/huge-pages" >/proc/sys/vm/nr_hugepages; fi
    # The deepest directory first.
    if [ -e "$1/mount-points" ]; then
        sort -r "$1/mount-points" | while read -r dir; do rmdir "$dir" 2>/dev/null || true; done
    fi
    rm -rf "$1"
}
