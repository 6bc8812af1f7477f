#!/bin/bash
# Builds lathe for other platforms into dist/, each Linux one with the guest of its own architecture in it. macOS has no sandbox of its own:
# lathe serves there without hosted tools.
set -euo pipefail
cd "$(dirname "$0")/.."

ldflags=${1:-"-s -w"}
guest=internal/guest/embedded/bin/lathe-guest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p dist
export CGO_ENABLED=0

for platform in linux/amd64 linux/arm64 darwin/arm64; do
	os=${platform%/*} arch=${platform#*/}
	overlay=()
	if [ "$os" = linux ]; then
		GOOS=$os GOARCH=$arch go build -trimpath -ldflags '-s -w' -o "$work/guest-$arch" ./cmd/lathe-guest
		# The overlay puts this guest in the place of the one of this machine, without touching the tree.
		printf '{"Replace":{"%s":"%s"}}' "$PWD/$guest" "$work/guest-$arch" >"$work/overlay.json"
		overlay=(-overlay "$work/overlay.json")
	fi
	GOOS=$os GOARCH=$arch go build -trimpath -ldflags "$ldflags" "${overlay[@]}" -o "dist/lathe-$os-$arch" ./cmd/lathe
	echo "dist/lathe-$os-$arch"
done
gvisor=$(cd runsc && go list -m -f '{{.Version}}' gvisor.dev/gvisor)
# The filters of an architecture can be compiled on a machine of that architecture only; elsewhere its runsc compiles them at each start.
if [ "$(go env GOHOSTOS)" = linux ]; then (cd runsc && go run ./filters "filters_linux_$(go env GOHOSTARCH).go"); fi
for arch in amd64 arm64; do
	(cd runsc && GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$gvisor" -o "../dist/runsc-linux-$arch" .)
	echo "dist/runsc-linux-$arch"
done
