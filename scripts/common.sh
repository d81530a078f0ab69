# Shared by ./quickstart and ./test: what is printed, who we are, the built program,
# what both need.
# POSIX shell; sourced, never run. Needs nothing but a shell and coreutils.

# A plain shell of root may not look where the network tools are.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
export PATH

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$script: $*"
    exit 1
}

have() { command -v "$1"; }

# Both scripts make namespaces and cgroups, so both run as root; sudo is used where it is there.
become_root() {
    [ "$(id -u)" -eq 0 ] && return
    command -v sudo >/dev/null 2>&1 || fail "needs root; run it as root"
    say "$script: needs root for namespaces, cgroups and packages; going on through sudo"
    exec sudo --preserve-env=CARGO_TARGET_DIR,RUSTUP_TOOLCHAIN,DOCKER_HOST,CONTAINER_HOST "$0" "$@"
}

# --- the program --------------------------------------------------------------------------------

# Where cargo puts the program: the target is named in .cargo/config.toml, hence the triple.
program_path() {
    triple=$(cd "$root" && rustc --version --verbose | sed -n 's/^host: //p')
    printf '%s/%s/release/tare\n' "${CARGO_TARGET_DIR:-$root/target}" "$triple"
}

# --- a kernel for virtual machines --------------------------------------------------------------

# Unpacks Debian's kernel where Tare looks for one; nothing is installed, so the host boots as before.
# Elsewhere, and where it cannot be had, the tests of virtual machines skip themselves and say why.
fetch_guest_kernel() {
    cache=/var/cache/tare/kernels
    for image in "/boot/vmlinuz-$(uname -r)" "$cache"/*/boot/vmlinuz-*; do
        if [ -e "$image" ]; then return; fi
    done
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: //p' | head -n 1)
    [ -n "$package" ] || return 0
    say "$script: unpacking $package below $cache for virtual machines; it is not installed"
    folder=$(mktemp -d) || return 0
    (cd "$folder" && apt-get download "$package" >&2 && mkdir -p "$cache" &&
        dpkg-deb -x "$package"_*.deb unpacked && mv unpacked "$cache/debian") ||
        say "$script: there is no kernel for virtual machines; their tests are skipped"
    rm -rf "$folder"
}

# --- gVisor ---------------------------------------------------------------------------------------

# The version is that of the Go module, whose programs do not know their own.
runsc_version=v0.0.0-20260905035102-160fafc42237
runsc_sum=h1:AU5+CtCvnBnxdZRNcZt1NfSLqgkXZVT3N/u6u1aXg44=
runsc_cache=/var/cache/tare/runsc

# Prints where runsc is, as Tare finds it: on PATH, else what was built for it.
find_runsc() {
    command -v runsc && return
    for found in "$runsc_cache"/*/runsc; do
        if [ -x "$found" ]; then printf '%s\n' "$found" && return; fi
    done
    return 1
}

runsc_pid=""

# Prints where Go is.
find_go() {
    command -v go && return
    for found in /usr/local/go/bin/go /usr/lib/go/bin/go; do
        if [ -x "$found" ]; then printf '%s\n' "$found" && return; fi
    done
    return 1
}

# Builds runsc with Go, where Go is, in the background: it takes two to four minutes, once. Nothing is
# installed; without Go the tests of gVisor skip themselves and say why. Call runsc_ready before them,
# and runsc_stop from the exit trap.
build_runsc() {
    if find_runsc >/dev/null; then return; fi
    if ! go=$(find_go); then
        say "$script: there is neither runsc nor Go to build it with; the tests of gVisor are skipped"
        return
    fi
    # From 1.21 on Go gets the version that a module asks for by itself.
    case $("$go" version) in
    *" go1.1"[0-9]* | *" go1.20"*)
        say "$script: $go is too old to build runsc with; the tests of gVisor are skipped"
        return
        ;;
    esac
    say "$script: building gVisor's runsc $runsc_version below $runsc_cache with Go; it is not installed"
    runsc_dir=$(mktemp -d) || return 0
    # A group of its own, so that the compilers that it starts end with it.
    CGO_ENABLED=0 GOBIN="$runsc_dir" GOFLAGS=-trimpath setsid nice "$go" install \
        "gvisor.dev/gvisor/runsc@$runsc_version" >"$runsc_dir/log" 2>&1 &
    runsc_pid=$!
}

# Waits for the build and puts the program in its place, whole or not at all.
runsc_ready() {
    [ -n "$runsc_pid" ] || return 0
    if wait "$runsc_pid"; then
        mkdir -p "$runsc_cache/$runsc_version"
        cp "$runsc_dir/runsc" "$runsc_cache/$runsc_version/runsc.part"
        mv "$runsc_cache/$runsc_version/runsc.part" "$runsc_cache/$runsc_version/runsc"
    else
        tail -n 5 "$runsc_dir/log" >&2
        say "$script: runsc could not be built; the tests of gVisor are skipped"
    fi
    runsc_pid=""
    rm -rf "$runsc_dir"
}

# Ends a build that is still under way.
runsc_stop() {
    [ -n "$runsc_pid" ] || return 0
    kill -TERM -- "-$runsc_pid" 2>/dev/null || kill -TERM "$runsc_pid" 2>/dev/null || true
    wait "$runsc_pid" 2>/dev/null || true
    runsc_pid=""
    rm -rf "$runsc_dir"
}

# --- what both scripts need ---------------------------------------------------------------------

# Linking is static, so the archive of the C library is needed beside its headers.
have_static_libc() {
    archive=$(cc -print-file-name=libc.a 2>/dev/null) && [ -f "$archive" ]
}

have_certificates() {
    for file in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem; do
        if [ -e "$file" ]; then return; fi
    done
    return 1
}

want_build() {
    want gcc "the C compiler that builds SQLite and links" have cc
    want libc6-dev "the C library, static archive and headers" have_static_libc
    want ca-certificates "so that cargo can fetch the crates" have_certificates
    want git "so that cargo and the chores can read the repository" have git
}

want_run() {
    want runc "the OCI runtime of the containers that are weighed" have runc
    want iproute2 "network namespaces and links (ip)" have ip
    want nftables "the NAT table of a published port (nft)" have nft
}
