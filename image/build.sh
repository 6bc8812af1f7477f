#!/bin/bash
# Builds the sandbox image `python`: a root file system with Python 3 and the data libraries, from the packages of this machine's
# own Debian (or Ubuntu) mirrors. Never touches an image in use: a new one is built beside it and the link `python` is switched.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "$(id -u)" = 0 ]; then default_dir=/var/lib/lathe/images; else default_dir=${HOME:?}/.local/share/lathe/images; fi
images=${LATHE_IMAGE_DIR:-$default_dir}
name=python
tarball=""
force=""

usage() {
	cat <<USAGE
usage: image/build.sh [--force] [--from-tar FILE] [--name NAME]
  Builds the image NAME (python) in \$LATHE_IMAGE_DIR ($images). Does nothing if it is there and the recipe has not changed.
  --from-tar FILE   take the root file system from a tar (an image built elsewhere, or 'docker export') instead of building it
  --force           build it anew
USAGE
}
say() { printf 'image: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

while [ $# -gt 0 ]; do
	case $1 in
	--from-tar) tarball=${2:?--from-tar needs a file}; shift 2 ;;
	--name) name=${2:?--name needs a name}; shift 2 ;;
	--force) force=1; shift ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
done
[[ $name =~ ^[a-z0-9][a-z0-9._-]{0,63}$ ]] || die "a name is lower-case letters, digits and . _ -, not '$name'"

# 'essential' has neither apt nor a compiler: nothing inside could install with the one, and the other costs more than it is used.
list() { sed 's/#.*//' "$here/$1" | tr -s ' \t\n' '\n' | sed '/^$/d'; }

recipe() {
	if [ -n "$tarball" ]; then
		sha256sum <"$tarball" | cut -c1-32
	else
		{ cat "$here/build.sh" "$here/finish.py"; list packages.txt; list excludes.txt; release; uname -m; } | sha256sum | cut -c1-32
	fi
}

release() { (. /etc/os-release 2>/dev/null && printf '%s %s' "${ID:-linux}" "${VERSION_CODENAME:-}"); }

# The lines come from what apt was told on this machine: only the distribution's own archives, of its own release.
sources() {
	local codename=$1
	apt-get indextargets --format '$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)' 'Identifier: Packages' 2>/dev/null |
		awk -F'|' -v c="$codename" '($1 == "Debian" || $1 == "Ubuntu") && index($2, c) == 1 && $3 !~ /^cdrom:/ { print "deb " $3 " " $4 " " $5 }' |
		sort -u
}

as_root_install() {
	if [ "$(id -u)" != 0 ]; then
		die "mmdebstrap is missing: install it (apt-get install mmdebstrap uidmap), or let root run 'make image'"
	fi
	command -v apt-get >/dev/null || die "this is no Debian: build the image elsewhere and bring it with 'image/build.sh --from-tar FILE'"
	say "installing mmdebstrap"
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap; } >/dev/null ||
		die "mmdebstrap could not be installed; see the lines above"
}

can_unshare() {
	command -v newuidmap >/dev/null && grep -q "^$(id -un):" /etc/subuid 2>/dev/null && unshare --user --map-root-user true 2>/dev/null
}

bootstrap() {
	local rootfs=$1 work=$2 mode format target codename lines
	command -v mmdebstrap >/dev/null || as_root_install
	codename=$(. /etc/os-release && printf %s "${VERSION_CODENAME:?/etc/os-release names no release}")
	lines=$(sources "$codename")
	if [ -z "$lines" ] && [ "$(id -u)" = 0 ]; then
		apt-get update -qq
		lines=$(sources "$codename")
	fi
	[ -n "$lines" ] || die "apt knows no Debian archive for $codename: run apt-get update, or use --from-tar"
	if [ "$(id -u)" = 0 ]; then
		mode=root target=$rootfs format=directory
	elif can_unshare; then
		mode=unshare target=$work/rootfs.tar format=tar
	else
		die "an ordinary user needs subordinate ids to build an image (apt-get install uidmap; a line for $(id -un) in /etc/subuid and
/etc/subgid). Otherwise let root run 'make image' (everyone can use an image in /var/lib/lathe/images), or use --from-tar FILE."
	fi
	# Proxies and mirrors' certificates of this machine apply to the build too, but are not left in the image.
	apt-config dump | grep -E '^Acquire::(http|https|Check-Valid-Until|Retries)[: ]' >"$work/apt.conf" || true
	# Not with --dpkgopt: it would filter each essential package through a Python program. They are cleaned later instead.
	list excludes.txt | sed 's/^/path-exclude=/' >"$work/lathe-excludes"
	printf 'path-include=/usr/share/doc/*/copyright\n' >>"$work/lathe-excludes"
	local args=(--mode="$mode" --variant=essential --format="$format" --include="$(list packages.txt | paste -sd,)"
		--aptopt="$work/apt.conf" --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"'
		--essential-hook="copy-in $work/lathe-excludes /etc/dpkg/dpkg.cfg.d"
		--customize-hook="copy-in $here/finish.py /tmp"
		--customize-hook="chroot \"\$1\" env LATHE_NAME='$name' LATHE_RECIPE='$stamp' LATHE_SOURCE='$(release)' python3 -I /tmp/finish.py")
	[ -f /usr/share/keyrings/debian-archive-keyring.gpg ] && args+=(--keyring=/usr/share/keyrings/debian-archive-keyring.gpg)
	[ -d /etc/apt/trusted.gpg.d ] && args+=(--keyring=/etc/apt/trusted.gpg.d)
	say "installing $(list packages.txt | wc -l) packages of $(release) with all they need (about two minutes)"
	printf '%s\n' "$lines" >"$work/sources"
	# In the background, so that a signal reaches this shell at once. The PATH is Debian's own: a python3 of the user's could be any.
	PATH=/usr/sbin:/usr/bin:/sbin:/bin mmdebstrap "${args[@]}" "$codename" "$target" - <"$work/sources" 9>&- &
	wait $! || die "mmdebstrap ended with an error; see the lines above"
	if [ "$format" = tar ]; then unpack "$target" "$rootfs"; fi
}

unpack() {
	local file=$1 rootfs=$2 owner=--no-same-owner
	[ "$(id -u)" = 0 ] && owner=--same-owner
	mkdir -p "$rootfs"
	# Devices come from gVisor, and an ordinary user cannot make them.
	tar --extract --file "$file" --directory "$rootfs" --numeric-owner --preserve-permissions "$owner" --exclude='./dev/*' --exclude='dev/*' ||
		die "$file could not be unpacked"
}

# What Debian's packages left behind. Only of a root file system that was built here: of a tar it is the operator's choice.
strip_build() {
	local rootfs=${1:?}
	# The compiler stays until here because its packages' scripts want it.
	rm -f "$rootfs"/usr/bin/*-linux-gnu-* "$rootfs"/usr/bin/{gcc,g++,cpp,c++,cc,c89,c99,gprof}* "$rootfs"/usr/bin/{as,dwp,gold,ld,ld.bfd,ld.gold}
	rm -f "$rootfs"/usr/lib/*/lib{asan,tsan,ubsan,lsan}.so.*
	# Packages' scripts compile these, and fail if dpkg leaves them out.
	find "$rootfs/usr/lib/python3/dist-packages" -depth -type d \( -name tests -o -name sample_data \) -exec rm -rf {} +
	rm -rf "$rootfs"/var/{cache/apt,lib/apt/lists,log} "$rootfs"/etc/{apt,dpkg/dpkg.cfg.d} "$rootfs"/usr/share/{man,info,locale,lintian,bug,unicode}
}

# No file of an image gives a program more rights than it has, all is readable in a user namespace, and what a sandbox needs is there.
# A tar may hold links that lead out of it: nothing here follows one.
finish() {
	local rootfs=${1:?} kind dir
	for dir in etc tmp root mnt home proc sys dev skills .lathe mnt/data home/user; do
		[ ! -L "$rootfs/$dir" ] || die "/$dir is a link in it: a sandbox needs a folder there"
	done
	find "$rootfs" -xdev \( -type b -o -type c -o -type p -o -type s \) -delete
	find "$rootfs" -xdev -type f -perm /6000 -exec chmod ug-s {} +
	find "$rootfs" -xdev -mindepth 2 \( -path "$rootfs/tmp/*" -o -path "$rootfs/root/*" \) -delete
	rm -f "$rootfs"/etc/{hosts,resolv.conf,machine-id,hostname}
	mkdir -p "$rootfs"/{etc,tmp,root,proc,sys,dev,mnt/data,home/user,skills,.lathe}
	printf '127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n' >"$rootfs/etc/hosts"
	for kind in passwd group; do
		[ ! -L "$rootfs/etc/$kind" ] || die "/etc/$kind is a link in it"
		grep -qs '^[^:]*:[^:]*:1000:' "$rootfs/etc/$kind" && continue
		if [ $kind = passwd ]; then echo 'user:x:1000:1000:user:/mnt/data:/bin/bash'; else echo 'user:x:1000:'; fi >>"$rootfs/etc/$kind"
	done
	chmod -R u+rwX,go+rX "$rootfs"
	chmod 1777 "$rootfs/tmp"
}

# The image.json that a build of ours has put into the root file system; of a foreign tar nothing is run to find out what is in it.
describe() {
	local rootfs=${1:?} made
	made=$(realpath -e "$rootfs/usr/share/lathe/image.json" 2>/dev/null || true)
	if [[ $made == "$(realpath "$rootfs")"/* ]]; then
		sed "s/\"recipe\": \"[^\"]*\"/\"recipe\": \"$stamp\"/; s/\"name\": \"[^\"]*\"/\"name\": \"$name\"/" "$made"
	else
		printf '{\n  "name": "%s",\n  "recipe": "%s",\n  "created": "%s",\n  "libraries": {}\n}\n' "$name" "$stamp" "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
	fi
}

stamp=$(recipe)
current=$images/$name
if [ -z "$force" ] && [ -f "$current/image.json" ] && grep -q "\"recipe\": \"$stamp\"" "$current/image.json"; then
	say "$current is up to date"
	exit 0
fi

mkdir -p "$images"
exec 9>"$images/.$name.lock"
flock -n 9 || { say "waiting for another build of $name"; flock 9; }
if [ -z "$force" ] && grep -qs "\"recipe\": \"$stamp\"" "$current/image.json"; then exit 0; fi

rm -rf "$images"/.build-"$name"-* # left by a build that was killed: this one holds the lock
build=$(mktemp -d "$images/.build-$name-XXXXXX")
trap 'rm -rf "$build"' EXIT
trap 'kill -INT $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM
chmod 755 "$build"
mkdir "$build/work" "$build/image"
rootfs=$build/image/rootfs
started=$SECONDS

if [ -n "$tarball" ]; then
	say "unpacking $tarball"
	unpack "$tarball" "$rootfs"
else
	bootstrap "$rootfs" "$build/work"
	strip_build "$rootfs"
	# Scripts that people bring call it so.
	[ -e "$rootfs/usr/bin/python" ] || [ -L "$rootfs/usr/bin/python" ] || ln -s python3 "$rootfs/usr/bin/python"
fi
[ -f "$rootfs/usr/bin/python3" ] || [ -L "$rootfs/usr/bin/python3" ] || die "there is no /usr/bin/python3 in it, which a sandbox needs"
finish "$rootfs"
describe "$rootfs" >"$build/image/image.json"

# Running sandboxes keep the folder that they started from, so the one before stays until the next build.
version=$name-$(date -u +%Y%m%d%H%M%S)-${stamp:0:8}
mv "$build/image" "$images/$version"
before=$(readlink "$current" 2>/dev/null || true)
if [ -d "$current" ] && [ ! -L "$current" ]; then mv "$current" "$images/$name-00000000000000-before"; fi
ln -s "$version" "$build/link"
mv -T "$build/link" "$current"
for old in "$images/$name"-[0-9]*; do
	case ${old##*/} in "$version" | "$before") ;; *) rm -rf "$old" ;; esac
done
say "$current is ready: $(du -sh "$images/$version" | cut -f1) in $((SECONDS - started)) s"
