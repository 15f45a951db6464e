#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::run("lsm_index_block", data));
