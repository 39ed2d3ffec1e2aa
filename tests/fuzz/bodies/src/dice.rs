//! Choices that come out of bytes.

/// An endless row of choices: the given bytes, then what their digest leads to.
#[derive(Clone, Debug)]
pub struct Dice {
    bytes: std::vec::IntoIter<u8>,
    state: u64,
}

impl Dice {
    /// Choices made by `bytes`, then by `digest`.
    pub fn new(bytes: &[u8], digest: &[u8]) -> Self {
        let state = digest.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self {
            bytes: Vec::from(bytes).into_iter(),
            state,
        }
    }

    /// The text of an input and its choices; no text where the bytes are not UTF-8.
    pub fn split(data: &[u8]) -> Option<(&str, Self)> {
        let end = data.iter().position(|&byte| byte == 0xff);
        let (text, rest) = data.split_at(end.unwrap_or(data.len()));
        let choices = rest.get(1..).unwrap_or_default();
        Some((std::str::from_utf8(text).ok()?, Self::new(choices, data)))
    }

    fn byte(&mut self) -> u8 {
        self.bytes.next().unwrap_or_else(|| {
            // SplitMix64 (Steele et al. 2014).
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) as u8
        })
    }

    /// A number below `sides`, which is not 0.
    pub fn roll(&mut self, sides: usize) -> usize {
        let first = usize::from(self.byte());
        match sides {
            0..=256 => first % sides,
            _ => (first << 16 | usize::from(self.byte()) << 8 | usize::from(self.byte())) % sides,
        }
    }

    /// One time in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.roll(times) == times - 1
    }

    /// One of `items`, which are not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.roll(items.len())]
    }
}
