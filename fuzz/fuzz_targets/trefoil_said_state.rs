#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::run("trefoil_said_state", data));
