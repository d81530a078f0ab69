# The Rust toolchain: finds one, or installs the pinned one below the checkout. Sourced by ./quickstart
# and ./test after common.sh and packages.sh.
#
# Order: cargo on the PATH, in the caller's home, in $root/.toolchain; else the pinned version is
# installed into $root/.toolchain, by the rustup of the distribution where there is a package, else by
# the official installer. Nothing outside of the checkout is changed, above all no shell file.

rust_home="$root/.toolchain"
rust_missing="" # why a toolchain has to be installed; empty if there is one
rust_package="" # whether the distribution has rustup
no_install=""   # set by --no-install

# Runs a command as the caller of sudo, so that files in the checkout stay the caller's.
as_caller() {
    if [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ]; then
        runuser -u "$SUDO_USER" -- env PATH="$PATH" "$@"
    else
        "$@"
    fi
}

use_rust_home() {
    CARGO_HOME="$rust_home/cargo"
    RUSTUP_HOME="$rust_home/rustup"
    PATH="$CARGO_HOME/bin:$PATH"
    export CARGO_HOME RUSTUP_HOME PATH
}

# Prints the version of the rustc that the checkout gets, or nothing.
rust_version() {
    (cd "$root" && rustc --version 2>/dev/null | cut -d' ' -f2)
}

# Puts cargo on the PATH, or sets rust_missing and asks for what the installation needs.
find_rust() {
    version=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$root/rust-toolchain.toml")
    caller_home=""
    if [ -n "${SUDO_USER:-}" ]; then caller_home=$(getent passwd "$SUDO_USER" | cut -d: -f6); fi
    for home in "$HOME" "$caller_home"; do
        if command -v cargo >/dev/null 2>&1; then break; fi
        if [ -n "$home" ] && [ -x "$home/.cargo/bin/cargo" ]; then
            PATH="$home/.cargo/bin:$PATH"
            CARGO_HOME=${CARGO_HOME:-$home/.cargo}
            RUSTUP_HOME=${RUSTUP_HOME:-$home/.rustup}
            export PATH CARGO_HOME RUSTUP_HOME
        fi
    done
    if command -v cargo >/dev/null 2>&1; then
        # rustup fetches the pinned toolchain by itself; any other cargo has to be new enough.
        found=$(rust_version)
        oldest=$(printf '%s\n%s\n' "$version" "${found%%-*}" | sort -V | head -n 1)
        [ "$oldest" != "$version" ] || return 0
        rust_missing="needs Rust $version and finds ${found:-a cargo without a compiler}"
    else
        rust_missing="needs Rust $version and finds none"
    fi
    if [ -d "$rust_home" ]; then
        use_rust_home
        if [ "$(rust_version)" = "$version" ]; then
            rust_missing=""
            return 0
        fi
    fi
    # A cargo of the distribution and its rustup exclude each other.
    if ! command -v cargo >/dev/null 2>&1 && ! command -v rustup >/dev/null 2>&1 && has_rustup_package; then
        rust_package=yes
        want rustup "the installer of Rust toolchains" have rustup
    elif ! command -v rustup >/dev/null 2>&1 && ! has_gnu_wget; then
        want curl "fetches the installer of Rust" have curl
    fi
}

# BusyBox has a wget that does not refuse plain HTTP.
has_gnu_wget() { wget --help 2>/dev/null | grep -q -e --https-only; }

# Prints the official installer of Rust.
fetch_rustup() {
    if command -v curl >/dev/null 2>&1; then
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs
    else
        wget --quiet --https-only --output-document=- https://sh.rustup.rs
    fi
}

# Refuses with --no-install if anything is missing. Call it before install_wanted.
announce_install() {
    if [ -n "$rust_missing" ]; then
        source="the official installer, https://sh.rustup.rs"
        if [ -n "$rust_package" ] || command -v rustup >/dev/null 2>&1; then source="rustup of the distribution"; fi
        say "$script: $rust_missing. It is installed below $rust_home (about 700 MB) by $source;"
        say "  nothing outside of that folder is changed, and removing it undoes it"
    fi
    [ -n "$no_install" ] || return 0
    if [ -n "$wanted" ]; then
        say "$script: these packages are missing:"
        printf '%s' "$wanted_why" >&2
    fi
    [ -z "$rust_missing$wanted" ] || fail "something has to be installed, and --no-install refuses it"
}

# Installs the pinned toolchain if find_rust found none.
install_rust() {
    [ -n "$rust_missing" ] || return 0
    use_rust_home
    as_caller mkdir -p "$CARGO_HOME" "$RUSTUP_HOME" || fail "cannot make $rust_home"
    if ! command -v rustup >/dev/null 2>&1; then
        installer="$rust_home/rustup-init.sh"
        fetch_rustup >"$installer" || fail "cannot fetch https://sh.rustup.rs"
        as_caller env RUSTUP_INIT_SKIP_PATH_CHECK=yes sh "$installer" -y --no-modify-path \
            --profile minimal --default-toolchain none >&2 || fail "the installer of Rust failed"
        rm -f "$installer"
    fi
    components=$(sed -n 's/^components *= *\[\(.*\)\]/\1/p' "$root/rust-toolchain.toml" | tr -d '" ')
    as_caller rustup toolchain install "$version" --profile minimal --component "$components" >&2 ||
        fail "rustup could not install Rust $version"
    [ "$(rust_version)" = "$version" ] || fail "Rust $version was installed, but does not run"
    rust_missing=""
}
