#!/usr/bin/env bash
# pack_c_api.sh PREFIX DIRECTORY: packs the C library that install_c_api.sh installed into one archive in DIRECTORY, and
# prints its path. It may be unpacked anywhere: its CMake package and pkg-config file name no other place. Two archives of
# the same files have the same bytes.
set -euo pipefail
prefix=${1:?where it is installed}
mkdir -p "${2:?a directory}"
version=$(sed -n 's/^Version: //p' "$prefix/lib/pkgconfig/zeropoint.pc")
name=libzeropoint-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)
tar -C "$prefix" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=u+rw,go+r-w \
    --transform "flags=r;s,^[.],$name," -cf - . | gzip -9n >"$2/$name.tar.gz"
echo "$2/$name.tar.gz"
