# A container engine of our own for tests, where none answers. Sourced by ./test; see `engine` for
# running it by hand.
#
# Everything it makes stands in a network namespace, a mount namespace, a cgroup and a directory of
# its own, so that an engine of the host is not touched and nothing is left when it ends.

engine_dir="" # /tmp/tare-engine-PID.XXXXXX, PID being the script's; its cgroups are named so too
engine_pid=""

# The engine that the tests would find: DOCKER_HOST, else the usual socket.
engine_socket() {
    case "${DOCKER_HOST:-}" in
    unix://*) printf '%s\n' "${DOCKER_HOST#unix://}" ;;
    *) printf '/run/docker.sock\n' ;;
    esac
}

# perl is there wherever Debian is; elsewhere a missing one reads as "no engine".
engine_answers() {
    perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer => $ARGV[0])' "$(engine_socket)" 2>/dev/null
}

# Engines of scripts that were killed with no chance to clean up. The engine itself ended with its
# script (pdeathsig).
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

# crun before 1.9 refuses a host with both cgroup versions; out of its sight the second one does
# no harm.
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

# Starts an engine unless one answers, and exports DOCKER_HOST.
engine_start() {
    engine_sweep
    if engine_answers; then
        say "$script: using the container engine at $(engine_socket)"
        return
    fi
    engine_name=tare-engine-$$
    engine_dir=$(mktemp -d "/tmp/$engine_name.XXXXXX")
    engine_crun
    # The engine's packages have these paths built in; in its mount namespace they are empty and
    # its own, so a mount point is all that the host ever sees.
    for dir in /etc/docker /run/docker /run/containerd; do
        [ -d "$dir" ] && continue
        mkdir "$dir"
        printf '%s\n' "$dir" >>"$engine_dir/mount-points"
    done
    # shellcheck disable=SC2016 # expands in the inner shell
    setsid setpriv --pdeathsig TERM unshare --net --mount --propagation slave sh -c '
        name=$1 dir=$2
        for own in /etc/docker /run/docker /run/containerd; do
            mount --no-mtab -t tmpfs tare-engine "$own"
        done
        readlink /proc/self/ns/net >"$dir/netns"
        ip link set lo up
        exec dockerd --host "unix://$dir/docker.sock" --data-root "$dir/data" \
            --exec-root "$dir/exec" --pidfile "$dir/pid" --bip 172.31.250.1/24 \
            --cgroup-parent "/$name" --exec-opt native.cgroupdriver=cgroupfs \
            --add-runtime "crun=$dir/crun"
    ' sh "$engine_name" "$engine_dir" >"$engine_dir/log" 2>&1 &
    engine_pid=$!
    tries=300
    while ! grep -q 'API listen on' "$engine_dir/log"; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ] || ! kill -0 "$engine_pid" 2>/dev/null; then
            tail -n 20 "$engine_dir/log" >&2
            fail "the private dockerd did not start; its last words are above"
        fi
        sleep 0.1
    done
    DOCKER_HOST="unix://$engine_dir/docker.sock"
    export DOCKER_HOST
    say "$script: private dockerd answers at $DOCKER_HOST"
}

# Ends the engine that engine_start started and removes all of it. Idempotent.
engine_stop() {
    [ -n "$engine_dir" ] || return 0
    if [ -n "$engine_pid" ]; then
        kill -TERM "$engine_pid" 2>/dev/null || true
        tries=200
        while [ "$tries" -gt 0 ] && kill -0 "$engine_pid" 2>/dev/null; do
            tries=$((tries - 1))
            sleep 0.1
        done
        kill -KILL "$engine_pid" 2>/dev/null || true
        wait "$engine_pid" 2>/dev/null || true
        engine_pid=""
    fi
    engine_remove "$engine_dir"
    engine_dir=""
}

# engine_remove DIRECTORY: kills what still runs in the engine's network namespace (shims, proxies) or
# cgroups (containers), then removes cgroups and directory. The namespaces end with their processes.
engine_remove() {
    name=${1##*/}
    name=${name%.*}
    netns=$(cat "$1/netns" 2>/dev/null || true)
    tries=50
    while [ "$tries" -gt 0 ]; do
        left=""
        for process in /proc/[0-9]*; do
            [ -n "$netns" ] && [ "$(readlink "$process/ns/net" 2>/dev/null)" = "$netns" ] || continue
            left="$left ${process#/proc/}"
        done
        groups=$(find /sys/fs/cgroup -depth -type d -path "*/$name*" 2>/dev/null || true)
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
