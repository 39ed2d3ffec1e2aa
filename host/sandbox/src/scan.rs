//! A look at a component's bytes before anything is compiled.

use crate::bindings::{PACKAGE, VERSION};
use crate::{AdmissionError, SandboxLimits};
use wasmparser::{Encoding, Parser, Payload};

/// What a component is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Core instances that it makes by instantiating a module.
    pub(crate) core_instances: u32,
}

/// Interfaces that a plugin may import, beside none at all.
const IMPORTS: [&str; 5] = ["types", "vocabulary", "masks", "grammars", "log"];

/// Interfaces that a plugin must export.
const EXPORTS: [&str; 2] = ["plugin", "decoding"];

/// Checks size, kind, imports and exports, and counts.
pub(crate) fn scan(bytes: &[u8], limits: &SandboxLimits) -> Result<Census, AdmissionError> {
    within(
        "the component's size in bytes",
        bytes.len(),
        "component_bytes",
        limits.component_bytes,
    )?;
    check_kind(bytes)?;
    let mut census = Census::default();
    let mut exports = Vec::new();
    let mut depth = 0usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(invalid)? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::InstanceSection(section) => {
                for instance in section {
                    if let wasmparser::Instance::Instantiate { .. } = instance.map_err(invalid)? {
                        census.core_instances += 1;
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    check_memory(memory.map_err(invalid)?.initial, limits)?;
                }
            }
            Payload::TableSection(section) => {
                for table in section {
                    check_table(table.map_err(invalid)?.ty.initial, limits)?;
                }
            }
            Payload::CodeSectionEntry(body) => {
                let size = body.range().len();
                within(
                    "a function's size in bytes",
                    size,
                    "function_bytes",
                    limits.function_bytes,
                )?;
            }
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    check_import(import.map_err(invalid)?.name.name)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    exports.push(export.map_err(invalid)?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    check_exports(&exports)?;
    Ok(census)
}

fn check_memory(pages: u64, limits: &SandboxLimits) -> Result<(), AdmissionError> {
    let bytes = usize::try_from(pages)
        .unwrap_or(usize::MAX)
        .saturating_mul(64 << 10);
    within(
        "the initial memory in bytes",
        bytes,
        "memory_bytes",
        limits.memory_bytes,
    )
}

fn check_table(elements: u64, limits: &SandboxLimits) -> Result<(), AdmissionError> {
    let elements = usize::try_from(elements).unwrap_or(usize::MAX);
    within(
        "the initial table size",
        elements,
        "table_elements",
        limits.table_elements,
    )
}

/// An error when `value` exceeds `limit`.
pub(crate) fn within(
    what: &str,
    value: usize,
    bound: &'static str,
    limit: usize,
) -> Result<(), AdmissionError> {
    if value <= limit {
        return Ok(());
    }
    Err(AdmissionError::TooLarge {
        what: what.to_owned(),
        value: value as u64,
        bound,
        limit: limit as u64,
    })
}

fn invalid(error: wasmparser::BinaryReaderError) -> AdmissionError {
    AdmissionError::Invalid(error.to_string())
}

fn check_kind(bytes: &[u8]) -> Result<(), AdmissionError> {
    let not = |reason: &str| Err(AdmissionError::NotAComponent(reason.to_owned()));
    if wasmtime::Engine::detect_precompiled(bytes).is_some() {
        return not("it is compiled machine code, which is never taken from outside");
    }
    if !bytes.starts_with(b"\0asm") {
        return not("it does not begin with the magic bytes `\\0asm`");
    }
    let version = Parser::new(0).parse_all(bytes).next();
    match version {
        Some(Ok(Payload::Version {
            encoding: Encoding::Component,
            ..
        })) => Ok(()),
        Some(Ok(Payload::Version {
            encoding: Encoding::Module,
            ..
        })) => not(
            "it is a core module; make a component of it with `formwork plugin build` or \
             `wasm-tools component new`",
        ),
        Some(Err(error)) => Err(invalid(error)),
        _ => not("it ends before its header does"),
    }
}

/// The interface's name within our package, if it is of our package and of a version we serve.
fn ours(name: &str) -> Result<Option<&str>, AdmissionError> {
    let Some(rest) = name
        .strip_prefix(PACKAGE)
        .and_then(|rest| rest.strip_prefix('/'))
    else {
        return Ok(None);
    };
    let (interface, version) = rest.split_once('@').unwrap_or((rest, ""));
    if version != VERSION {
        return Err(AdmissionError::Version {
            interface: name.to_owned(),
            host: VERSION,
        });
    }
    Ok(Some(interface))
}

fn check_import(name: &str) -> Result<(), AdmissionError> {
    let refuse = |advice: &str| {
        Err(AdmissionError::Import {
            import: name.to_owned(),
            advice: advice.to_owned(),
        })
    };
    match ours(name)? {
        Some(interface) if IMPORTS.contains(&interface) => Ok(()),
        Some(_) => refuse("the plugin interface has no such import"),
        None if name.starts_with("wasi:") => refuse(
            "plugins have no clock, randomness, files or network; build for \
             wasm32-unknown-unknown with `formwork plugin build`",
        ),
        None => refuse("a plugin may import the interfaces of formwork:plugin only"),
    }
}

fn check_exports(exports: &[String]) -> Result<(), AdmissionError> {
    let mut missing = EXPORTS.to_vec();
    for name in exports {
        if let Some(interface) = ours(name)? {
            missing.retain(|&wanted| wanted != interface);
        }
    }
    match missing.first() {
        Some(interface) => Err(AdmissionError::Export(format!(
            "{PACKAGE}/{interface}@{VERSION}"
        ))),
        None => Ok(()),
    }
}
