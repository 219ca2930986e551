#!/bin/sh
# Takes out of Debian what no container of ours needs: package managers and what only they use, a
# second pip, tools for disks and accounts, rights of files to change the user. Runs in a build, as
# root. What Debian's packages are left, /var/lib/dpkg/status says, where scanners look.
set -eu

# Scripts of packages expect others that may be gone.
rm -f /var/lib/dpkg/info/*.prerm /var/lib/dpkg/info/*.postrm
dpkg --purge --force-all --no-triggers \
    apt libapt-pkg6.0 gpgv debian-archive-keyring libseccomp2 libgnutls30 libp11-kit0 libidn2-0 \
    libunistring2 libnettle8 libhogweed6 libtasn1-6 libgcrypt20 libgpg-error0 libxxhash0 \
    libsystemd0 libudev1 liblz4-1 debconf perl-base adduser passwd login \
    libpam-modules libpam-modules-bin libpam-runtime libpam0g libsemanage2 libsemanage-common libsepol2 \
    libaudit1 libaudit-common libcap-ng0 e2fsprogs libext2fs2 libss2 logsave mount util-linux \
    util-linux-extra bsdutils libmount1 libsmartcols1 sysvinit-utils init-system-helpers usr-is-merged \
    python3-pip python3-pip-whl python3-setuptools python3-setuptools-whl python3-pkg-resources \
    python3-wheel python3-venv python3.11-venv python3-lib2to3 python3-distutils \
    >/tmp/purge.log 2>&1 || { cat /tmp/purge.log >&2; exit 1; }

# And last the one that did it.
while read -r path; do
    case $path in /var/lib/dpkg*) continue ;; esac
    [ -d "$path" ] || rm -f "$path"
done </var/lib/dpkg/info/dpkg.list
python3 - <<'END'
import pathlib, re

status = pathlib.Path("/var/lib/dpkg/status")
kept = [item for item in status.read_text().split("\n\n") if not item.startswith("Package: dpkg\n")]
# Who waits for a trigger is installed nonetheless; ldconfig, the only one of use, runs below.
text = re.sub(r"(?m)^Triggers-(?:Pending|Awaited): .*\n", "", "\n\n".join(kept))
status.write_text(re.sub(r"(?m)^(Status: install ok) triggers-\w+$", r"\1 installed", text))
END
find /var/lib/dpkg -mindepth 1 ! -name status -delete
rm -rf /usr/lib/*/gconv /usr/lib/*/perl* /usr/share/perl* /usr/share/doc /usr/share/man /usr/share/info \
    /usr/share/locale /usr/share/debconf /usr/share/python-wheels /etc/apt /etc/perl /etc/dpkg /etc/pam.d \
    /var/cache/* /var/log/* /var/lib/apt /var/lib/pam /var/lib/systemd /etc/*- /etc/.pwd.lock
rm -rf /usr/lib/python3/dist-packages # byte code of what was purged
for python in /usr/lib/python3.* /usr/local/lib/python3.*; do
    rm -rf "$python/ensurepip" "$python/idlelib" "$python/lib2to3" "$python/tkinter" "$python/turtledemo" \
        "$python"/site-packages/pip* "$python"/site-packages/setuptools* "$python"/site-packages/wheel*
done
rm -f /usr/local/bin/pip* /usr/local/bin/idle* /usr/local/bin/2to3* /usr/local/bin/wheel
find / -xdev -perm /6000 -type f -exec chmod ug-s {} +
ldconfig
rm -rf /var/cache/ldconfig /tmp/* /root/.cache

# Each library that something needs is still there.
find /usr -type f \( -name '*.so*' -o -perm /111 \) -exec ldd {} + 2>/dev/null >/tmp/libraries || :
if grep 'not found' /tmp/libraries; then exit 1; fi
rm /tmp/libraries
