# Gets and builds other people's database clients in the background, while the product is built.
# Sourced by ./test. Whatever fails here is tried again, and told, when the clients are run.

drivers_pid=""

drivers_prepare() {
    say "$script: getting other people's database clients in the background; kept below /var/cache/tare/drivers"
    drivers_log=$(mktemp) || return 0
    # A group of its own, so that the compilers that it starts end with it.
    setsid nice "$root/tests/drivers/run" --prepare >"$drivers_log" 2>&1 &
    drivers_pid=$!
}

drivers_ready() {
    [ -n "$drivers_pid" ] || return 0
    wait "$drivers_pid" || say "$script: not all database clients are ready; their tests say why"
    grep ': ready after' "$drivers_log" >&2 || true
    drivers_pid=""
    rm -f "$drivers_log"
}

# Ends what is still under way.
drivers_stop() {
    [ -n "$drivers_pid" ] || return 0
    kill -TERM -- "-$drivers_pid" 2>/dev/null || kill -TERM "$drivers_pid" 2>/dev/null || true
    wait "$drivers_pid" 2>/dev/null || true
    drivers_pid=""
    rm -f "$drivers_log"
}
