//! What a machine is found to have and to reach.

use formwork_kernels::{Cpu, CpuError, CpuOptions, Isa};

/// Whoever runs tests for the sake of one instruction set names it, lest they pass without.
#[test]
fn the_best_instruction_set_is_the_one_that_was_asked_for() {
    let sets = Isa::available();
    println!("instruction sets under test: {sets:?}");
    assert_eq!(sets.first(), Some(&Isa::Portable));
    assert!(sets.is_sorted());
    let by_default = Cpu::new(CpuOptions::default()).expect("the threads start");
    assert_eq!(Some(&by_default.isa()), sets.last());
    if let Ok(wanted) = std::env::var("FORMWORK_EXPECT_ISA") {
        assert_eq!(format!("{:?}", Isa::best()), wanted);
    }
}

#[test]
fn a_machine_gives_the_instruction_sets_that_it_has_and_no_others() {
    let sets = Isa::available();
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512Vnni] {
        let options = CpuOptions {
            threads: 1,
            isa: Some(isa),
        };
        match Cpu::new(options) {
            Ok(cpu) => assert!(sets.contains(&isa) && cpu.isa() == isa),
            Err(CpuError::Unsupported(refused)) => {
                assert!(!sets.contains(&isa) && refused == isa);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn ceilings_are_measured_on_every_instruction_set() {
    for isa in Isa::available() {
        let options = CpuOptions {
            threads: 1,
            isa: Some(isa),
        };
        let ceilings = Cpu::new(options).expect("the threads start").ceilings();
        for rate in [
            ceilings.read_bytes_per_second,
            ceilings.int8_operations_per_second,
            ceilings.f32_flops_per_second,
        ] {
            assert!(rate.is_finite() && rate > 1e5, "{isa:?}: {ceilings:?}");
        }
    }
}
