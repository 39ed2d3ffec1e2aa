//! Small tables and sizes for people.

/// Columns as wide as their widest cell, two spaces between; the first row is the heading.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += &format!("{cell:width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A number of bytes as people say it.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// Removes what could drive a terminal (escape sequences) from text that others wrote.
pub(super) fn printable(text: &str) -> String {
    let safe = |c: char| {
        if c.is_control() && c != '\n' && c != '\t' {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table(&[
            row(["NAME", "SIZE"]),
            row(["acme/ticket", "1"]),
            row(["é", "22"]),
        ]);
        assert_eq!(text, "NAME         SIZE\nacme/ticket  1\né            22\n");
    }

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (98_362_432, "93.8 MiB"),
            (3 << 30, "3.00 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\n");
    }
}
