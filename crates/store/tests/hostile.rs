//! Every decoder on bytes that nobody wrote: made up, and whole ones with damage.

use trefoil_store::fuzzing::BODIES;
use trefoil_store::{BlockKind, BlockRef, Compression, RunMeta, codec};
use vfs::random::Rng;

fn made_up(rng: &mut Rng) -> Vec<u8> {
    let longest = [8, 64, 300, 5000][rng.index(4)];
    let bytes = rng.below(longest);
    // Small numbers are what lengths and tags are made of.
    let most = [2, 5, 256][rng.index(3)];
    (0..bytes).map(|_| rng.below(most) as u8).collect()
}

/// Whole things to damage: a block, a run description, a saved state.
fn whole() -> Vec<Vec<u8>> {
    let payload: Vec<u8> = (0..2000u32).map(|i| (i / 50) as u8).collect();
    let block = |compression, cuts: &[usize]| {
        let mut block = vec![3];
        codec::seal(BlockKind::Run, base::IndexId(0), compression, &payload, cuts, &mut block).expect("it is short");
        block
    };
    let mut meta = Vec::new();
    let root = BlockRef { offset: 7, stored_bytes: 99, crc: 5 };
    let (min_key, max_key) = (b"a".to_vec(), b"z".to_vec());
    RunMeta { id: 3, bytes: 8192, entries: 5, height: 1, root, min_key, max_key }.encode(&mut meta);
    let saved = vec![1, 9, 9, 9, 9, 9, 9, 9, 9, 0x80, 0x80, 4, 40, 3, 1, 100, 2, 50, 9, 7];
    let mut all = vec![meta, saved, vec![0, 9, 200, 1, 1, 1, 1, 1]];
    for compression in [Compression::Lz4, Compression::Zstd] {
        all.extend([block(compression, &[]), block(compression, &[100, 130, 1000])]);
    }
    all
}

#[test]
fn decoders_survive_hostile_bytes() {
    let mut rng = Rng::new(2024);
    for (_name, body) in BODIES {
        for _ in 0..20_000 {
            body(&made_up(&mut rng));
        }
        for whole in whole() {
            body(&whole);
            for _ in 0..4000 {
                let mut bad = whole.clone();
                for _ in 0..1 + rng.below(3) {
                    let at = rng.index(bad.len());
                    bad[at] = rng.u64() as u8;
                }
                bad.truncate(bad.len() - rng.index(bad.len()) * rng.below(2) as usize);
                body(&bad);
            }
        }
    }
}
