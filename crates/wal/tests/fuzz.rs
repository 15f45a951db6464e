//! The fuzz bodies, for a second or two each, on bytes that start from a real log.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::support::{Dice, Disk, SMALL, append, fresh, payload};
use trefoil_wal::fuzzing::{fuzz_frame, fuzz_segment};

fn a_segment() -> Vec<u8> {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    for i in 0..12 {
        append(&wal, i as u8, &payload(i, 150));
        if i % 3 == 0 { wal.sync_all().unwrap() } else { wal.write_to(wal.end()).unwrap() }
    }
    append(&wal, 1, &[1; 6000]);
    wal.sync_all().unwrap();
    let mut bytes = disk.read("wal-0000000001.log");
    bytes.truncate(40 * 1024);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.roll(6) {
        let at = dice.roll(bytes.len() as u64) as usize;
        match dice.roll(6) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] = 0xff,
            2 => bytes[at..].iter_mut().take(4).for_each(|b| *b = dice.roll(256) as u8),
            3 => {
                // A header field of some frame.
                let at = at / 64 * 64 + dice.roll(64) as usize;
                bytes.iter_mut().skip(at).take(4).for_each(|b| *b = [0, 1, 0x7f, 0x80, 0xff][dice.roll(5) as usize]);
            }
            4 => {
                let from = dice.roll(bytes.len() as u64) as usize / 64 * 64;
                let piece: Vec<u8> = bytes.iter().skip(from).take(512).copied().collect();
                let to = at / 64 * 64;
                bytes.iter_mut().skip(to).zip(piece).for_each(|(b, p)| *b = p);
            }
            _ => bytes[at] ^= 1 << dice.roll(8),
        }
    }
}

#[test]
fn hostile_segments_do_not_panic() {
    let seed = a_segment();
    fuzz_segment(&seed);
    let mut dice = Dice::new(5);
    for _ in 0..1500 {
        let mut bytes = seed.clone();
        mutate(&mut bytes, &mut dice);
        fuzz_segment(&bytes);
    }
    fuzz_segment(&[]);
}

#[test]
fn hostile_frames_do_not_panic() {
    let segment = a_segment();
    let mut dice = Dice::new(6);
    for round in 0..20_000 {
        let start = 4096 + dice.roll(12) as usize * 64;
        let mut bytes = segment[start..start + 700].to_vec();
        if round > 100 {
            mutate(&mut bytes, &mut dice);
        }
        fuzz_frame(&bytes);
    }
    let compressed = segment.chunks_exact(4096).rev().find(|chunk| chunk.starts_with(b"TfWF")).unwrap().to_vec();
    for _ in 0..20_000 {
        let mut bytes = compressed.clone();
        mutate(&mut bytes, &mut dice);
        fuzz_frame(&bytes);
    }
    fuzz_frame(&[]);
}
