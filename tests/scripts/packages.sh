#!/bin/sh
# What ./quickstart installs on five distributions, with stand-ins for their package managers. Runs as
# any user and changes nothing outside of a temporary folder.
set -eu
. "$(dirname -- "$0")/lib/machine.sh"

# machine_of NAME MANAGER: a machine of another distribution with Rust, without every package that
# ./quickstart needs. What its manager installs by the name of the program appears on the PATH.
machine_of() {
    begin "$1"
    toolchain "$bin" "$version"
    rm "$bin/apt-get" "$bin/apt-cache" "$bin/git" "$bin/gcc" "$bin/runc" "$bin/ip" "$bin/nft" "$bin/cc"
    printf 'echo "%s $*" >>"$LOG"\n' "$2" | stand_in "$bin/$2"
}

machine_of "Debian" apt-get
quickstart quick
succeeded
logged "^apt-get .*update"
logged "^apt-get install --yes .* gcc libc6-dev git runc iproute2 nftables$"
logged "tare weigh quick"
[ ! -e "$root/policy" ] || complain "left its policy for daemons"

machine_of "Fedora" dnf
quickstart quick
succeeded
logged "^dnf install --assumeyes .* gcc glibc-devel glibc-static git runc iproute nftables$"
logged "tare weigh quick"
[ ! -e "$root/policy" ] || complain "made a policy for daemons"

machine_of "Alpine" apk
quickstart quick
succeeded
logged "^apk update$"
logged "^apk add gcc musl-dev git runc iproute2 nftables$"
logged "tare weigh quick"

machine_of "Arch" pacman
quickstart quick
succeeded
logged "^pacman -Sy "
logged "^pacman -S --noconfirm --needed gcc glibc git runc iproute2 nftables$"
logged "tare weigh quick"

machine_of "openSUSE" zypper
quickstart quick
succeeded
logged "^zypper --non-interactive install .* gcc glibc-devel glibc-devel-static git runc iproute2 nftables$"
logged "tare weigh quick"

machine_of "--no-install" dnf
quickstart --no-install
refused
printed "runc: the OCI runtime"
not_logged "^dnf"

machine_of "a package that cannot be had" dnf
printf 'echo "dnf $*" >>"$LOG"; case "$*" in *glibc-static*) exit 1 ;; esac\n' | stand_in "$bin/dnf"
quickstart
refused
printed "dnf could not install: glibc-static"
not_logged "tare weigh"

machine_of "an unknown package manager" apk
rm "$bin/apk"
quickstart
refused
printed "knows none of this machine's package managers"
printed "iproute2: network namespaces"

finish
