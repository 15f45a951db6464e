use trefoil::{Database, Error, IndexOptions, Options};

fn main() -> Result<(), Error> {
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
