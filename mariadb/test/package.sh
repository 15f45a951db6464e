# SPDX-License-Identifier: GPL-2.0-only
# The package in a system of its own: a root that is made of the distribution's packages, where it is installed, a server started,
# a table made; upgraded, removed, purged. Sourced by mariadb.sh.

# What dpkg and scripts run with; the rest follows from their dependencies, and the server's.
SYSTEM=(debconf dpkg dash bash coreutils sed grep sysvinit-utils base-files libc-bin perl-base tar
    diffutils findutils mawk hostname)

# Everything that they and the server need, whatever this machine has: as if nothing was installed. The server is the one that was fetched,
# though the package sources may have another by now; what it needs is of the release of Debian that it is of.
system_packages() {
    local status=$CACHE/apt/empty-status name server=()
    [ ! -e "$DIR/system/complete" ] || return 0
    say 'packages of a whole system (about 80 MB)'
    lists_of_fetched
    for name in "${NEEDED[@]}"; do
        server+=("$(find "$DIR/debs" -maxdepth 1 -name "${name}_*.deb" | sort -V | tail -n 1)")
    done
    mkdir -p "$DIR/system" "$CACHE/apt"
    : > "$status"
    find "$CACHE"/apt*/archives -maxdepth 1 -name '*.deb' -delete
    apt_get -o "Dir::State::status=$status" install --download-only --no-install-recommends --allow-downgrades \
        "${server[@]}" "${SYSTEM[@]}" > "$DIR/system.log" 2>&1 || { log_tail "$DIR/system.log"; return 1; }
    find "$CACHE"/apt*/archives -maxdepth 1 -name '*.deb' -exec mv -f -t "$DIR/system" {} +
    cp "${server[@]}" "$DIR/system/"
    : > "$DIR/system/complete"
}

# Unpacked, and known to its dpkg as installed: nothing of it is configured, which a server by hand does not need.
make_system() {
    local root=$1 deb name dir
    mkdir -p "$root"/{usr/bin,usr/sbin,usr/lib,usr/lib64,dev,proc,tmp,var/lib/dpkg/info,var/lib/dpkg/updates,var/lib/mysql,etc}
    for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$root/$dir"; done
    for deb in "$DIR"/system/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -C "$root" --keep-directory-symlink -xf - || return 1
        name=$(dpkg-deb -f "$deb" Package)
        dpkg-deb -f "$deb" | sed '/^Package: /a Status: install ok installed' >> "$root/var/lib/dpkg/status"
        echo >> "$root/var/lib/dpkg/status"
        : > "$root/var/lib/dpkg/info/$name.list"
        [ "$(dpkg-deb -f "$deb" Multi-Arch)" != same ] ||
            : > "$root/var/lib/dpkg/info/$name:$(dpkg-deb -f "$deb" Architecture).list"
    done
    echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
    echo 'root:x:0:' > "$root/etc/group"
    echo '127.0.0.1 localhost' > "$root/etc/hosts"
    # What a configured package of the server does.
    ln -sf mariadb.cnf "$root/etc/mysql/my.cnf"
    ln -sf bash "$root/usr/bin/sh"
    mknod -m 666 "$root/dev/null" c 1 3 && mknod -m 666 "$root/dev/urandom" c 1 9 && mknod -m 666 "$root/dev/random" c 1 8 &&
        mknod -m 666 "$root/dev/zero" c 1 5 && chmod 1777 "$root/tmp" && in_system /sbin/ldconfig
}

THERE=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive chroot)
in_system() { "${THERE[@]}" "$SYSTEM_ROOT" "$@"; }
in_client() { in_system mariadb -N -B --socket=/tmp/socket --user=root "$@"; }

# A server there, as the package's my.cnf has it.
start_in_system() {
    local tries
    # No function: what is sent to the background is the server itself, known by its number.
    "${THERE[@]}" "$SYSTEM_ROOT" mariadbd --user=root --datadir=/var/lib/mysql --socket=/tmp/socket --pid-file=/tmp/pid --skip-networking \
        --log-error=/tmp/error.log < /dev/null > /dev/null 2>&1 &
    SYSTEM_SERVER=$!
    for ((tries = 0; tries < 300; tries++)); do
        ! in_client -e 'DO 1' > /dev/null 2>&1 || return 0
        kill -0 "$SYSTEM_SERVER" 2> /dev/null || break
        sleep 0.1
    done
    tail -5 "$SYSTEM_ROOT/tmp/error.log"
    echo 'the server in the package'"'"'s system does not start'
}

stop_in_system() {
    kill "$SYSTEM_SERVER" 2> /dev/null || true
    wait "$SYSTEM_SERVER" 2> /dev/null || true
    SYSTEM_SERVER=
}

install_in_system() {
    cp "$1" "$SYSTEM_ROOT/tmp/plugin.deb"
    in_system dpkg --install /tmp/plugin.deb 2>&1
}

check_reproducible() {
    local second
    mkdir "$WORK/again"
    second=$(package "$WORK/again" 2> /dev/null)
    cmp "$1" "$second"
}

check_contents() {
    expect "$(dpkg-deb -f "$1" Depends | grep -o 'mariadb-server-core (= [^)]*)')" "mariadb-server-core (= $(cat "$DIR/fetched"))"
    local file files
    files=$(dpkg-deb -c "$1")
    expect "$(awk '{ print $2 }' <<< "$files" | sort -u)" root/root
    for file in usr/bin/trefoil usr/lib/mysql/plugin/ha_trefoil.so etc/mysql/mariadb.conf.d/trefoil.cnf usr/share/doc/mariadb-plugin-trefoil/copyright \
        usr/share/doc/mariadb-plugin-trefoil/changelog.Debian.gz; do
        grep -q "\./$file\$" <<< "$files" || echo "no $file"
    done
}

check_installed() {
    install_in_system "$1" > "$WORK/dpkg.log" || cat "$WORK/dpkg.log"
    expect "$(in_system dpkg-query -W -f '${Status}' mariadb-plugin-trefoil)" 'install ok installed'
    in_system mariadb-install-db --force --user=root --datadir=/var/lib/mysql --auth-root-authentication-method=normal --skip-test-db \
        > "$WORK/install.log" 2>&1 || tail -20 "$WORK/install.log"
}

check_serves() {
    in_client -e 'CREATE DATABASE IF NOT EXISTS p; CREATE TABLE p.t (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=TREFOIL;
        INSERT INTO p.t VALUES (1, 2), (2, 3)'
    expect "$(in_client -e 'SELECT SUM(v) FROM p.t')" 5
    expect "$(in_client -e "SELECT COUNT(*) FROM information_schema.TREFOIL_INDEXES WHERE table_name = 't'")" 2
}

# A full backup and an increment to it, and what is lost behind them.
check_backups() {
    in_client -e "SET GLOBAL trefoil_backup_dir = '/tmp/full'; INSERT INTO p.t VALUES (3, 7);
        SET GLOBAL trefoil_backup_dir = '/tmp/increment SINCE /tmp/full'; DELETE FROM p.t"
}

# With what the package has: a database made of both.
check_restores() {
    expect "$(in_system trefoil --version)" "trefoil $(package_version | sed 's/+.*//')"
    expect "$(in_system trefoil --help | grep -c '^  trefoil restore')" 2
    rm -rf "$SYSTEM_ROOT/var/lib/mysql/trefoil"
    in_system trefoil restore /tmp/full /tmp/increment /var/lib/mysql/trefoil > "$WORK/restored.log" 2>&1 || cat "$WORK/restored.log"
    rm -rf "$SYSTEM_ROOT"/tmp/{full,increment}
}

check_upgraded() {
    install_in_system "$1" > "$WORK/dpkg.log" || cat "$WORK/dpkg.log"
    expect "$(in_system dpkg-query -W -f '${Version}' mariadb-plugin-trefoil)" "$(dpkg-deb -f "$1" Version)"
    grep -q 'until it is restarted' "$WORK/dpkg.log" || cat "$WORK/dpkg.log"
}

# A plugin loads into one version of the server: the package of another one is refused.
check_refused() {
    sed -i "/^Package: mariadb-server-core/,/^\$/s/^Version: .*/Version: 1:10.11.1-1/" "$SYSTEM_ROOT/var/lib/dpkg/status"
    case $(install_in_system "$1" || true) in *'depends on mariadb-server-core (= '*) ;; *) echo 'it is not refused' ;; esac
}

check_removed() {
    in_system dpkg --remove mariadb-plugin-trefoil > "$WORK/dpkg.log" 2>&1 || cat "$WORK/dpkg.log"
    [ ! -e "$SYSTEM_ROOT/usr/lib/mysql/plugin/ha_trefoil.so" ] || echo 'the plugin is there'
    [ -s "$SYSTEM_ROOT/var/lib/mysql/trefoil/data.trefoil" ] || echo 'the data is gone'
    grep -q 'stay in /var/lib/mysql/trefoil' "$WORK/dpkg.log" || cat "$WORK/dpkg.log"
}

# Data goes only if that is answered with yes.
check_purged() {
    install_in_system "$1" > /dev/null
    in_system dpkg --purge mariadb-plugin-trefoil > "$WORK/dpkg.log" 2>&1 || cat "$WORK/dpkg.log"
    [ -s "$SYSTEM_ROOT/var/lib/mysql/trefoil/data.trefoil" ] || echo 'the data went without a question'
    install_in_system "$1" > /dev/null
    echo 'mariadb-plugin-trefoil mariadb-plugin-trefoil/purge_data boolean true' | in_system debconf-set-selections
    in_system dpkg --purge mariadb-plugin-trefoil > "$WORK/dpkg.log" 2>&1 || cat "$WORK/dpkg.log"
    [ ! -e "$SYSTEM_ROOT/var/lib/mysql/trefoil" ] || { echo 'the data is there'; cat "$WORK/dpkg.log"; }
}

package_tests() {
    local first second
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/trefoil-test.XXXXXX")
    SYSTEM_ROOT=$WORK/system SYSTEM_SERVER=
    trap '[ -z "$SYSTEM_SERVER" ] || kill "$SYSTEM_SERVER"; rm -rf "$WORK"' EXIT
    first=$(package "$WORK")
    second=$(TREFOIL_PACKAGE_REVISION=2 package "$WORK")
    judged 'package: contents' check_contents "$first"
    judged 'package: reproducible' check_reproducible "$first"
    if [ "$(id -u)" != 0 ] || ! system_packages || ! make_system "$SYSTEM_ROOT" > "$WORK/system.log" 2>&1; then
        tail -3 "$WORK/system.log" 2> /dev/null || true
        echo 'skipped: the package in a system of its own, which takes root and the packages of one'
        verdicts
        return
    fi
    judged 'package: installed' check_installed "$first"
    start_in_system
    judged 'package: serves' check_serves
    judged 'package: backups' check_backups
    stop_in_system
    judged 'package: restores increments' check_restores
    start_in_system
    judged 'package: rows of an increment' expect "$(in_client -e 'SELECT SUM(v) FROM p.t')" 12
    in_client -e 'DELETE FROM p.t WHERE id = 3'
    judged 'package: upgraded' check_upgraded "$second"
    stop_in_system
    start_in_system
    judged 'package: rows behind an upgrade, by another server' expect "$(in_client -e 'SELECT SUM(v) FROM p.t')" 5
    stop_in_system
    judged 'package: removed' check_removed
    start_in_system
    judged 'package: a server without it' expect "$(in_client -e "SELECT COUNT(*) FROM information_schema.ENGINES WHERE engine = 'TREFOIL'")" 0
    stop_in_system
    judged 'package: purged' check_purged "$first"
    judged 'package: refused by another server' check_refused "$first"
    verdicts
}
