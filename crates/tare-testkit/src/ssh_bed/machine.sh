# The first process of a machine of a bed: sh -c TEXT sh BED OWN ADDRESS USER. Its namespaces are new.
set -eu
bed=$1 own=$2 address=$3 user=$4
mkdir -p "$own/sys" /var/lib/tare
mount -t tmpfs -o mode=1777 none /var/tmp
mount -t tmpfs none /var/lib/tare
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/sshd /run/netns /run/lock
# A sysfs of the machine's own network namespace, with what was mounted below that of this host.
mount --rbind /sys "$own/sys"
mount -t sysfs none /sys
for part in fs/cgroup fs/bpf kernel/debug kernel/tracing kernel/config; do
    if mountpoint -q "$own/sys/$part"; then mount --rbind "$own/sys/$part" "/sys/$part"; fi
done
umount -l "$own/sys"
# One account more. No password opens it.
for file in passwd group shadow; do cp "/etc/$file" "$own/$file"; done
echo "$user:x:64321:64321::/tmp:/bin/sh" >>"$own/passwd"
echo "$user:x:64321:" >>"$own/group"
echo "$user:*:19000:0:99999:7:::" >>"$own/shadow"
for file in passwd group shadow; do mount --bind "$own/$file" "/etc/$file"; done
cat >"$own/sshd_config" <<END
ListenAddress $address:22
HostKey $bed/host
AuthorizedKeysFile $bed/key.pub
StrictModes no
PidFile none
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxSessions 64
MaxStartups 64
END
"$(command -v sshd || echo /usr/sbin/sshd)" -D -e -f "$own/sshd_config" &
# Until the test closes the pipe, also by its death. Then every process here is killed.
cat >/dev/null
