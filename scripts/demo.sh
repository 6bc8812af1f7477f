#!/bin/bash
# make demo: from a clone to a running sandbox and an answer. Packages, gVisor, lathe and the sandbox image are made side by side; the
# answer does not wait for the image, since the host's python3 serves until it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/lathe-demo
logs=$out/logs
mkdir -p "$logs"
began=$SECONDS
say() { printf '[%3ds] %s\n' $((SECONDS - began)) "$*"; }

pids=()
cleanup() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
}
trap cleanup EXIT

fail() {
	say "$1 failed; the end of $2:"
	tail -n 20 "$2" >&2
	exit 1
}

scripts/need.sh demo

say "building lathe and gVisor (the first time takes a few minutes), and the sandbox image beside them"
make --no-print-directory bin/lathe >"$logs/lathe.log" 2>&1 &
lathe=$!
make --no-print-directory bin/runsc >"$logs/runsc.log" 2>&1 &
runsc=$!
make --no-print-directory image >"$logs/image.log" 2>&1 &
image=$!
pids+=("$lathe" "$runsc" "$image")

# Something moves on the screen while they work.
while kill -0 "$lathe" 2>/dev/null || kill -0 "$runsc" 2>/dev/null; do
	sleep 1
	[ $(((SECONDS - began) % 15)) -ne 0 ] || say "still building: $(kill -0 "$lathe" 2>/dev/null && echo -n 'lathe ')$(kill -0 "$runsc" 2>/dev/null &&
		echo -n 'gVisor ')$(kill -0 "$image" 2>/dev/null && echo -n 'image')"
done
wait "$lathe" || fail "building lathe" "$logs/lathe.log"
wait "$runsc" || fail "building gVisor" "$logs/runsc.log"

cat >"$out/lathe.yaml" <<YAML
# The configuration of make demo.
listen: 127.0.0.1:0
data_dir: $out/data
models:
  - {name: demo, provider: demo}
YAML
: >"$logs/ready"
bin/lathe serve -c "$out/lathe.yaml" >"$logs/ready" 2>"$logs/serve.log" &
serve=$!
pids+=("$serve")
until grep -q 'listening on' "$logs/ready"; do
	kill -0 "$serve" 2>/dev/null || fail "starting lathe" "$logs/serve.log"
	sleep 0.1
done
url=$(sed -n 's/^lathe: listening on //p' "$logs/ready")
say "lathe is listening on $url (its log: $logs/serve.log)"
bin/lathe demo --url "$url" --out "$out" || fail "the demo" "$logs/serve.log"

kill -TERM "$serve"
wait "$serve" || fail "stopping lathe" "$logs/serve.log"
if kill -0 "$image" 2>/dev/null; then
	say "the answer is there. The sandbox image is still being built; Ctrl-C leaves it to make image"
	while kill -0 "$image" 2>/dev/null; do
		sleep 1
		[ $(((SECONDS - began) % 15)) -ne 0 ] || say "$(tail -n 1 "$logs/image.log" | cut -c1-70)"
	done
fi
if wait "$image"; then
	say "done. Next: bin/lathe serve, then point an OpenAI client at it"
else
	say "done, but the sandbox image could not be built (see $logs/image.log): code runs with the host's python3"
fi
pids=()
