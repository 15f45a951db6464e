//! The README's example does what it says.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

mod example {
    include!("fruit.rs");

    pub fn run() -> Result<(), Error> {
        main()
    }
}

#[test]
fn the_readme_shows_an_example_that_runs() {
    let (readme, source) = (include_str!("../../../../README.md"), include_str!("fruit.rs"));
    assert!(readme.contains(source), "README.md shows crates/trefofruit.rs, to the letter");
    let dir = tempfile::tempdir().unwrap();
    std::env::set_current_dir(&dir).unwrap();
    example::run().unwrap();
    assert!(dir.path().join("fruit.db/TREFOIL").exists());
}
