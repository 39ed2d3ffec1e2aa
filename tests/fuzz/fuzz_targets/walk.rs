//! See `formwork_fuzz::walk`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: formwork_fuzz::tell_of_panics(), |data: &[u8]| {
    formwork_fuzz::walk(data);
});
