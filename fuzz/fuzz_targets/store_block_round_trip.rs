#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::run("store_block_round_trip", data));
