# SPDX-License-Identifier: GPL-2.0-only
# Packages of one MariaDB version in the cache: the server with the libraries it needs, headers, the small archive of
# services. Sourced by mariadb.sh.
#
#   CACHE/apt/           package lists of our own, so that source packages can be found and nothing of the machine changes
#   CACHE/VERSION/debs/  packages as fetched; the package client checks their hashes
#   CACHE/VERSION/root/  the same unpacked
#   CACHE/VERSION/src/   headers of the source
#   CACHE/current        the version that was fetched last
#
# A step that was cut short is done again: downloads are continued by the package client, an unpacked tree is renamed to
# its name once it is whole, and `fetched` is written last.

# Beside the server: what the plugin is built with, and an engine to compare with.
NEEDED=(mariadb-server-core mariadb-client-core mariadb-common libmariadb3)
FILES_ONLY=(libmariadb-dev libmariadbd-dev mariadb-plugin-rocksdb)

fetched_version() {
    [ -s "$CACHE/current" ] || die "nothing is fetched yet; run \`make mariadb\` or mariadb/mariadb.sh fetch"
    cat "$CACHE/current"
}

apt_get() { apt-get -q -y "${APT[@]}" "$@"; }
apt_cache() { apt-cache "${APT[@]}" "$@"; }

# The machine's sources, asked for source packages too.
own_lists() {
    command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null ||
        die "apt-get and dpkg-deb are needed to fetch MariaDB; they come with Debian and what is made from it"
    local apt=$CACHE/apt file
    mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/archives/partial"
    rm -f "$apt"/sources/*
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] || continue
        sed -n -e 's/#.*//' -e '/^deb /{p;s/^deb /deb-src /p}' "$file" > "$apt/sources/$(basename "$file" .list).list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        sed 's/^Types:.*/Types: deb deb-src/' "$file" > "$apt/sources/$(basename "$file")"
    done
    APT=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/sources" -o "Dir::State::Lists=$apt/lists"
        -o "Dir::Cache=$apt" -o APT::Sandbox::User= -o Debug::NoLocking=1 -o Acquire::Retries=3)
}

update_lists() {
    say 'reading the package sources of this machine'
    apt_get update > "$CACHE/apt/update.log" 2>&1 ||
        { tail -5 "$CACHE/apt/update.log" >&2; die "the machine's package sources cannot be read (apt-get update)"; }
}

# Versions that have a server package, newest first.
available() { apt_cache madison mariadb-server-core | awk '{ print $3 }' | sort -Vru; }

# 1:10.11.18-0+deb12u1 -> 10.11.18
upstream() { local v=${1#*:}; printf '%s\n' "${v%%-*}"; }

# Those asked for, newest first.
candidates() {
    local version
    for version in $(available); do
        case $(upstream "$version") in
            "${MARIADB_VERSION:-none}") printf '%s\n' "$version" ;;
            "$SERIES".*) [ -n "$MARIADB_VERSION" ] || printf '%s\n' "$version" ;;
        esac
        [ "$version" != "$MARIADB_VERSION" ] || printf '%s\n' "$version"
    done
}

fetch() {
    local current=
    [ ! -s "$CACHE/current" ] || current=$(cat "$CACHE/current")
    if [ -n "$current" ] && [ -e "$CACHE/$current/fetched" ]; then
        case $MARIADB_VERSION in "" | "$current") return 0 ;; esac
    fi
    if [ -n "$MARIADB_VERSION" ] && [ -e "$CACHE/$MARIADB_VERSION/fetched" ]; then
        printf '%s\n' "$MARIADB_VERSION" > "$CACHE/current"
        return 0
    fi
    mkdir -p "$CACHE"
    exec 9> "$CACHE/lock"
    flock 9
    own_lists
    update_lists
    local version found
    found=$(candidates)
    if [ -z "$found" ]; then
        die "there is no MariaDB ${MARIADB_VERSION:-$SERIES} in this machine's package sources; there is:" $(available)
    fi
    for version in $found; do
        if fetch_version "$version"; then
            upstream "$version" > "$CACHE/current"
            flock -u 9
            return 0
        fi
    done
    die "no version could be fetched whole, of:" $found
}

fetch_version() {
    local version=$1 dir
    dir=$CACHE/$(upstream "$version")
    mkdir -p "$dir/debs"
    fetch_source "$version" "$dir" || return 1
    fetch_packages "$version" "$dir" || return 1
    unpack "$dir" && headers "$dir" || return 1
    rm -rf "$dir/source"
    printf '%s\n' "$version" > "$dir/fetched"
    say "MariaDB $(upstream "$version") is in $dir"
}

# First, because it is what may be missing: an archive may list a source that it does not hold.
fetch_source() {
    local version=$1 dir=$2
    [ ! -d "$dir/src" ] || return 0
    say "the source of $version (about 115 MB)"
    mkdir -p "$dir/source"
    if ! (cd "$dir/source" && apt_get source --download-only --only-source "mariadb=$version" > ../source.log 2>&1); then
        say "its source is not to be had: $(grep -m1 '^E:' "$dir/source.log" || echo "see $dir/source.log")"
        rm -rf "$dir/source"
        return 1
    fi
}

# The server with every library that this machine lacks; and single packages, whatever they depend on.
fetch_packages() {
    local version=$1 dir=$2
    say "packages of $version (about 18 MB)"
    apt_get install --download-only --no-install-recommends --allow-downgrades --reinstall \
        "${NEEDED[@]/%/=$version}" > "$dir/packages.log" 2>&1 || { log_tail "$dir/packages.log"; return 1; }
    (cd "$dir/debs" && apt_get download "${NEEDED[@]/%/=$version}" "${FILES_ONLY[@]/%/=$version}" \
        >> ../packages.log 2>&1) || { log_tail "$dir/packages.log"; return 1; }
    find "$CACHE/apt/archives" -maxdepth 1 -name '*.deb' -exec mv -f -t "$dir/debs" {} +
}

# What a program names and neither this machine nor the server's packages have. Read whole: under `pipefail` a reader that
# leaves early would fail what it reads from, and that looks like nothing found.
lacking() { (private_libraries && ldd "$1" | sed -n '/not found/p'); }

# Libraries of the engine to compare with.
ROCKSDB_LIBRARIES=(libsnappy1v5)
fetch_rocksdb() {
    locate
    local plugin=$ROOT/lib/mysql/plugin/ha_rocksdb.so name
    [ -f "$plugin" ] || die "there is no ha_rocksdb.so in $DIR; remove it and fetch again"
    [ -n "$(lacking "$plugin")" ] || return 0
    say "libraries of MyRocks: ${ROCKSDB_LIBRARIES[*]}"
    own_lists
    [ -n "$(apt_cache madison "${ROCKSDB_LIBRARIES[0]}")" ] || update_lists
    for name in "${ROCKSDB_LIBRARIES[@]}"; do
        (cd "$DIR/debs" && apt_get download "$name" >> ../packages.log 2>&1) || { log_tail "$DIR/packages.log"; return 1; }
        dpkg-deb -x "$DIR"/debs/"$name"_*.deb "$DIR/root" || return 1
    done
    [ -z "$(lacking "$plugin")" ] || die "MyRocks still lacks a library:" "$(lacking "$plugin")"
}

# mariadb-dump and mariadb-binlog, which only tests of backups run. False if they are not to be had.
fetch_tools() {
    [ ! -x "$ROOT/bin/mariadb-binlog" ] || return 0
    say 'mariadb-dump and mariadb-binlog'
    own_lists
    [ -n "$(apt_cache madison mariadb-client)" ] || update_lists
    mkdir -p "$DIR/tools.part" &&
        (cd "$DIR/debs" && apt_get download "mariadb-client=$(cat "$DIR/fetched")" >> ../packages.log 2>&1) &&
        dpkg-deb -x "$DIR"/debs/mariadb-client_*.deb "$DIR/tools.part" &&
        cp -a "$DIR/tools.part/usr/bin/." "$ROOT/bin/" || { log_tail "$DIR/packages.log"; return 1; }
    rm -rf "$DIR/tools.part"
}

log_tail() { tail -5 "$1" >&2; }

unpack() {
    local dir=$1 deb
    [ ! -d "$dir/root" ] || return 0
    say 'unpacking'
    rm -rf "$dir/root.part"
    mkdir "$dir/root.part"
    for deb in "$dir"/debs/*.deb; do
        dpkg-deb -x "$deb" "$dir/root.part" || return 1
    done
    mv "$dir/root.part" "$dir/root"
}

# Of the source what engines are compiled with, 10 MB; of the generated headers those of the distribution's own build.
headers() {
    local dir=$1 tarball built
    [ ! -d "$dir/src" ] || return 0
    tarball=$(find "$dir/source" -name '*.orig.tar.*' ! -name '*.asc' | head -1)
    [ -n "$tarball" ] || { say "the source package holds no source"; return 1; }
    say 'headers'
    rm -rf "$dir/src.part"
    mkdir -p "$dir/src.part/gen"
    tar -xf "$tarball" -C "$dir/src.part" --strip-components=1 --wildcards --no-wildcards-match-slash \
        '*/include' '*/sql/*.h' '*/wsrep-lib' || return 1
    built=$dir/root/usr/include/mariadb/server
    cp "$built"/my_config.h "$built"/mysqld_error.h "$built"/mysql_version.h "$dir/src.part/gen/" || return 1
    cp "$dir/src.part/include/probes_mysql_nodtrace.h.in" "$dir/src.part/gen/probes_mysql_nodtrace.h" || return 1
    mv "$dir/src.part" "$dir/src"
}
