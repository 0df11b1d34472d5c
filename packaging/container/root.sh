#!/bin/sh
# Lays out the file system of the image: root.sh PROGRAM FOLDER. Besides the program it holds the libraries that it is linked with, what the
# C library loads to resolve names, authorities, time zones, and pages.
set -eu
program=$1
root=$2
here=$(dirname "$0")

put() { # FILE [TO]
    to=$root${2:-$1}
    mkdir -p "$(dirname "$to")"
    cp -L "$1" "$to"
}

put "$program" /usr/sbin/tidegate
chmod 755 "$root/usr/sbin/tidegate"
# "libc.so.6 => /lib/.../libc.so.6 (0x...)" and the loader, "/lib64/ld-linux-x86-64.so.2 (0x...)".
libraries=$(ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }')
libc=$(echo "$libraries" | grep '/libc\.so')
for library in $libraries; do put "$library"; done
for name in libnss_files.so.2 libnss_dns.so.2 libresolv.so.2; do
    [ ! -e "$(dirname "$libc")/$name" ] || put "$(dirname "$libc")/$name"
done
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || put /etc/ssl/certs/ca-certificates.crt
[ ! -d /usr/share/zoneinfo ] || { mkdir -p "$root/usr/share" && cp -R /usr/share/zoneinfo "$root/usr/share/"; }

put "$here/nginx.conf" /etc/tidegate/nginx.conf
for file in mime.types fastcgi_params scgi_params uwsgi_params; do put "$here/../$file" "/etc/tidegate/$file"; done
put "$here/index.html" /usr/share/tidegate/html/index.html
printf 'root:x:0:0::/:/none\nnobody:x:65534:65534::/:/none\ntidegate:x:65532:65532::/:/none\n' >"$root/etc/passwd"
printf 'root:x:0:\nnobody:x:65534:\ntidegate:x:65532:\n' >"$root/etc/group"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
mkdir -p "$root/tmp" "$root/proc" "$root/dev" "$root/run" "$root/var/log"
chmod 1777 "$root/tmp"
