//! Cache lines asked for before they are needed.
//!
//! Whoever goes from leaf to leaf waits at each for its lines, one after the other. Asked for several leaves ahead they come at the same time
//! (Chen, Gibbons and Mowry, "Improving index performance through prefetching", 2001). It changes nothing but how long that takes: the
//! processor may leave it, and an address that is nobody's any more does no harm. Only where the processor has an instruction for it.

const LINE_BYTES: usize = 64;

/// Whether anything is asked for here.
pub const PREFETCHES: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// The lines of a value itself, without what it points to.
#[inline]
pub fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).addr();
    for at in (start & !(LINE_BYTES - 1)..start + size_of::<T>()).step_by(LINE_BYTES) {
        prefetch_at(at);
    }
}

/// The line of an address.
#[inline]
pub fn prefetch_at(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction never faults, whatever the address, and neither reads nor writes as far as the program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
