# Gets and builds third-party database clients in the background, while the product is built.
# Sourced by ./test. The run of the clients retries and reports anything that fails here.

drivers_pid=""

drivers_prepare() {
    say "$script: getting third-party database clients in the background; kept below /var/cache/tare/drivers"
    drivers_log=$(mktemp) || return 0
    # A separate process group, so that its compilers end with it.
    setsid nice "$root/tests/drivers/run" --prepare >"$drivers_log" 2>&1 &
    drivers_pid=$!
}

drivers_ready() {
    [ -n "$drivers_pid" ] || return 0
    wait "$drivers_pid" || say "$script: not all database clients are ready; their tests report why"
    grep ': ready after' "$drivers_log" >&2 || true
    drivers_pid=""
    rm -f "$drivers_log"
}

# Ends the preparation if it still runs.
drivers_stop() {
    [ -n "$drivers_pid" ] || return 0
    kill -TERM -- "-$drivers_pid" 2>/dev/null || kill -TERM "$drivers_pid" 2>/dev/null || true
    wait "$drivers_pid" 2>/dev/null || true
    drivers_pid=""
    rm -f "$drivers_log"
}
