//! Sizes that are promises to the user, and the relations between them.

/// Longest user key, in bytes: three quarters of the largest node. Indexes with smaller nodes take less.
pub const KEY_BYTES_MAX: usize = 48 * 1024;
/// Longest user key of databases from before longer ones; every node that users may have takes it.
pub const SHORT_KEY_BYTES_MAX: usize = 3 * 1024;
/// Longest value, in bytes: one below 4 GiB.
pub const VALUE_BYTES_MAX: u64 = u32::MAX as u64;
/// LSNs are multiples of this; records are padded to it.
pub const LSN_UNIT: u64 = 16;
/// The unit in which the disk is asked to keep its promises: the sector that a torn write may damage.
pub const SECTOR_BYTES: usize = 4096;

const _: () = assert!(SECTOR_BYTES.is_power_of_two());
const _: () = assert!(LSN_UNIT.is_power_of_two());

/// Rounds `n` up to a multiple of `unit`, a power of two.
#[must_use]
pub const fn round_up(n: u64, unit: u64) -> u64 {
    debug_assert!(unit.is_power_of_two());
    (n + unit - 1) & !(unit - 1)
}
