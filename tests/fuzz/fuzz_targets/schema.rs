//! See `formwork_fuzz::schema`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: formwork_fuzz::tell_of_panics(), |data: &[u8]| {
    formwork_fuzz::schema(data);
});
