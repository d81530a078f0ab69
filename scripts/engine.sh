# Private container engines for tests if no engine answers: dockerd, and the service of Podman if it is
# installed. Sourced by ./test; `engine` runs them by hand.
#
# Everything that they make is in their own network namespaces, mount namespaces, cgroups and
# directory, so that they do not touch an engine of the host and leave nothing behind.

engine_dir="" # /tmp/tare-engine-PID.XXXXXX with the script's PID; the cgroups have the same name
engine_pids=""

# engine_socket VARIABLE USUAL: prints the socket at which the tests look for an engine.
engine_socket() {
    eval "value=\${$1:-}"
    case "$value" in
    unix://*) printf '%s\n' "${value#unix://}" ;;
    *) printf '%s\n' "$2" ;;
    esac
}

# Every Debian has perl. Elsewhere a missing perl reads as "no engine".
engine_answers() {
    socket=$(engine_socket "$1" "$2")
    perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer => $ARGV[0])' "$socket" 2>/dev/null
}

docker_answers() { engine_answers DOCKER_HOST /var/run/docker.sock; }

podman_answers() { engine_answers CONTAINER_HOST /run/podman/podman.sock; }

# Removes the engines of scripts that were killed before they could clean up. The engine itself ended
# with its script (pdeathsig).
engine_sweep() {
    for old in /tmp/tare-engine-*.*; do
        [ -d "$old" ] || continue
        name=${old##*/}
        name=${name%.*}
        kill -0 "${name##*-}" 2>/dev/null && continue
        say "$script: removing what an earlier run left: $old"
        engine_remove "$old"
    done
}

# Wraps crun, because crun before 1.9 refuses a host with both cgroup versions. The wrapper hides the
# second one.
engine_crun() {
    cat >"$engine_dir/crun" <<'WRAPPER'
#!/bin/sh
if [ -d /sys/fs/cgroup/unified ]; then
    exec unshare --mount sh -c 'umount --no-mtab /sys/fs/cgroup/unified; exec crun "$@"' crun "$@"
fi
exec crun "$@"
WRAPPER
    chmod 755 "$engine_dir/crun"
}

# Prints the options for the runtimes of gVisor if `runsc` is installed. An engine cannot pass options
# to a runtime per container, so each set of options is a separate runtime.
engine_gvisor() {
    runsc=$(find_runsc) || return 0
    printf '#!/bin/sh\nexec "%s" --platform=ptrace "$@"\n' "$runsc" >"$engine_dir/runsc-ptrace"
    chmod 755 "$engine_dir/runsc-ptrace"
    printf -- '--add-runtime=runsc=%s --add-runtime=runsc-ptrace=%s\n' \
        "$runsc" "$engine_dir/runsc-ptrace"
}

# Makes the directory of the engines that this script starts.
engine_make_dir() {
    [ -z "$engine_dir" ] || return 0
    engine_name=tare-engine-$$
    engine_dir=$(mktemp -d "/tmp/$engine_name.XXXXXX")
}

# engine_hide DIRECTORY...: makes and records the missing directories as mount points. The engines have
# these paths built in. Their mount namespaces have an empty file system there, so that the host only
# ever sees an empty directory.
engine_hide() {
    for dir in "$@"; do
        [ -d "$dir" ] && continue
        mkdir -p "$dir"
        printf '%s\n' "$dir" >>"$engine_dir/mount-points"
    done
}

# engine_run NAME SOCKET HIDDEN COMMAND...: starts an engine in its own namespaces, hides the
# directories HIDDEN (a list) from it, and waits until its socket answers.
engine_run() {
    engine=$1 socket=$2 hidden=$3
    shift 3
    # shellcheck disable=SC2086 # a list, split on purpose
    engine_hide $hidden
    # shellcheck disable=SC2016 # expands in the inner shell
    setsid setpriv --pdeathsig TERM unshare --net --mount --propagation slave sh -c '
        netns=$1 hidden=$2
        shift 2
        for own in $hidden; do mount --no-mtab -t tmpfs tare-engine "$own"; done
        readlink /proc/self/ns/net >>"$netns"
        ip link set lo up
        exec "$@"
    ' sh "$engine_dir/netns" "$hidden" "$@" >"$engine_dir/$engine.log" 2>&1 &
    pid=$!
    engine_pids="$engine_pids $pid"
    tries=300
    while ! engine_answers NONE "$socket"; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ] || ! kill -0 "$pid" 2>/dev/null; then
            tail -n 20 "$engine_dir/$engine.log" >&2
            return 1
        fi
        sleep 0.1
    done
    say "$script: a private $engine answers at $socket"
}

# Starts Docker unless one answers, and exports DOCKER_HOST.
docker_start() {
    if docker_answers; then
        say "$script: using the Docker engine at $(engine_socket DOCKER_HOST /var/run/docker.sock)"
        return
    fi
    engine_make_dir
    engine_crun
    # shellcheck disable=SC2046 # options, split on purpose
    engine_run dockerd "$engine_dir/docker.sock" "/etc/docker /run/docker /run/containerd" dockerd \
        --host "unix://$engine_dir/docker.sock" --data-root "$engine_dir/data" \
        --exec-root "$engine_dir/exec" --pidfile "$engine_dir/pid" --bip 172.31.250.1/24 \
        --cgroup-parent "/$engine_name" --exec-opt native.cgroupdriver=cgroupfs \
        --add-runtime "crun=$engine_dir/crun" $(engine_gvisor) ||
        fail "the private dockerd did not start; its last words are above"
    DOCKER_HOST="unix://$engine_dir/docker.sock"
    export DOCKER_HOST
}

# Starts Podman's service if it is installed and none answers, and exports CONTAINER_HOST. Without it
# the tests of Podman skip, so it may fail.
podman_start() {
    command -v podman >/dev/null 2>&1 || return 0
    if podman_answers; then
        say "$script: using Podman at $(engine_socket CONTAINER_HOST /run/podman/podman.sock)"
        return
    fi
    engine_make_dir
    # Podman's cgroup for containers has a fixed name. It is removed only if it did not exist before.
    if [ -z "$(find /sys/fs/cgroup -maxdepth 2 -name libpod_parent)" ]; then
        printf 'libpod_parent\n' >"$engine_dir/cgroups"
    fi
    hidden="/var/lib/cni /var/lib/containers /run/containers /run/libpod /run/netns /dev/shm"
    if engine_run podman "$engine_dir/podman.sock" "$hidden" podman --root "$engine_dir/podman" \
        --runroot "$engine_dir/podman-run" --tmpdir "$engine_dir/podman-tmp" \
        --network-config-dir "$engine_dir/podman-net" --cgroup-manager cgroupfs \
        --events-backend none --runtime runc system service --time 0 "unix://$engine_dir/podman.sock"; then
        CONTAINER_HOST="unix://$engine_dir/podman.sock"
        export CONTAINER_HOST
    else
        say "$script: going on without Podman, which did not start; its last words are above"
    fi
}

# Starts the engines that do not answer yet.
engine_start() {
    engine_sweep
    docker_start
    podman_start
}

# Ends the engines that engine_start started and removes all of them. Idempotent.
engine_stop() {
    [ -n "$engine_dir" ] || return 0
    for pid in $engine_pids; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in $engine_pids; do
        tries=200
        while [ "$tries" -gt 0 ] && kill -0 "$pid" 2>/dev/null; do
            tries=$((tries - 1))
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    engine_remove "$engine_dir"
    engine_dir="" engine_pids=""
}

# Prints the processes in the network namespaces that a file lists.
engine_processes() {
    [ -s "$1" ] || return 0
    for process in /proc/[0-9]*; do
        netns=$(readlink "$process/ns/net" 2>/dev/null) || continue
        if grep -qxF "$netns" "$1"; then printf '%s\n' "${process#/proc/}"; fi
    done
}

# engine_remove DIRECTORY: kills the processes in the engines' network namespaces (shims, proxies) and
# cgroups (containers), then removes cgroups and directory. Namespaces end with their processes.
engine_remove() {
    name=${1##*/}
    name=${name%.*}
    tries=50
    while [ "$tries" -gt 0 ]; do
        groups=""
        for parent in "$name" $(cat "$1/cgroups" 2>/dev/null || true); do
            groups="$groups $(find /sys/fs/cgroup -depth -type d -path "*/$parent*" 2>/dev/null || true)"
        done
        left=$(engine_processes "$1/netns")
        for group in $groups; do
            left="$left $(cat "$group/cgroup.procs" 2>/dev/null || true)"
        done
        [ -n "$(printf '%s' "$left" | tr -d ' \n')" ] || break
        for process in $left; do kill -KILL "$process" 2>/dev/null || true; done
        tries=$((tries - 1))
        sleep 0.1
    done
    for group in $groups; do rmdir "$group" 2>/dev/null || true; done
    for dir in $(cat "$1/mount-points" 2>/dev/null || true); do rmdir "$dir" 2>/dev/null || true; done
    rm -rf "$1"
}
