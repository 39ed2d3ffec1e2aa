//! See `formwork_fuzz::plan`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: formwork_fuzz::tell_of_panics(), |data: &[u8]| {
    formwork_fuzz::plan(data);
});
