# SPDX-License-Identifier: GPL-2.0-only
# The same statements with ENGINE=InnoDB and with ENGINE=TREFOIL in one server: the same comes of them. Sourced by
# smoke.sh.

output_of() {
    sed "s/@ENGINE@/$2/g" "$HERE/test/$1.sql" | client --force --unbuffered 2>&1 |
        sed -e '/^--------------$/d' -e 's/InnoDB\|TREFOIL/ENGINE/g' | without_asked || true
}

# As InnoDB does.
same() {
    local name=$1
    output_of "$name" InnoDB > "$WORK/$name.innodb"
    output_of "$name" TREFOIL > "$WORK/$name.trefoil"
    if diff -u "$WORK/$name.innodb" "$WORK/$name.trefoil" > "$WORK/$name.diff"; then
        verdict "$name" ok
    else
        cat "$WORK/$name.diff"
        verdict "$name" FAILED
    fi
}
