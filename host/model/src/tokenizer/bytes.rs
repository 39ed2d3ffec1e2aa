//! The bytes that stand behind a vocabulary's texts.

/// The character that byte-level BPE writes for a byte: printable Latin-1 characters stand for
/// themselves, the other 68 bytes for U+0100 and up (Radford et al. 2019).
pub(super) fn byte_to_char(byte: u8) -> char {
    const fn printable(byte: u8) -> bool {
        matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
    }
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + rank).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// All bytes by their character.
pub(super) fn char_table() -> std::collections::HashMap<char, u8> {
    (0..=255).map(|byte| (byte_to_char(byte), byte)).collect()
}

/// The byte that a SentencePiece byte token such as `<0x0A>` stands for.
pub(super) fn byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() != 2 {
        return None;
    }
    u8::from_str_radix(hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        assert_eq!(char_table().len(), 256);
        for (byte, want) in [
            (b'a', 'a'),
            (b' ', 'Ġ'),
            (b'\n', 'Ċ'),
            (0, 'Ā'),
            (0xad, 'Ń'),
        ] {
            assert_eq!(byte_to_char(byte), want);
        }
    }

    #[test]
    fn byte_tokens() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        for text in ["<0x>", "<0x123>", "0x0A", "<0xZZ>", "<s>"] {
            assert_eq!(byte_token(text), None, "{text}");
        }
    }
}
