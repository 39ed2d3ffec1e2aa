//! The paged cache of keys and values.

mod convert;

pub(crate) use convert::{widen, widen_bytes};

use crate::Isa;
use crate::shared::Shared;
use convert::{codes_of, narrow, scale_of};
use half::f16;

/// Positions that attention handles at a time; block sizes are multiples of it.
pub(crate) const RUN: usize = 16;

/// What keys and values are stored as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvDtype {
    /// Half precision.
    #[default]
    F16,
    /// Signed bytes with a half-precision scale per position and head, for keys and for values.
    Int8,
}

impl KvDtype {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::F16, Self::Int8];

    /// The name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Int8 => "int8",
        }
    }
}

impl std::fmt::Display for KvDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for KvDtype {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|dtype| dtype.name() == name);
        known.ok_or_else(|| format!("{name:?} is not known; known are f16 and int8"))
    }
}

/// Shape of a [`KvCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Blocks.
    pub blocks: usize,
    /// Positions per block; a multiple of 16.
    pub block_size: usize,
    /// Heads of keys and of values.
    pub kv_heads: usize,
    /// Elements per head; a multiple of 16.
    pub head_dim: usize,
    /// What they are stored as.
    pub dtype: KvDtype,
}

impl KvShape {
    /// Bytes of one position's keys and values.
    #[must_use]
    pub fn position_bytes(self) -> usize {
        let head = match self.dtype {
            KvDtype::F16 => self.head_dim * 2,
            KvDtype::Int8 => self.head_dim + 2,
        };
        2 * self.kv_heads * head
    }

    /// Index of a run of 16 positions among all of them; the same for keys and values.
    fn run(self, block: usize, head: usize, run: usize) -> usize {
        (block * self.kv_heads + head) * (self.block_size / RUN) + run
    }
}

/// Keys and values of one layer. A slot is one position: slot `block * block_size + offset`.
///
/// Keys lie per block, head and run of 16 positions as `head_dim` rows of 16, so that scores of 16
/// positions are computed without sums across lanes. Values lie per block, head and position.
pub struct KvCache {
    shape: KvShape,
    keys: Store,
    values: Store,
}

/// Plain integers rather than `f16`, so that allocations are zeroed by the system, page by page, on use.
enum Store {
    Half(Vec<u16>),
    Byte {
        codes: Vec<i8>,
        /// Per run: the scales of its 16 positions.
        scales: Vec<u16>,
    },
}

/// Keys or values of one head at 16 positions. Half-precision numbers are given as their bits.
#[derive(Clone, Copy)]
pub(crate) enum Run<'a> {
    Half(&'a [u16]),
    /// Codes, and the scale of each position.
    Byte(&'a [i8], &'a [u16; RUN]),
}

impl Store {
    fn new(dtype: KvDtype, len: usize, runs: usize) -> Self {
        match dtype {
            KvDtype::F16 => Self::Half(vec![0; len]),
            KvDtype::Int8 => Self::Byte {
                codes: vec![0; len],
                scales: vec![0; runs * RUN],
            },
        }
    }

    fn run(&self, index: usize, len: usize) -> Run<'_> {
        match self {
            Self::Half(halves) => Run::Half(&halves[index * len..][..len]),
            Self::Byte { codes, scales } => {
                let (scales, _) = scales.as_chunks::<RUN>();
                Run::Byte(&codes[index * len..][..len], &scales[index])
            }
        }
    }

    /// Copies `count` runs.
    fn copy(&mut self, from: usize, to: usize, count: usize, head_dim: usize) {
        let range = |len: usize| from * len..(from + count) * len;
        let (len, scales_len) = (RUN * head_dim, RUN);
        match self {
            Self::Half(halves) => halves.copy_within(range(len), to * len),
            Self::Byte { codes, scales } => {
                codes.copy_within(range(len), to * len);
                scales.copy_within(range(scales_len), to * scales_len);
            }
        }
    }

    fn lend(&mut self) -> Lent<'_> {
        match self {
            Self::Half(halves) => Lent::Half(Shared::new(halves)),
            Self::Byte { codes, scales } => Lent::Byte {
                codes: Shared::new(codes),
                scales: Shared::new(scales),
            },
        }
    }
}

impl Run<'_> {
    /// The element at `index`, whose position is `position`.
    fn number(self, index: usize, position: usize) -> f32 {
        match self {
            Self::Half(halves) => f16::from_bits(halves[index]).to_f32(),
            Self::Byte(codes, scales) => {
                f32::from(codes[index]) * f16::from_bits(scales[position]).to_f32()
            }
        }
    }
}

impl KvCache {
    /// An empty cache.
    ///
    /// # Panics
    /// When block size or head size is no multiple of 16.
    #[must_use]
    pub fn new(shape: KvShape) -> Self {
        assert!(shape.block_size > 0 && shape.block_size.is_multiple_of(RUN));
        assert!(shape.head_dim > 0 && shape.head_dim.is_multiple_of(RUN));
        let runs = shape.blocks * shape.kv_heads * (shape.block_size / RUN);
        let store = || Store::new(shape.dtype, runs * RUN * shape.head_dim, runs);
        Self {
            shape,
            keys: store(),
            values: store(),
        }
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Stores one position. `key` and `value` hold `kv_heads * head_dim` numbers.
    ///
    /// # Panics
    /// When there is no such slot or a row has another length.
    pub fn write(&mut self, slot: usize, key: &[f32], value: &[f32]) {
        let isa = Isa::best();
        // SAFETY: nobody else writes meanwhile: `self` is borrowed mutably.
        unsafe { self.writer().write(isa, slot, key, value) }
    }

    /// Makes block `to` a copy of block `from`, to the bit.
    ///
    /// # Panics
    /// When there is no such block.
    pub fn copy_block(&mut self, from: usize, to: usize) {
        let runs = self.shape.run(1, 0, 0);
        for store in [&mut self.keys, &mut self.values] {
            store.copy(from * runs, to * runs, runs, self.shape.head_dim);
        }
    }

    /// The key and the value of a slot as they are stored: `kv_heads * head_dim` numbers each.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn read(&self, slot: usize) -> [Vec<f32>; 2] {
        let KvShape {
            block_size,
            head_dim,
            ..
        } = self.shape;
        let (block, offset) = (slot / block_size, slot % block_size);
        let (run, position) = (offset / RUN, offset % RUN);
        let heads = 0..self.shape.kv_heads;
        let elements = heads.flat_map(|head| (0..head_dim).map(move |element| (head, element)));
        let key = |(head, element)| {
            let keys = self.keys([block, head, run]);
            keys.number(element * RUN + position, position)
        };
        let value = |(head, element)| {
            let values = self.values([block, head, run]);
            values.number(position * head_dim + element, position)
        };
        [
            elements.clone().map(key).collect(),
            elements.map(value).collect(),
        ]
    }

    /// Lends the cache to threads that write different slots.
    pub(crate) fn writer(&mut self) -> KvWriter<'_> {
        KvWriter {
            shape: self.shape,
            keys: self.keys.lend(),
            values: self.values.lend(),
        }
    }

    /// The keys of a run of 16 positions, given as block, head and run within the block: `head_dim` rows
    /// of 16.
    pub(crate) fn keys(&self, [block, head, run]: [usize; 3]) -> Run<'_> {
        let index = self.shape.run(block, head, run);
        self.keys.run(index, self.shape.head_dim * RUN)
    }

    /// The values of a run of 16 positions: 16 rows of `head_dim`.
    pub(crate) fn values(&self, [block, head, run]: [usize; 3]) -> Run<'_> {
        let index = self.shape.run(block, head, run);
        self.values.run(index, self.shape.head_dim * RUN)
    }
}

/// Writes positions of a [`KvCache`] from several threads.
pub(crate) struct KvWriter<'a> {
    shape: KvShape,
    keys: Lent<'a>,
    values: Lent<'a>,
}

enum Lent<'a> {
    Half(Shared<'a, u16>),
    Byte {
        codes: Shared<'a, i8>,
        scales: Shared<'a, u16>,
    },
}

impl KvWriter<'_> {
    /// Stores one position; see [`KvCache::write`].
    ///
    /// # Safety
    /// No two calls at the same time may write the same slot.
    pub(crate) unsafe fn write(&self, isa: Isa, slot: usize, key: &[f32], value: &[f32]) {
        let KvShape {
            block_size,
            kv_heads,
            head_dim,
            ..
        } = self.shape;
        assert!(key.len() == kv_heads * head_dim && value.len() == key.len());
        let (block, offset) = (slot / block_size, slot % block_size);
        for (head, (key, value)) in key
            .chunks_exact(head_dim)
            .zip(value.chunks_exact(head_dim))
            .enumerate()
        {
            let run = self.shape.run(block, head, offset / RUN);
            // SAFETY: as the caller vouches, nobody else writes the slot.
            unsafe {
                self.keys.write_key(isa, [run, offset % RUN], key);
                self.values.write_value(isa, [run, offset % RUN], value);
            }
        }
    }
}

impl Lent<'_> {
    /// Writes a head's key to a position of a run. Its elements lie sixteen apart, one in each row of the
    /// run; neighbouring positions lie between them and belong to others.
    ///
    /// # Safety
    /// Nobody else may write the position meanwhile.
    unsafe fn write_key(&self, isa: Isa, [run, position]: [usize; 2], key: &[f32]) {
        let first = run * key.len() * RUN + position;
        let chunks = key.chunks_exact(RUN).zip((first..).step_by(RUN * RUN));
        match self {
            Self::Half(halves) => {
                let mut bits = [0u16; RUN];
                for (key, first) in chunks {
                    narrow(isa, key, &mut bits);
                    for (row, &bits) in bits.iter().enumerate() {
                        // SAFETY: the element is this position's, which nobody else writes.
                        unsafe { halves.set(first + row * RUN, bits) };
                    }
                }
            }
            Self::Byte { codes, scales } => {
                let scale = scale_of(isa, key);
                // SAFETY: as above.
                unsafe { scales.set(run * RUN + position, scale.to_bits()) };
                let mut bytes = [0i8; RUN];
                for (key, first) in chunks {
                    codes_of(isa, key, scale, &mut bytes);
                    for (row, &code) in bytes.iter().enumerate() {
                        // SAFETY: as above.
                        unsafe { codes.set(first + row * RUN, code) };
                    }
                }
            }
        }
    }

    /// Writes a head's value to a position of a run.
    ///
    /// # Safety
    /// Nobody else may write the position meanwhile.
    unsafe fn write_value(&self, isa: Isa, [run, position]: [usize; 2], value: &[f32]) {
        let first = (run * RUN + position) * value.len();
        let place = first..first + value.len();
        match self {
            // SAFETY: the part is this position's, which nobody else writes.
            Self::Half(halves) => narrow(isa, value, unsafe { halves.part(place) }),
            Self::Byte { codes, scales } => {
                let scale = scale_of(isa, value);
                // SAFETY: as above.
                unsafe {
                    scales.set(run * RUN + position, scale.to_bits());
                    codes_of(isa, value, scale, codes.part(place));
                }
            }
        }
    }
}
