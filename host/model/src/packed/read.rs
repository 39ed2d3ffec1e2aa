//! Reading packed weights.

use super::place::{self, read_at};
use super::source::ModelFile;
use super::table::{Table, Tensor};
use super::{PackedError, Wanted};
use formwork_kernels::{BlockFormat, Cpu, QuantMatrix};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Rows of a matrix that are packed again, to see that packing still does what it did.
const COMPARED_ROWS: usize = 16;

/// A file whose table is right and belongs to the model's file.
pub(super) struct Reader {
    file: File,
    bytes: u64,
    tensors: HashMap<String, Tensor>,
    /// Formats of which a matrix was compared with a packing of now.
    compared: Vec<BlockFormat>,
}

impl Reader {
    pub(super) fn open(path: &Path, model: &ModelFile) -> Result<Self, PackedError> {
        let file = place::open_trusted(path, &model.owner)?;
        let bytes = file.metadata()?.len();
        let table = Table::read(&file, bytes)?;
        if table.source != model.source {
            return Err(PackedError::Stale);
        }
        place::will_read_all(&file);
        let tensors = table.tensors.into_iter();
        Ok(Self {
            file,
            bytes,
            tensors: tensors
                .map(|tensor| (tensor.name.clone(), tensor))
                .collect(),
            compared: Vec::new(),
        })
    }

    /// Size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads a matrix straight to where it stays, on all threads, and checks it.
    pub(super) fn matrix(
        &mut self,
        cpu: &Cpu,
        wanted: Wanted<'_>,
    ) -> Result<QuantMatrix, PackedError> {
        let name = wanted.name;
        let tensor = self.tensors.get(name);
        let tensor = tensor.ok_or_else(|| PackedError::damaged(format!("{name} is missing")))?;
        let form = tensor.form(wanted).ok_or_else(|| {
            PackedError::damaged(format!("{name} is not what the model's file says it is"))
        })?;
        let matrix = QuantMatrix::read(cpu, form, |piece, bytes| {
            let section = &tensor.sections[piece.section];
            read_at(&self.file, bytes, section.at + piece.start() as u64)?;
            if crc32fast::hash(bytes) == section.checksums[piece.index] {
                return Ok(());
            }
            Err(PackedError::damaged(format!(
                "a checksum of {name} differs"
            )))
        })?;
        if !self.compared.contains(&form.format()) {
            compare(cpu, &matrix, wanted)?;
            self.compared.push(form.format());
        }
        Ok(matrix)
    }
}

/// Compares a matrix with its first rows as they are packed now. A change of packing that forgot to change the
/// version shows here, before any number is used.
fn compare(cpu: &Cpu, matrix: &QuantMatrix, wanted: Wanted<'_>) -> Result<(), PackedError> {
    let name = wanted.name;
    let cannot = |reason: &dyn std::fmt::Display| PackedError::damaged(format!("{name}: {reason}"));
    let [rows, columns] = [wanted.shape[0].min(COMPARED_ROWS), wanted.shape[1]];
    let len = wanted.format.matrix_bytes(rows, columns);
    let len = len.map_err(|error| cannot(&error))?;
    let stored = wanted.stored.get(..len);
    let stored = stored.ok_or_else(|| cannot(&"the model's file is too short"))?;
    let now = QuantMatrix::pack(cpu, wanted.format, [rows, columns], stored);
    let now = now.map_err(|error| cannot(&error))?;
    let mut values = [vec![0f32; columns], vec![0f32; columns]];
    for row in 0..rows {
        let [kept, packed] = &mut values;
        matrix.row(row, kept);
        now.row(row, packed);
        let kept = kept.iter().map(|value| value.to_bits());
        if !kept.eq(packed.iter().map(|value| value.to_bits())) {
            return Err(PackedError::Differs(name.to_owned()));
        }
    }
    Ok(())
}
