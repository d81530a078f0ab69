#!/bin/sh
# How ./quickstart gets a Rust toolchain. Runs as any user and changes nothing outside of a temporary
# folder.
set -eu
. "$(dirname -- "$0")/lib/machine.sh"

begin "no Rust: the official installer"
quickstart quick
succeeded
printed "It is installed below .*/.toolchain .* by the official installer"
logged "installer -y --no-modify-path --profile minimal --default-toolchain none"
logged "rustup toolchain install $version --profile minimal --component rustfmt,clippy in .*/checkout/.toolchain/rustup"
logged "cargo build --release --locked --package tare"
logged "tare weigh quick"
home_is_empty
: >"$LOG"
quickstart
succeeded
not_logged "installer"
not_logged "rustup"
logged "tare weigh"

begin "no Rust and --no-install"
quickstart --no-install
refused
printed "no-install refuses"
not_logged "curl"
not_logged "apt-get"
[ ! -e "$root/checkout/.toolchain" ] || complain "made a toolchain"

begin "the rustup of the distribution"
stand_in "$bin/apt-cache" </dev/null
rustup "$root/package"
echo 'echo "apt-get $*" >>"$LOG"; case "$*" in *install*) cp '"'$root/package/rustup' '$bin/'"' ;; esac' |
    stand_in "$bin/apt-get"
quickstart
succeeded
printed "by rustup of the distribution"
printed "rustup: the installer of Rust toolchains"
logged "apt-get .*install.* rustup"
logged "rustup toolchain install $version .*/checkout/.toolchain/rustup"
not_logged "curl"
logged "tare weigh"
home_is_empty

begin "a cargo that is too old"
toolchain "$bin" 1.63.0
quickstart
succeeded
printed "needs Rust $version and finds 1.63.0"
logged "rustup toolchain install $version"
logged "tare weigh"

begin "a toolchain that is there"
toolchain "$bin" "$version"
quickstart --no-install quick
succeeded
not_logged "curl"
not_logged "rustup"
logged "tare weigh quick"
[ ! -e "$root/checkout/.toolchain" ] || complain "made a toolchain"

begin "an installer that fails"
echo 'exit 6' | stand_in "$bin/curl"
quickstart
refused
printed "cannot fetch https://sh.rustup.rs"
not_logged "tare"

finish
