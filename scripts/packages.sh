# Installs missing packages with the package manager of the distribution. Sourced by ./quickstart and
# ./test after common.sh.
#
# Packages are asked for by their Debian names (want). Other distributions get the same package by their
# own name (local_names). What has no name there, or cannot be installed, is printed by name.

wanted=""     # packages to install by their Debian names, separated by spaces
wanted_why="" # the same with reasons, one a line

# Prints the first known package manager of this machine, or nothing.
find_manager() {
    for found in apt-get dnf apk pacman zypper; do
        if command -v "$found" >/dev/null 2>&1; then
            printf '%s\n' "$found"
            return
        fi
    done
}

manager=$(find_manager)

# want PACKAGE REASON TEST...: asks for a package unless the test command says that it is there.
want() {
    package=$1 reason=$2
    shift 2
    if "$@" >/dev/null 2>&1; then return; fi
    wanted="$wanted $package"
    wanted_why="$wanted_why  $package: $reason
"
}

# local_names PACKAGE: prints what this distribution calls a package of Debian; nothing if unknown.
local_names() {
    case $manager:$1 in
    apt-get:*) printf '%s\n' "$1" ;;
    *:gcc | *:git | *:curl | *:ca-certificates | *:runc | *:nftables) printf '%s\n' "$1" ;;
    dnf:libc6-dev) echo glibc-devel glibc-static ;;
    zypper:libc6-dev) echo glibc-devel glibc-devel-static ;;
    apk:libc6-dev) echo musl-dev ;;
    pacman:libc6-dev) echo glibc ;;
    dnf:iproute2) echo iproute ;;
    *:iproute2) echo iproute2 ;;
    pacman:rustup) echo rustup ;;
    esac
}

# Whether this distribution has a package with rustup itself; others have only its installer.
has_rustup_package() {
    case $manager in
    apt-get) apt-cache show rustup ;;
    pacman) pacman -Si rustup ;;
    *) return 1 ;;
    esac >/dev/null 2>&1
}

# install_packages NAME...: installs packages by the names of this distribution.
install_packages() {
    case $manager in
    apt-get)
        DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
            -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
        ;;
    dnf) dnf install --assumeyes --setopt=install_weak_deps=False "$@" ;;
    apk) apk add "$@" ;;
    # Without -u: an upgrade of everything is the user's decision.
    pacman) pacman -S --noconfirm --needed "$@" ;;
    zypper) zypper --non-interactive install --no-recommends "$@" ;;
    esac >&2
}

# Fetches the lists of packages.
update_lists() {
    case $manager in
    apt-get) apt-get -o DPkg::Lock::Timeout=300 update ;;
    dnf) dnf makecache ;;
    apk) apk update ;;
    pacman) pacman -Sy --noconfirm ;;
    zypper) zypper --non-interactive refresh ;;
    esac >&2 || fail "$manager could not fetch the lists of packages"
}

# The lists are stale if there are none or if they are more than a week old. dnf and zypper renew
# theirs by themselves.
lists_are_stale() {
    case $manager in
    apt-get) lists=/var/lib/apt/lists pattern='*Packages*' ;;
    apk) lists=/var/cache/apk pattern='APKINDEX*' ;;
    pacman) lists=/var/lib/pacman/sync pattern='*.db' ;;
    *) return 1 ;;
    esac
    [ -z "$(find "$lists" -maxdepth 1 -name "$pattern" -mtime -7 2>/dev/null | head -n 1)" ]
}

policy=/usr/sbin/policy-rc.d
policy_made=""

# Keeps Debian's packages from starting their daemons. A policy that is already there is left alone.
forbid_daemons() {
    if [ "$manager" != apt-get ] || [ -e "$policy" ]; then return; fi
    printf '#!/bin/sh\n# made by tare %s for the time of one installation\nexit 101\n' "$script" >"$policy"
    policy_made=yes
    chmod 755 "$policy"
}

allow_daemons() {
    [ -n "$policy_made" ] || return 0
    rm -f "$policy"
    policy_made=""
}

# Installs what `want` collected, and nothing more. Call `allow_daemons` from the exit trap.
install_wanted() {
    [ -n "$wanted" ] || return 0
    if [ -z "$manager" ]; then
        say "$script: knows none of this machine's package managers. Install these by hand (named as Debian names them):"
        printf '%s' "$wanted_why" >&2
        exit 1
    fi
    names="" unknown=""
    for package in $wanted; do
        found=$(local_names "$package")
        if [ -n "$found" ]; then names="$names $found"; else unknown="$unknown $package"; fi
    done
    [ -z "$unknown" ] || fail "does not know how this distribution names these packages of Debian; install them by hand:$unknown"
    say "$script: installing with $manager:$names"
    printf '%s' "$wanted_why" >&2
    updated=""
    if lists_are_stale; then
        update_lists
        updated=yes
    fi
    forbid_daemons
    # shellcheck disable=SC2086 # lists of packages, split on purpose
    if ! install_packages $names; then
        if [ -z "$updated" ]; then update_lists; fi
        if ! install_packages $names; then
            failed=""
            for name in $names; do
                install_packages "$name" || failed="$failed $name"
            done
            [ -z "$failed" ] || fail "$manager could not install:$failed"
        fi
    fi
    allow_daemons
    wanted="" wanted_why=""
}
