# Machines for the tests of ./quickstart, with stand-ins for the installer of Rust, package managers and
# cargo. Sourced. Runs as any user and changes nothing outside of a temporary folder.
#
# Every case is a checkout of the scripts alone and a PATH of links to what a small machine has.
source_root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
version=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$source_root/rust-toolchain.toml")
all=$(mktemp -d)
trap 'rm -rf "$all"' EXIT
failures=0
count=0

# stand_in PATH: makes a program of what is on standard input.
stand_in() {
    mkdir -p "$(dirname -- "$1")"
    { printf '#!/bin/sh\n'; cat; } >"$1"
    chmod 755 "$1"
}

# toolchain FOLDER VERSION: stand-ins for cargo and rustc. A build makes a program that logs its words.
toolchain() {
    stand_in "$1/rustc" <<END
case "\$*" in
*--verbose*) printf 'rustc $2 (x)\nhost: here\n' ;;
*) echo 'rustc $2 (x)' ;;
esac
END
    stand_in "$1/cargo" <<'END'
echo "cargo $*" >>"$LOG"
mkdir -p target/here/release
printf '#!/bin/sh\necho "tare $*" >>"$LOG"\n' >target/here/release/tare
chmod 755 target/here/release/tare
END
}

# rustup FOLDER: a stand-in for rustup, whose installation makes a toolchain in CARGO_HOME.
rustup() {
    stand_in "$1/rustup" <<'END'
echo "rustup $* in $RUSTUP_HOME" >>"$LOG"
cp "$TOOLCHAIN"/* "$CARGO_HOME/bin/" 2>/dev/null || { mkdir -p "$CARGO_HOME/bin"; cp "$TOOLCHAIN"/* "$CARGO_HOME/bin/"; }
END
}

# begin NAME: a new machine with the scripts, without Rust and without a package of rustup.
begin() {
    name=$1
    count=$((count + 1))
    root="$all/$count"
    bin="$root/bin"
    LOG="$root/log"
    TOOLCHAIN="$root/toolchain"
    mkdir -p "$bin" "$root/home" "$root/checkout/scripts"
    : >"$LOG"
    cp "$source_root/quickstart" "$source_root/rust-toolchain.toml" "$root/checkout/"
    cp "$source_root/scripts/rust.sh" "$root/checkout/scripts/"
    # Neither the host's policy for daemons nor its folders of programs.
    sed -e 's|^PATH=.*|PATH="$PATH"|' -e "s|/etc/ssl/certs/ca-certificates.crt|$root/log|" \
        "$source_root/scripts/common.sh" >"$root/checkout/scripts/common.sh"
    sed -e "s|^policy=.*|policy=$root/policy|" -e "s|lists=/var|lists=$root/var|" \
        "$source_root/scripts/packages.sh" >"$root/checkout/scripts/packages.sh"
    for tool in sh sed cut sort head tr mkdir mktemp chmod cat rm cp find env dirname printf grep; do
        path=$(command -v "$tool")
        case $path in /*) ln -s "$path" "$bin/$tool" ;; esac
    done
    for tool in git gcc runc ip nft; do stand_in "$bin/$tool" </dev/null; done
    echo 'echo 0' | stand_in "$bin/id"
    printf 'echo "%s"\n' "$LOG" | stand_in "$bin/cc"
    echo 'exit 100' | stand_in "$bin/apt-cache"
    echo 'echo "apt-get $*" >>"$LOG"' | stand_in "$bin/apt-get"
    toolchain "$TOOLCHAIN" "$version"
    # The official installer, as curl prints it: it makes rustup in CARGO_HOME.
    rustup "$root/official"
    stand_in "$bin/curl" <<END
echo "curl \$*" >>"$LOG"
echo 'echo "installer \$*" >>"\$LOG"; mkdir -p "\$CARGO_HOME/bin"; cp "$root/official/rustup" "\$CARGO_HOME/bin/"'
END
}

# quickstart WORDS...: runs it; its output is in $root/out.
quickstart() {
    status=0
    (cd "$root" && env -i PATH="$bin" HOME="$root/home" LOG="$LOG" TOOLCHAIN="$TOOLCHAIN" \
        checkout/quickstart "$@") >"$root/out" 2>&1 || status=$?
}

complain() {
    echo "$0: $name: $*" >&2
    sed 's/^/    /' "$root/out" "$LOG" >&2
    failures=$((failures + 1))
}

succeeded() { [ "$status" -eq 0 ] || complain "ended with $status"; }
refused() { [ "$status" -ne 0 ] || complain "went on"; }
logged() { grep -q -e "$1" "$LOG" || complain "did not run: $1"; }
not_logged() { if grep -q -e "$1" "$LOG"; then complain "ran: $1"; fi; }
printed() { grep -q -e "$1" "$root/out" || complain "did not print: $1"; }
home_is_empty() { [ -z "$(find "$root/home" -mindepth 1)" ] || complain "wrote into the home"; }

# Ends the script: with an error if a case failed.
finish() {
    [ "$failures" -eq 0 ] || exit 1
    echo "$0: passed"
}
