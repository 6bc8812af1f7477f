#!/bin/bash
# Installs what the named job needs and this machine lacks: `scripts/need.sh test` or `scripts/need.sh demo`. As root on a machine with apt
# it installs; elsewhere it says what to install, and fails.
set -euo pipefail

job=${1:?usage: scripts/need.sh test|demo}
packages=()
# need PATH-OR-COMMAND PACKAGE...
need() {
	local what=$1
	shift
	if [[ $what == /* ]]; then [ -e "$what" ] && return; else command -v "$what" >/dev/null && return; fi
	packages+=("$@")
}

command -v go >/dev/null || {
	echo "lathe: Go is missing: install Go 1.26 or newer and put it into PATH" >&2
	exit 1
}
need /usr/bin/python3 python3-minimal python3
need mmdebstrap mmdebstrap
need mkfs.ext4 e2fsprogs
case $job in
demo) ;;
test)
	need gcc gcc libc6-dev # go test -race links with it
	need /usr/lib/python3*/ensurepip python3-venv
	need node nodejs
	need npm npm
	;;
*)
	echo "unknown job: $job" >&2
	exit 2
	;;
esac
[ ${#packages[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "lathe: missing on this machine: ${packages[*]}" >&2
	echo "lathe: let root run: apt-get update && apt-get install -y ${packages[*]}" >&2
	exit 1
fi
log=$(mktemp)
echo "lathe: installing ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 "${packages[@]}" >"$log" 2>&1 </dev/null; }
# The lists of packages may be missing or old: fetch them, but only then.
if ! install && ! { apt-get update -q >>"$log" 2>&1 </dev/null && install; }; then
	tail -n 20 "$log" >&2
	echo "lathe: installing failed; the whole log is $log" >&2
	exit 1
fi
rm -f "$log"
