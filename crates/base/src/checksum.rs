//! CRC32C (Castagnoli polynomial, RFC 3720 appendix B.4), hardware-assisted where the machine has it.

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// Continues a CRC32C over further `bytes`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn rfc_3720_vectors() {
        assert_eq!(super::crc32c(&[0u8; 32]), 0x8a91_36aa);
        assert_eq!(super::crc32c(&[0xffu8; 32]), 0x62a8_ab43);
        assert_eq!(super::crc32c_append(super::crc32c(b"1234"), b"56789"), 0xe306_9283);
    }
}
