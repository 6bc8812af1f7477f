#!/bin/bash
# Installs what the named job needs and this machine lacks: `scripts/need.sh test` or `scripts/need.sh demo`. As root on a machine with apt
# it installs; elsewhere it says what to install, and fails if the job cannot do without.
set -euo pipefail

job=${1:?usage: scripts/need.sh test|demo}
packages=() essential=()
missing() { if [[ $1 == /* ]]; then [ ! -e "$1" ]; else ! command -v "$1" >/dev/null; fi; }
# want PATH-OR-COMMAND PACKAGE...: better with it. need: not without it.
want() { if missing "$1"; then packages+=("${@:2}"); fi; }
need() { if missing "$1"; then packages+=("${@:2}") essential+=("${@:2}"); fi; }

command -v go >/dev/null || {
	echo "lathe: Go is missing: install Go 1.26 or newer and put it into PATH" >&2
	exit 1
}
need /usr/bin/python3 python3-minimal python3
want mmdebstrap mmdebstrap # builds the sandbox image
if [ "$(id -u)" = 0 ]; then
	want mkfs.ext4 e2fsprogs # disk limits, which need root
fi
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
	echo "lathe: missing on this machine: ${packages[*]}; let root run: apt-get update && apt-get install -y ${packages[*]}" >&2
	[ ${#essential[@]} -eq 0 ] || exit 1
	exit 0
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
