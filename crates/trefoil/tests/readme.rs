//! The README's example does what it says.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

mod example {
    use trefoil::{Database, Error, IndexOptions, Options};

    pub fn main() -> Result<(), Error> {
        let db = Database::open("fruit.db", Options::default())?;
        let stock = db.create_index("stock", IndexOptions::default())?;
        let mut tx = db.begin()?;
        tx.put(&stock, b"apple", b"12")?;
        tx.put(&stock, b"pear", b"7")?;
        tx.commit()?; // on disk when it returns: the default durability is Sync
        let snapshot = db.snapshot()?;
        let (fruit, count) = snapshot.range(&stock, ..)?.collect()?.swap_remove(0);
        println!("{} {}", String::from_utf8_lossy(&fruit), String::from_utf8_lossy(&count));
        db.close()
    }
}

#[test]
fn the_readme_shows_an_example_that_runs() {
    let readme = include_str!("../../../README.md");
    let shown = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of Rust");
    let here = include_str!("readme.rs").replace("pub fn main()", "fn main()");
    let indented: String =
        shown.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }).collect();
    assert!(here.contains(&indented), "README.md and the module `example` here are the same, to the letter");
    let dir = tempfile::tempdir().unwrap();
    std::env::set_current_dir(&dir).unwrap();
    example::main().unwrap();
    assert!(dir.path().join("fruit.db/TREFOIL").exists());
}
