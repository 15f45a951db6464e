# SPDX-License-Identifier: GPL-2.0-only
# ha_trefoil.so: the handler (C++) and the engine behind its C interface (Rust), linked for one version of the server.
# Sourced by mariadb.sh.

# Where cargo puts what it builds; and in a profile.
BUILDS=$TARGET
built_in() { case $1 in dev) printf '%s\n' "$BUILDS/debug" ;; *) printf '%s\n' "$BUILDS/$1" ;; esac; }

# Sets DIR (of the fetched version), ROOT, PLUGINS.
locate() {
    VERSION=$(fetched_version)
    DIR=$CACHE/$VERSION
    ROOT=$DIR/root/usr
    # Texts of the server; since 11 under its own name.
    MESSAGES=$ROOT/share/mariadb
    [ -d "$MESSAGES/english" ] || MESSAGES=$ROOT/share/mysql
    PLUGINS=$DIR/plugin
}

build() {
    locate
    local profile=${TREFOIL_PROFILE:-release} cxx file object linked=()
    # Builds of one cache may run at once, from several checkouts: each of those has objects of its own, and what is written
    # has the number of its process until it is whole.
    local src=$DIR/src objects=$DIR/objects.$(cksum <<< "$HERE" | cut -d' ' -f1) archive
    archive=$(built_in "$profile")/libtrefoil_capi.a
    local plugin=$PLUGINS/ha_trefoil.so.$$
    cxx=$(compiler)
    say "building ha_trefoil.so for MariaDB $VERSION"
    # shellcheck disable=SC2086
    cargo_builds "$profile" ${TREFOIL_BUILD:--p trefoil-capi}
    mkdir -p "$objects" "$PLUGINS"
    local include=(-I"$src/gen" -I"$src/include" -I"$src/include/providers" -I"$src/sql" -I"$src/wsrep-lib/include"
        -I"$src/wsrep-lib/wsrep-API/v26")
    # Layouts depend on these: they are those of the server's own build.
    local defines=(-DHAVE_CONFIG_H -DMYSQL_DYNAMIC_PLUGIN -DMYSQL_SERVER=1 -DDBUG_OFF -DNDEBUG -D_FILE_OFFSET_BITS=64)
    # The server's headers are not ours to mend: as system headers they are not warned about.
    local compile=("$cxx" -std=gnu++17 -O2 -g1 -fPIC -Wall -Wextra -Wno-unused-parameter "${defines[@]}"
        -I"$HERE/capi/include" "${include[@]/#-I/-isystem}")
    # They are most of what each file is: read once, but where a file names structures of its own before.
    local headers=$objects/server.h with
    printf '#include "%s"\n' "$HERE/handler/server.h" > "$headers.$$"
    mv "$headers.$$" "$headers"
    if is_stale "$headers.gch" "$HERE"/{handler,capi/include}/*.h; then
        "${compile[@]}" -x c++-header "$HERE/handler/server.h" -o "$headers.gch.$$"
        mv "$headers.gch.$$" "$headers.gch"
    fi
    for file in "$HERE"/handler/*.cc; do
        object=$objects/$(basename "$file" .cc).o
        linked+=("$object")
        # A header may be used by all.
        is_stale "$object" "$file" "$HERE"/{handler,capi/include}/*.h || continue
        if grep -q '^#define ha_' "$file"; then with=(); else with=(-include "$headers"); fi
        "${compile[@]}" "${with[@]}" -c "$file" -o "$object.$$"
        mv "$object.$$" "$object"
    done
    # shellcheck disable=SC2086
    "$cxx" -shared -o "$plugin" "${linked[@]}" "$archive" "$(services)" ${GUIDED_LINK:-} \
        -Wl,--version-script="$HERE/handler/exports.map" -Wl,--gc-sections -Wl,-z,now -Wl,-z,nodelete -lpthread -ldl -lm
    check_symbols "$plugin"
    mv "$plugin" "$PLUGINS/ha_trefoil.so"
    printf '%s\n' "$VERSION" > "$PLUGINS/built-for.$$"
    mv "$PLUGINS/built-for.$$" "$PLUGINS/built-for"
}

# cargo_builds PROFILE WHAT...
cargo_builds() (
    local profile=$1
    shift
    exec "${CARGO:-cargo}" build --quiet --profile "$profile" --locked --manifest-path "$REPO/Cargo.toml" --target-dir "$BUILDS" "$@"
)

# The program `trefoil` in the profile of the plugin; prints its path.
build_program() {
    local profile=${TREFOIL_PROFILE:-release} what=(-p trefoil-cli)
    # With what the plugin was built with: as part of the workspace it has the features of that build, and nothing is compiled twice.
    # shellcheck disable=SC2206
    [ -z "${TREFOIL_BUILD:-}" ] || what=($TREFOIL_BUILD --bin trefoil)
    cargo_builds "$profile" "${what[@]}"
    printf '%s\n' "$(built_in "$profile")/trefoil"
}

# True if a file is not there, or older than one of the others.
is_stale() {
    local made=$1
    shift
    [ ! -e "$made" ] || [ -n "$(find "$@" -newer "$made")" ]
}

compiler() { command -v "${CXX:-g++}" || die "a C++ compiler is needed; install g++"; }

services() { find "$ROOT/lib" -name libmysqlservices.a | head -1; }

# What the plugin takes from the server is there: a missing symbol fails here, not when the server starts.
check_symbols() {
    local missing
    missing=$(comm -23 \
        <(nm -D --undefined-only "$1" | awk '$1 == "U" { print $2 }' | grep -v '@' | sort -u) \
        <(nm -D --defined-only "$(server_elf)" | awk '{ print $3 }' | sed 's/@.*//' | sort -u))
    [ -z "$missing" ] || die "mariadbd $VERSION does not export what the plugin needs:" $missing
}

# A plugin loads only into the very version that it was built for.
check_version() {
    local server plugin
    server=$("$(server_program)" --no-defaults --version | sed -n 's/.*Ver \([0-9.]*\).*/\1/p')
    plugin=$(cat "$PLUGINS/built-for")
    [ "$server" = "$plugin" ] || die "the plugin was built for MariaDB $plugin, the server is $server; remove $PLUGINS" \
        "and run \`mariadb/mariadb.sh build\`"
}
