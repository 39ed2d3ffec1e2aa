//! Tensors of floating-point numbers, as model files store them.

use crate::ModelError;
use formwork_kernels::{DenseMatrix, DenseValues, Matrix};
use half::{bf16, f16};

/// Little-endian numbers of a floating-point type, in single precision.
pub(crate) fn to_f32(width: FloatType, bytes: &[u8]) -> Vec<f32> {
    match width {
        FloatType::F32 => {
            let (numbers, _) = bytes.as_chunks::<4>();
            numbers
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes))
                .collect()
        }
        FloatType::F16 => {
            let (numbers, _) = bytes.as_chunks::<2>();
            numbers
                .iter()
                .map(|&bytes| f16::from_le_bytes(bytes).to_f32())
                .collect()
        }
        FloatType::Bf16 => {
            let (numbers, _) = bytes.as_chunks::<2>();
            numbers
                .iter()
                .map(|&bytes| bf16::from_le_bytes(bytes).to_f32())
                .collect()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatType {
    F32,
    F16,
    Bf16,
}

/// A dense matrix: bf16 stays as it is, anything else becomes single precision.
pub(crate) fn dense_matrix(
    name: &str,
    shape: [usize; 2],
    kind: FloatType,
    bytes: &[u8],
) -> Result<Matrix, ModelError> {
    let packed = if kind == FloatType::Bf16 {
        let (numbers, _) = bytes.as_chunks::<2>();
        let values: Vec<bf16> = numbers
            .iter()
            .map(|&bytes| bf16::from_le_bytes(bytes))
            .collect();
        DenseMatrix::pack(shape, &DenseValues::Bf16(&values))
    } else {
        DenseMatrix::pack(shape, &DenseValues::F32(&to_f32(kind, bytes)))
    };
    packed
        .map(Matrix::Dense)
        .map_err(|error| ModelError::tensor(name, error))
}
