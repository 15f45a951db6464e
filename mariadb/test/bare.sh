# SPDX-License-Identifier: GPL-2.0-only
# `make mariadb` in a bare root: a system made by debootstrap from the machine's own package sources, with apt, gcc, make and Rust,
# and nothing else. Whatever the scripts need besides they have to fetch themselves, or to ask for. Sourced by mariadb.sh.
#
#   CACHE/bare.XXXXXX/           the root; goes with the test unless TREFOIL_BARE_KEEP is set
#   …/srv/trefoil                what is committed, without git
#   …/opt/rust                   this machine's Rust (`rustc --print sysroot`), lent for the time of a command, read-only
#   …/srv/home/.cargo            a copy of what this machine's cargo has downloaded: the crates of Cargo.lock, packed
#
# Mounts are made in a mount namespace of the command's own: none is left behind, however it ends.

# What a Rust installation asks for by itself, and make.
BARE_PACKAGES=gcc,g++,make

# debootstrap is a script: it is used from its package, installed nowhere.
bare_debootstrap() {
    local dir=$CACHE/debootstrap
    if command -v debootstrap > /dev/null; then debootstrap "$@"; return; fi
    if [ ! -d "$dir/root" ]; then
        mkdir -p "$dir"
        (cd "$dir" && apt_get download debootstrap > packages.log 2>&1) || { log_tail "$dir/packages.log"; return 1; }
        dpkg-deb -x "$dir"/debootstrap_*.deb "$dir/root.part" && mv "$dir/root.part" "$dir/root" || return 1
    fi
    DEBOOTSTRAP_DIR=$dir/root/usr/share/debootstrap "$dir/root/usr/sbin/debootstrap" "$@"
}

# The machine's sources of its own release, and of that release's updates: what others there are wants keys that the root lacks.
bare_sources() {
    local release=$1 to=$2 file
    rm -f "$to/sources.list" "$to"/sources.list.d/*
    for file in "$CACHE"/apt/sources/*.list; do
        [ -f "$file" ] || continue
        grep -E " $release(-[a-z-]+)? " "$file" | grep '^deb ' > "$to/sources.list.d/$(basename "$file")" || true
    done
    for file in "$CACHE"/apt/sources/*.sources; do
        [ -f "$file" ] || continue
        sed -s -e '/^#/d' -e 's/^Types:.*/Types: deb/' "$file" |
            awk -v RS= -v ORS='\n\n' -v release="$release" '$0 ~ "(^|\n)Suites:[^\n]* " release "(-[a-z-]+)?( |\n|$)"' \
                > "$to/sources.list.d/$(basename "$file")"
    done
}

# Sets BARE_ROOT.
bare_system() {
    local release source
    release=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    source=$(main_source)
    [ -n "$release" ] && [ -n "$source" ] || die 'a bare root is made from package sources of Debian: none are known here'
    say "a bare root of $release with $BARE_PACKAGES (about 150 MB are fetched)"
    bare_debootstrap --variant=minbase --include="$BARE_PACKAGES" "$release" "$BARE_ROOT" "${source##* }" > "$WORK/debootstrap.log" 2>&1 ||
        { log_tail "$WORK/debootstrap.log"; die "debootstrap failed"; }
    bare_sources "$release" "$BARE_ROOT/etc/apt"
    mkdir -p "$BARE_ROOT"/{opt/rust,srv/trefoil,srv/home/.cargo/registry}
}

bare_contents() {
    local cargo=${CARGO_HOME:-$HOME/.cargo}/registry dir
    git -C "$REPO" archive HEAD | tar -x -C "$BARE_ROOT/srv/trefoil"
    for dir in index cache; do
        [ ! -d "$cargo/$dir" ] || cp -a "$cargo/$dir" "$BARE_ROOT/srv/home/.cargo/registry/"
    done
}

# A command in the root, with nothing of this machine's environment.
in_bare() {
    # shellcheck disable=SC2016
    unshare --mount --propagation private bash -c '
        root=$1 rust=$2; shift 2
        mount --bind "$rust" "$root/opt/rust" && mount -o remount,bind,ro "$root/opt/rust" &&
            mount -t proc proc "$root/proc" && mount -t tmpfs tmpfs "$root/tmp" || exit 1
        exec env -i PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv/home LC_ALL=C '"${TREFOIL_PROFILE:+TREFOIL_PROFILE=$TREFOIL_PROFILE}"' \
            chroot "$root" /bin/sh -c "cd /srv/trefoil && $*"' - "$BARE_ROOT" "$(rustc --print sysroot)" "$@"
}

BARE_SQL="CREATE DATABASE bare; USE bare; CREATE TABLE bare.t (id INT PRIMARY KEY, v VARCHAR(20), KEY (v)) ENGINE=TREFOIL;
    INSERT INTO bare.t SELECT seq, CONCAT('row ', seq) FROM seq_1_to_1000;
    SELECT ENGINE, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_NAME = 't';
    SELECT v FROM bare.t WHERE id = 777; SELECT id FROM bare.t WHERE v = 'row 42';"

# Without a compiler, make or a version it says what to install, or what there is.
check_bare_refusals() {
    case $(in_bare 'CXX=none mariadb/mariadb.sh build' 2>&1) in
        *'a C++ compiler is needed; install g++'*) ;;
        *) echo 'no word about a compiler that is not there' ;;
    esac
    case $(in_bare 'MARIADB_VERSION=10.11.99 mariadb/mariadb.sh fetch' 2>&1) in
        *'there is no MariaDB 10.11.99 in this machine'*'there is: '*10.11.*) ;;
        *) echo 'a version that is not there lists none that are' ;;
    esac
}

# Nothing is installed: neither packages nor files outside of the checkout, cargo's folder and the one for scratch.
check_bare_clean() {
    diff "$WORK/packages.before" <(in_bare dpkg-query -W) || echo 'packages were installed'
    (cd "$BARE_ROOT" && find . -xdev \( -path ./srv -o -path ./tmp -o -path ./proc -o -path ./opt/rust \) -prune -o \
        -type f -newer "$WORK/packages.before" -print)
}

check_bare_output() {
    in_bare "make -s mariadb" <<< "$1" > "$WORK/out" 2> "$WORK/err" || { tail -20 "$WORK/err"; echo 'make mariadb failed'; }
    diff "$2" "$WORK/out" || tail -20 "$WORK/err"
}

bare() {
    [ "$(id -u)" = 0 ] || die 'a bare root is made and entered by root alone'
    command -v unshare > /dev/null || die 'unshare is needed; install util-linux'
    mkdir -p "$CACHE"
    WORK=$(mktemp -d "$CACHE/bare.XXXXXX")
    BARE_ROOT=$WORK/root
    [ -n "${TREFOIL_BARE_KEEP:-}" ] || trap 'rm -rf --one-file-system "$WORK"' EXIT
    own_lists
    update_lists
    bare_system
    bare_contents
    in_bare dpkg-query -W > "$WORK/packages.before"
    judged 'bare: what is missing is named' check_bare_refusals
    printf 'ENGINE\tTABLE_ROWS\nTREFOIL\t1000\nv\nrow 777\nid\n42\n' > "$WORK/expected"
    judged 'bare: make mariadb, a statement on standard input' check_bare_output "$BARE_SQL" "$WORK/expected"
    # A second server, from what is there.
    printf 'COUNT(*)\n1000\n' > "$WORK/expected.again"
    judged 'bare: once more, the rows are there' check_bare_output 'SELECT COUNT(*) FROM bare.t' "$WORK/expected.again"
    judged 'bare: nothing is installed' check_bare_clean
    say "MariaDB $(cat "$BARE_ROOT/srv/trefoil/target/mariadb/current" 2> /dev/null)," \
        "$(in_bare 'rustc --version; g++ --version | head -1' | paste -sd';'), $(wc -l < "$WORK/packages.before") packages"
    verdicts
}
