# SPDX-License-Identifier: GPL-2.0-only
# Packages of one MariaDB version in the cache: the server with the libraries it needs, headers, the small archive of
# services. Sourced by mariadb.sh.
#
#   CACHE/apt/           package lists of our own, so that source packages can be found and nothing of the machine changes;
#   CACHE/apt.RELEASE/   those of another release of the system
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

# The machine's sources, asked for source packages too; of another release of the system if one is named. Against an empty machine
# then: its programs need libraries of their own, the C library among them.
own_lists() {
    command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null ||
        die "apt-get and dpkg-deb are needed to fetch MariaDB; they come with Debian and what is made from it"
    local release=${1:-} apt=$CACHE/apt${1:+.$1} file
    mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/archives/partial"
    rm -f "$apt"/sources/*
    APT=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/sources" -o "Dir::State::Lists=$apt/lists"
        -o "Dir::Cache=$apt" -o APT::Sandbox::User= -o Debug::NoLocking=1 -o Acquire::Retries=3)
    if [ -n "$release" ]; then
        file=$(main_source)
        [ -n "$file" ] || die "no source of whole releases is among this machine's package sources"
        printf 'deb %s %s main\ndeb-src %s %s main\n' "$file" "$release" "$file" "$release" > "$apt/sources/release.list"
        : > "$apt/status"
        APT+=(-o "Dir::State::status=$apt/status")
        return
    fi
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] || continue
        sed -n -e 's/#.*//' -e '/^deb /{p;s/^deb /deb-src /p}' "$file" > "$apt/sources/$(basename "$file" .list).list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        sed 's/^Types:.*/Types: deb deb-src/' "$file" > "$apt/sources/$(basename "$file")"
    done
}

# Of the machine's sources the first that has whole releases: [signed-by=FILE] ADDRESS. Updates and security have names with more
# behind the release's.
main_source() {
    {
        sed -n -e 's/#.*//' -e 's/^deb \(\[[^]]*\] *\)\{0,1\}\([^ ]*\) [a-z]* \(.* \)\{0,1\}main\( .*\)\{0,1\}$/\1\2/p' \
            /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2> /dev/null || true
        sed -s -e '/^#/d' -e '$G' /etc/apt/sources.list.d/*.sources 2> /dev/null | awk -v RS= '
            function field(name) { return match($0, "(^|\n)" name ":[^\n]*") ? substr($0, RSTART, RLENGTH) : "" }
            field("Types") ~ /[ :]deb( |$)/ && field("Components") ~ / main( |$)/ && field("Suites") ~ / [a-z]+( |$)/ {
                split(field("URIs"), uri, / +/)
                split(field("Signed-By"), key, / +/)
                print (key[2] ~ /^\// ? "[signed-by=" key[2] "] " : "") uri[2]
            }' || true
    } | sed -n 1p
}

# The release of Debian that has a series which others do not have.
release_of() { case $1 in 11.8 | 11.8.*) echo trixie ;; esac; }

# The lists that the fetched version is of, read if they are not there. Packages of another release have a loader of their own.
lists_of_fetched() {
    local release=
    [ ! -e "$DIR/root/loader" ] || release=$(release_of "$VERSION")
    own_lists ${release:+"$release"}
    [ -n "$(apt_cache madison mariadb-server-core)" ] || update_lists
}

update_lists() {
    say 'reading the package sources of this machine'
    apt_get update > "$CACHE/update.log" 2>&1 ||
        { tail -5 "$CACHE/update.log" >&2; die "the machine's package sources cannot be read (apt-get update)"; }
}

# Versions that have a server package, newest first.
available() { apt_cache madison mariadb-server-core | awk '{ print $3 }' | sort -Vru; }

# 1:10.11.18-0+deb12u1 -> 10.11.18
upstream() { local v=${1#*:}; printf '%s\n' "${v%%[-+]*}"; }

# True if a version is the one that is asked for, or of the series.
is_asked() { case $1 in "$MARIADB_VERSION" | "$MARIADB_VERSION".*) [ -n "$MARIADB_VERSION" ] ;; *) return 1 ;; esac; }

# Those asked for, newest first.
candidates() {
    local version
    for version in $(available); do
        case $(upstream "$version") in
            "$SERIES".*) [ -n "$MARIADB_VERSION" ] || printf '%s\n' "$version" ;;
        esac
        ! is_asked "$(upstream "$version")" && [ "$version" != "$MARIADB_VERSION" ] || printf '%s\n' "$version"
    done
}

# The newest that is there of what is asked for.
fetched_already() {
    local current version
    current=$(cat "$CACHE/current" 2> /dev/null) || true
    [ -n "$MARIADB_VERSION" ] || { [ -n "$current" ] && [ -e "$CACHE/$current/fetched" ]; return; }
    version=$(cd "$CACHE" 2> /dev/null && for version in */fetched; do
        ! is_asked "${version%/fetched}" || printf '%s\n' "${version%/fetched}"
    done | sort -V | tail -n 1)
    [ -n "$version" ] && printf '%s\n' "$version" > "$CACHE/current"
}

fetch() {
    local version found release
    ! fetched_already || return 0
    mkdir -p "$CACHE"
    exec 9> "$CACHE/lock"
    flock 9
    release=$(release_of "${MARIADB_VERSION:-$SERIES}")
    if [ -n "${TREFOIL_MARIADB_PACKAGES:-}" ]; then
        found=$(given_version)
    else
        own_lists
        update_lists
        found=$(candidates)
    fi
    if [ -n "$release" ] && { [ -z "$found" ] || [ -n "${TREFOIL_MARIADB_PACKAGES:-}" ]; }; then
        say "packages of Debian $release, with libraries of their own"
        own_lists "$release"
        update_lists
        [ -n "$found" ] || found=$(candidates)
    fi
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
    die "no version could be fetched whole, of:" $found "(TREFOIL_MARIADB_PACKAGES names a folder with packages and source of one)"
}

# Of packages that are in a folder.
given_version() {
    local deb
    deb=$(find "$TREFOIL_MARIADB_PACKAGES" -maxdepth 1 -name 'mariadb-server-core_*.deb' | sort -V | tail -n 1)
    [ -n "$deb" ] || die "there is no mariadb-server-core_*.deb in $TREFOIL_MARIADB_PACKAGES (TREFOIL_MARIADB_PACKAGES)"
    dpkg-deb -f "$deb" Version
}

fetch_version() {
    local version=$1 dir
    dir=$CACHE/$(upstream "$version")
    mkdir -p "$dir/debs"
    fetch_source "$version" "$dir" || return 1
    fetch_packages "$version" "$dir" || return 1
    unpack "$dir" && own_loader "$dir" && headers "$dir" || return 1
    rm -rf "$dir/source"
    printf '%s\n' "$version" > "$dir/fetched"
    say "MariaDB $(upstream "$version") is in $dir"
}

# First, because it is what may be missing: an archive may list a source that it does not hold.
fetch_source() {
    local version=$1 dir=$2
    [ ! -d "$dir/src" ] || return 0
    mkdir -p "$dir/source"
    if [ -n "${TREFOIL_MARIADB_PACKAGES:-}" ]; then
        cp "$TREFOIL_MARIADB_PACKAGES"/mariadb_"$(upstream "$version")"*.orig.tar.* "$dir/source/"
        return
    fi
    say "the source of $version (about 115 MB)"
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
    if [ -n "${TREFOIL_MARIADB_PACKAGES:-}" ]; then
        given_packages "$dir"
        return
    fi
    apt_get install --download-only --no-install-recommends --allow-downgrades --reinstall \
        "${NEEDED[@]/%/=$version}" > "$dir/packages.log" 2>&1 || { log_tail "$dir/packages.log"; return 1; }
    (cd "$dir/debs" && apt_get download "${NEEDED[@]/%/=$version}" "${FILES_ONLY[@]/%/=$version}" \
        >> ../packages.log 2>&1) || { log_tail "$dir/packages.log"; return 1; }
    find "$CACHE"/apt*/archives -maxdepth 1 -name '*.deb' -exec mv -f -t "$dir/debs" {} +
}

# Those of a folder, and what they depend on.
given_packages() {
    local dir=$1 name file given=()
    for name in "${NEEDED[@]}" "${FILES_ONLY[@]}"; do
        file=$(find "$TREFOIL_MARIADB_PACKAGES" -maxdepth 1 -name "${name}_*.deb" | sort -V | tail -n 1)
        [ -n "$file" ] || die "there is no ${name}_*.deb in $TREFOIL_MARIADB_PACKAGES (TREFOIL_MARIADB_PACKAGES)"
        cp "$file" "$dir/debs/"
        case " ${NEEDED[*]} " in *" $name "*) given+=("$file") ;; esac
    done
    apt_get install --download-only --no-install-recommends --allow-downgrades --reinstall "${given[@]}" \
        > "$dir/packages.log" 2>&1 || { log_tail "$dir/packages.log"; return 1; }
    find "$CACHE"/apt*/archives -maxdepth 1 -name '*.deb' -exec mv -f -t "$dir/debs" {} +
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
    lists_of_fetched
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
    mkdir -p "$DIR/tools.part" && package_into "$DIR/debs" mariadb-client &&
        dpkg-deb -x "$DIR"/debs/mariadb-client_*.deb "$DIR/tools.part" &&
        cp -a "$DIR/tools.part/usr/bin/." "$ROOT/bin/" && own_loader "$DIR" || { log_tail "$DIR/packages.log"; return 1; }
    rm -rf "$DIR/tools.part"
}

# A package of the fetched version into a directory, from the folder that is named or the package sources.
package_into() {
    local to=$1 name=$2 given
    given=$(find "${TREFOIL_MARIADB_PACKAGES:-$DIR/debs}" -maxdepth 1 -name "${name}_$(sed 's/^[0-9]*://' "$DIR/fetched")_*.deb" | sed -n 1p)
    if [ -n "$given" ]; then
        [ -n "$(find "$to" -name "$(basename "$given")")" ] || cp "$given" "$to/"
        return
    fi
    lists_of_fetched
    (cd "$to" && apt_get download "$name=$(cat "$DIR/fetched")" >> "$DIR/packages.log" 2>&1)
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

# Programs with a C library of their own start through its loader: a script takes the place of each, in the server's tree or the one
# that is named. It looks for the program beside itself, and gives it its own name: a tree may get another one, a program has several.
own_loader() {
    local dir=$1 tree=${2:-$1/root} loader libraries program
    loader=$(find "$dir/root" -name 'ld-linux*' | sed -n 1p)
    [ -n "$loader" ] || return 0
    libraries=$(find "$dir/root" -path '*/lib*' -name 'lib*.so*' -printf '%h\n' | sort -u | paste -sd:)
    find "$tree/usr" -type f -perm -u+x ! -name '*.so*' ! -name '*.own' | while read -r program; do
        [ "$(head -c 4 "$program" | tr -d '\0')" != $'\x7fELF' ] || mv "$program" "$program.own"
    done
    find "$tree/usr" -type f -name '*.own' | while read -r program; do
        printf '#!/bin/sh\nexec "%s" --argv0 "$0" --library-path "%s" "${0%%/*}/%s" "$@"\n' "$loader" "$libraries" "${program##*/}" > "$program.part"
        chmod +x "$program.part"
        mv "$program.part" "${program%.own}"
    done
    printf '%s\n' "$loader" > "$dir/root/loader"
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
