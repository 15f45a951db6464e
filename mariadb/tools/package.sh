# SPDX-License-Identifier: GPL-2.0-only
# mariadb-plugin-trefoil_VERSION_ARCH.deb: the plugin, a my.cnf that loads it, the program `trefoil`, which restores increments, licences.
# Sourced by mariadb.sh.
#
# The same sources and the same server give the same bytes: times of files are the time of the last commit, owners are root,
# and dpkg-deb is told how to compress. A plugin loads only into the very version that it was built for, so that is what the
# package depends on.

# The engine's version, the server's, and how often it was packaged.
package_version() {
    local engine
    engine=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$REPO/Cargo.toml")
    printf '%s+mariadb%s-%s\n' "$engine" "$VERSION" "${TREFOIL_PACKAGE_REVISION:-1}"
}

# Of a library that files are linked with, and the server is not certain to bring along, the least version.
library_needed() {
    local name=$1 least
    shift
    least=$(objdump -T "$@" | grep -o "${name}_[0-9.]*" | sort -Vu | tail -1)
    printf '%s\n' "${least#"${name}"_}"
}

package() {
    locate
    command -v dpkg-deb > /dev/null || die "dpkg-deb is needed to make a package; it comes with Debian and what is made from it"
    local out=${1:-$TARGET/package} work server arch version epoch deb file program
    program=$(build_program)
    server=$(cat "$DIR/fetched")
    arch=$(dpkg --print-architecture)
    version=$(package_version)
    epoch=$(git -C "$REPO" log -1 --format=%ct 2> /dev/null || echo 0)
    work=$(mktemp -d "${TMPDIR:-/tmp}/trefoil-package.XXXXXX")
    mkdir -p "$out" "$work"/{DEBIAN,usr/bin,usr/lib/mysql/plugin,etc/mysql/mariadb.conf.d,usr/share/doc/mariadb-plugin-trefoil}
    strip --strip-unneeded -o "$work/usr/lib/mysql/plugin/ha_trefoil.so" "$PLUGINS/ha_trefoil.so"
    strip -o "$work/usr/bin/trefoil" "$program"
    cp "$HERE/package/trefoil.cnf" "$work/etc/mysql/mariadb.conf.d/trefoil.cnf"
    file=$work/usr/share/doc/mariadb-plugin-trefoil
    cp "$HERE/package/copyright" "$file/copyright"
    cp "$REPO/LICENSE-MIT" "$REPO/LICENSE-APACHE" "$file/"
    changelog "$version" "$epoch" | gzip -9n > "$file/changelog.Debian.gz"
    for file in OPERATING MIGRATING LIMITS; do
        gzip -9nc "$REPO/docs/$file.md" > "$work/usr/share/doc/mariadb-plugin-trefoil/$file.md.gz"
    done
    cp "$HERE"/package/{templates,postinst,postrm} "$work/DEBIAN/"
    echo /etc/mysql/mariadb.conf.d/trefoil.cnf > "$work/DEBIAN/conffiles"
    control "$version" "$arch" "$server" "$work" > "$work/DEBIAN/control"
    (cd "$work" && find etc usr -type f | LC_ALL=C sort | xargs -d '\n' md5sum > DEBIAN/md5sums)
    find "$work" -type d -exec chmod 755 {} +
    find "$work" -type f -exec chmod 644 {} +
    chmod 755 "$work"/DEBIAN/post{inst,rm} "$work/usr/bin/trefoil"
    find "$work" -exec touch -h -d "@$epoch" {} +
    deb=$out/mariadb-plugin-trefoil_${version}_$arch.deb
    SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group --uniform-compression -Zxz --build "$work" "$deb.$$" > /dev/null
    mv "$deb.$$" "$deb"
    rm -rf "$work"
    say "for MariaDB $server"
    printf '%s\n' "$deb"
}

control() {
    local version=$1 arch=$2 server=$3 work=$4 linked=("$4/usr/lib/mysql/plugin/ha_trefoil.so" "$4/usr/bin/trefoil")
    cat << END
Package: mariadb-plugin-trefoil
Version: $version
Architecture: $arch
Maintainer: The Trefoil project <trefoil@localhost>
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN "$work" | cut -f1)
Depends: mariadb-server-core (= $server), libc6 (>= $(library_needed GLIBC "${linked[@]}")), libgcc-s1, libstdc++6
Recommends: mariadb-server
Section: database
Priority: optional
Description: storage engine for MariaDB with a B-tree, Be-tree or LSM tree per index
 ENGINE=TREFOIL is a transactional storage engine: each table, and each of its
 keys, says which structure keeps it. It works beside InnoDB in one server.
 The program trefoil restores its backups and looks after its databases.
 .
 A plugin loads only into the very version of the server that it was built
 for, which this package therefore depends on.
END
}

changelog() {
    cat << END
mariadb-plugin-trefoil ($1) unstable; urgency=medium

  * Built for MariaDB $VERSION. What changed is in the history of the sources.

 -- The Trefoil project <trefoil@localhost>  $(LC_ALL=C date -u -R -d "@$2")
END
}
