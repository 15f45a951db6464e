//! Each rule finds the violation planted for it, and nothing in a clean house.

use super::*;
use std::fs;
use std::path::PathBuf;

/// A small house in a scratch folder that is removed with it.
struct House(PathBuf);

impl House {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("trefoil-tidy-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let house = Self(dir);
        house.write("layers.toml", "[layers]\n\"crates/low\" = []\n\"crates/high\" = [\"crates/low\"]\n[tests]\n");
        house.write("Cargo.toml", "[workspace]\nlow = { path = \"crates/low\", package = \"t-low\" }\n");
        house.write("crates/low/Cargo.toml", "[package]\nname = \"t-low\"\n[dependencies]\n");
        house.write("crates/high/Cargo.toml", "[package]\nname = \"t-high\"\n[dependencies]\nlow.workspace = true\n");
        house.write("crates/low/src/lib.rs", "mod room;\n#[cfg(test)]\nmod tests;\n");
        house.write("crates/low/src/room.rs", "pub fn enter() -> u8 {\n    1\n}\n");
        house.write("crates/low/src/tests.rs", "#[test]\nfn a1_it_is_so() {\n    std::fs::read(\"x\").unwrap();\n}\n");
        house.write("crates/high/src/lib.rs", "");
        house.write("docs/INVARIANTS.md", "| A1 | so | `crates/low/src/room.rs::enter` | `a1_it_is_so` |\n");
        house
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Rule and path of everything found.
    fn findings(&self) -> Vec<(&'static str, String)> {
        check(&Tree::read(&self.0).unwrap()).into_iter().map(|f| (f.rule, f.path)).collect()
    }

    #[track_caller]
    fn expect(&self, rule: &'static str, path: &str) {
        assert_eq!(self.findings(), [(rule, path.to_owned())]);
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn two_functions_of_one_name_are_found() {
    let house = House::new("functions");
    house.write("mariadb/a.sh", "load() {\n}\nstart_load() {\n}\n");
    house.write("mariadb/b.sh", "# start_load() {\nload_all() { true; }\n");
    house.write("elsewhere.sh", "load() {\n}\n");
    assert_eq!(house.findings(), []);
    house.write("mariadb/b.sh", "start_load() {\n}\n");
    house.expect("same-function", "mariadb/b.sh");
}

#[test]
fn a_handler_that_grows_is_found() {
    let house = House::new("handler");
    house.write("mariadb/handler/a.cc", &"int a;\n".repeat(2000));
    house.write("mariadb/handler/a.h", &"int a;\n".repeat(1999));
    house.write("mariadb/capi/include/capi.h", "int a;\n");
    assert_eq!(house.findings(), []);
    house.write("mariadb/handler/b.h", "int a;\n");
    house.expect("handler-lines", "mariadb/handler");
}

#[test]
fn a_pipe_whose_reader_leaves_is_found() {
    let house = House::new("early");
    house.write("a.sh", "# no ldd x | grep -q here\nldd x | grep found\ngrep -q x y\nldd x || grep -q x y\n");
    assert_eq!(house.findings(), []);
    house.write("a.sh", "(true && ! ldd x | grep -Fq 'not found') && exit\n");
    house.expect("early-reader", "a.sh");
}

#[test]
fn a_clean_house_has_no_findings() {
    assert_eq!(House::new("clean").findings(), []);
}

#[test]
fn an_upward_import_is_found() {
    let house = House::new("layers");
    house.write(
        "crates/low/Cargo.toml",
        "[package]\nname = \"t-low\"\n[dependencies]\nt-high = { path = \"../high\" }\n",
    );
    house.expect("layers", "crates/low/Cargo.toml");
    house.write("layers.toml", "[layers]\n\"crates/low\" = []\n\"crates/high\" = [\"crates/low\"]\n[tests]\n\"crates/low\" = [\"crates/high\"]\n");
    house.expect("layers", "crates/low/Cargo.toml");
    house.write(
        "crates/low/Cargo.toml",
        "[package]\nname = \"t-low\"\n[dev-dependencies]\nt-high = { path = \"../high\" }\n",
    );
    assert_eq!(house.findings(), []);
}

#[test]
fn a_crate_without_a_layer_is_found() {
    let house = House::new("unlisted");
    house.write("crates/other/Cargo.toml", "[package]\nname = \"t-other\"\n");
    house.expect("layers", "layers.toml");
}

#[test]
fn long_files_and_functions_are_found() {
    let house = House::new("sizes");
    house.write("crates/low/src/room.rs", &format!("fn enter() {{\n{}}}\n", "    f();\n".repeat(69)));
    house.expect("function-lines", "crates/low/src/room.rs");
    house.write("crates/low/src/room.rs", &format!("fn enter() {{}}\n{}", "const A: u8 = 1;\n".repeat(600)));
    house.expect("file-lines", "crates/low/src/room.rs");
    house.write("xtask/allow.txt", "file-lines crates/low/src/room.rs because it is a table\n");
    assert_eq!(house.findings(), []);
}

#[test]
fn an_exception_needs_a_reason_and_a_use() {
    let house = House::new("allow");
    house.write("xtask/allow.txt", "# rule name reason\nunwrap crates/low/src/room.rs historical\n");
    house.expect("allow", "xtask/allow.txt");
    house.write("xtask/allow.txt", "unwrap crates/low/src/room.rs\n");
    house.expect("allow", "xtask/allow.txt");
}

#[test]
fn other_doors_are_found() {
    let house = House::new("doors");
    for code in [
        "use std::{sync::{Arc, Mutex}};",
        "use std::thread;",
        "fn f() { let t = std::time::Instant::now(); }",
        "use parking_lot::RwLock;",
        "fn f() { m!(::std::fs::read(p)) }",
    ] {
        house.write("crates/low/src/room.rs", &format!("{code}\nfn enter() {{}}\n"));
        house.expect("door", "crates/low/src/room.rs");
    }
    house.write("crates/low/src/room.rs", "use std::time::Duration;\nuse std::sync::Arc;\nfn enter() {}\n");
    assert_eq!(house.findings(), []);
}

#[test]
fn unwraps_and_unsafe_are_found() {
    let house = House::new("calls");
    house.write("crates/low/src/room.rs", "fn enter() { x.unwrap(); }\n");
    house.expect("unwrap", "crates/low/src/room.rs");
    house.write("crates/low/src/room.rs", "fn enter() { unsafe { x() } }\n");
    house.expect("unsafe", "crates/low/src/room.rs");
    house.write("crates/low/src/room.rs", "#![forbid(unsafe_code)]\nfn enter() { \"unsafe\"; } // unsafe\n");
    assert_eq!(house.findings(), []);
}

#[test]
fn dead_files_are_found() {
    let house = House::new("dead");
    house.write("crates/low/src/room/corner.rs", "");
    house.expect("dead-file", "crates/low/src/room/corner.rs");
    house.write("crates/low/src/room.rs", "mod corner;\nfn enter() {}\n");
    assert_eq!(house.findings(), []);
}

/// Guards: `tree.rs`, every file of `tests` is a program whatever the manifest says; none of those that it names is one.
#[test]
fn a_file_of_tests_that_no_program_has_is_dead() {
    let house = House::new("programs");
    let manifest = "[package]\nname = \"t-low\"\nautotests = false\n\n[dependencies]\n\n[[test]]\nname = \"all\"\n";
    house.write("crates/low/tests/all.rs", "mod one;\n");
    house.write("crates/low/tests/one.rs", "mod deep;\n");
    house.write("crates/low/tests/one/deep.rs", "");
    house.write("crates/low/Cargo.toml", manifest);
    assert_eq!(house.findings(), []);
    house.write("crates/low/tests/two.rs", "");
    house.expect("dead-file", "crates/low/tests/two.rs");
    house.write("crates/low/Cargo.toml", &format!("{manifest}\n[[test]]\nname = \"two\"\n"));
    assert_eq!(house.findings(), []);
}

#[test]
fn unfinished_work_is_found() {
    let house = House::new("unfinished");
    for code in [
        "fn enter() { todo!() }",
        "#[test]\n#[ignore]\nfn enter() {}",
        &format!("fn enter() {{}} // {}: x", ["FIX", "ME"].concat()),
    ] {
        house.write("crates/low/src/room.rs", code);
        house.expect("unfinished", "crates/low/src/room.rs");
    }
}

#[test]
fn paths_of_a_machine_are_found() {
    let house = House::new("machine");
    house.write("docs/TESTING.md", &format!("see {}\n", ["/ho", "me/me/trefoil"].concat()));
    house.expect("machine-path", "docs/TESTING.md");
}

#[test]
fn documents_that_rot_are_found() {
    let house = House::new("documents");
    for line in ["`crates/low/src/gone.rs`", "`crates/low/src/room.rs::leave`", "[x](gone.md)"] {
        house.write("docs/TESTING.md", line);
        house.expect("doc-link", "docs/TESTING.md");
    }
    house.write("docs/TESTING.md", "`crates/low/src/room.rs::enter` [x](INVARIANTS.md#a) `crates/low`");
    assert_eq!(house.findings(), []);
}

#[test]
fn an_invariant_without_its_test_is_found() {
    let house = House::new("invariants");
    for row in ["| A2 | so | here | `a2_gone` |", "| A2 | so | here | none |", "| A2 | so | here | `enter` |"] {
        house.write("docs/INVARIANTS.md", row);
        house.expect("invariant", "docs/INVARIANTS.md");
    }
    house.write("docs/INVARIANTS.md", "| A1 | so | x | `a1_it_is_so` |\n| A1 | so | x | `a1_it_is_so` |\n");
    house.expect("invariant", "docs/INVARIANTS.md");
}

#[test]
fn a_public_item_without_an_example_is_found() {
    const EXAMPLE: &str = "/// ```\n/// f();\n/// ```\n";
    const LIB: &str = "crates/trefoil/src/lib.rs";
    const ROOM: &str = "crates/trefoil/src/room.rs";
    let house = House::new("examples");
    house.write(
        "layers.toml",
        "[layers]\n\"crates/low\" = []\n\"crates/high\" = [\"crates/low\"]\n\"crates/trefoil\" = []\n[tests]\n",
    );
    house.write("crates/trefoil/Cargo.toml", "[package]\nname = \"trefoil\"\n");
    house.write(LIB, "mod room;\npub use room::{Room, SIZE};\n");
    let room = |above: &str, member: &str| {
        format!(
            "{EXAMPLE}pub const SIZE: u8 = 1;\n{above}pub struct Room<T>(T);\nimpl<T: Into<u8>> Room<T> {{\n{member}}}\n"
        )
    };
    let member = EXAMPLE.replace("///", "    ///") + "    #[must_use]\n    pub const fn enter() {}\n";
    house.write(ROOM, &room(EXAMPLE, &member));
    assert_eq!(house.findings(), []);
    // Without, with one that does not run, and with an end of a block that looks like a start.
    for above in ["", "/// A room.\n", "/// ```no_run\n/// f();\n/// ```\n", "/// ```text\n/// [ ]\n/// ```\n"] {
        house.write(ROOM, &room(above, &member));
        house.expect("example", ROOM);
    }
    for bare in ["    pub fn enter() {}\n", "    /// Enters.\n    #[must_use]\n    pub const fn enter() {}\n"] {
        house.write(ROOM, &room(EXAMPLE, bare));
        house.expect("example", ROOM);
    }
    // Not reachable, or not meant to be.
    for other in
        ["    pub(crate) fn enter() {}\n", "    #[doc(hidden)]\n    pub fn enter() {}\n", "    fn enter() {}\n"]
    {
        house.write(ROOM, &(room(EXAMPLE, other) + "pub struct Cellar;\nimpl Cellar {\n    pub fn enter() {}\n}\n"));
        assert_eq!(house.findings(), []);
    }
    house.write("xtask/allow.txt", "example crates/trefoil/src/room.rs:enter because\n");
    house.write(ROOM, &room(EXAMPLE, "    pub fn enter() {}\n"));
    assert_eq!(house.findings(), []);
}

#[test]
fn exports_without_an_example_are_found() {
    const EXAMPLE: &str = "/// ```\n/// f();\n/// ```\n";
    const LIB: &str = "crates/trefoil/src/lib.rs";
    let house = House::new("exports");
    house.write(
        "layers.toml",
        "[layers]\n\"crates/low\" = []\n\"crates/high\" = [\"crates/low\"]\n\"crates/trefoil\" = []\n[tests]\n",
    );
    house.write("crates/trefoil/Cargo.toml", "[package]\nname = \"trefoil\"\n");
    house.write("crates/trefoil/src/room.rs", "pub mod corner;\n");
    house.write("crates/trefoil/src/room/corner.rs", "pub fn sit() {}\n");
    // A public module makes public what is in it.
    house.write(LIB, "pub mod room;\n");
    house.expect("example", "crates/trefoil/src/room/corner.rs");
    for hidden in ["#[doc(hidden)]\npub mod room;\n", "mod room;\n"] {
        house.write(LIB, hidden);
        assert_eq!(house.findings(), []);
    }
    // What comes from another crate, and what cannot be followed.
    for line in ["pub use low::Door;\n", "pub use room::*;\n", &format!("{EXAMPLE}pub use low::{{Door, Wall}};\n")] {
        house.write(LIB, &format!("mod room;\n{line}"));
        let found = house.findings();
        assert!(!found.is_empty() && found.iter().all(|f| *f == ("example", LIB.to_owned())), "{line}: {found:?}");
    }
    house.write(LIB, &format!("mod room;\n{EXAMPLE}pub use low::Door;\n"));
    assert_eq!(house.findings(), []);
}
