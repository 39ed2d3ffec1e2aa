//! Pages of files that count as this process's memory.

/// Lets go of the pages of mapped files, the program's own code and constants among them: what is used again comes
/// back, page by page, from the system's cache. After a start much of it was used for the last time. Takes
/// milliseconds; does nothing where the system does not tell what is mapped.
pub fn release_file_pages() {
    #[cfg(target_os = "linux")]
    if let Ok(report) = std::fs::read_to_string("/proc/self/smaps") {
        for (start, end) in whole_mappings(&report) {
            // SAFETY: the range is a mapping of a file of which this process has no page of its own and to which it
            // cannot write, so that whatever is read there next are the file's bytes, as before. Nobody makes
            // such a mapping writable, changes it and takes the right away again while this runs: the dynamic
            // linker and whoever loads compiled plugins have done that before they hand the code out.
            unsafe {
                libc::madvise(
                    std::ptr::without_provenance_mut(start),
                    end - start,
                    libc::MADV_DONTNEED,
                );
            }
        }
    }
}

/// Of a report in the form of `/proc/PID/smaps`: the mappings of files that hold nothing but the file's bytes and
/// cannot be written to.
#[cfg(target_os = "linux")]
fn whole_mappings(report: &str) -> Vec<(usize, usize)> {
    let mut whole = Vec::new();
    let mut mapping = None;
    for line in report.lines() {
        if let Some(count) = line.strip_prefix("Anonymous:") {
            let own = count.trim() != "0 kB";
            whole.extend(mapping.take().filter(|_| !own));
        } else if line.starts_with(|first: char| !first.is_ascii_uppercase()) {
            mapping = file_mapping(line);
        }
    }
    whole
}

/// The range that a mapping's first line names, where it maps a file and cannot be written to.
#[cfg(target_os = "linux")]
fn file_mapping(line: &str) -> Option<(usize, usize)> {
    // Range, rights, offset, device, inode, path.
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let path = words.nth(3)?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    (path.starts_with('/') && !rights.contains('w')).then_some((number(start)?, number(end)?))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{release_file_pages, whole_mappings};
    use memmap2::MmapOptions;
    use std::io::Write;

    #[test]
    fn only_files_as_they_are_count() {
        let report = "\
7f0000000000-7f0000002000 r-xp 00001000 08:01 42 /usr/bin/a program\nRss: 8 kB\nAnonymous:             0 kB
7f0000002000-7f0000003000 r--p 00003000 08:01 42 /usr/bin/a program\nRss: 4 kB\nAnonymous:             4 kB
7f0000003000-7f0000004000 rw-p 00004000 08:01 42 /usr/bin/a program\nRss: 4 kB\nAnonymous:             0 kB
7f0000004000-7f0000005000 r--p 00000000 00:00 0 \nAnonymous:             0 kB
7f0000005000-7f0000006000 r-xp 00000000 00:00 0 [vdso]\nAnonymous:             0 kB
nonsense\nAnonymous:             0 kB
7f0000006000-7f0000007000 r--s 00000000 08:01 43 /data\nAnonymous:             0 kB";
        let whole = [
            (0x7f00_0000_0000, 0x7f00_0000_2000),
            (0x7f00_0000_6000, 0x7f00_0000_7000),
        ];
        assert_eq!(whole_mappings(report), whole);
        assert_eq!(whole_mappings(""), []);
    }

    #[test]
    fn what_was_changed_in_memory_stays() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 20_000]).unwrap();
        // SAFETY: nobody else has the file.
        let (plain, mut changed) = unsafe {
            let plain = MmapOptions::new().map(&file).unwrap();
            (plain, MmapOptions::new().map_copy(&file).unwrap())
        };
        changed[5_000] = 2;
        let changed = changed.make_read_only().unwrap();
        assert!(plain.iter().all(|&byte| byte == 1));
        release_file_pages();
        assert!(plain.iter().all(|&byte| byte == 1));
        assert_eq!(changed.iter().filter(|&&byte| byte == 2).count(), 1);
        assert_eq!(changed[5_000], 2);
    }
}
