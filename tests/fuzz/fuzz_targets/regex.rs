//! See `formwork_fuzz::regex`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: formwork_fuzz::tell_of_panics(), |data: &[u8]| {
    formwork_fuzz::regex(data);
});
