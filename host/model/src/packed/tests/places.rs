//! Whose files these are, and who is at them at the same time.

use super::House;
use crate::packed::PackedError;
use crate::packed::place::Owner;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn only_own_files_are_written() {
    let house = House::new();
    let other = house.folder.path().join("other");
    fs::write(&other, "precious").unwrap();
    std::os::unix::fs::symlink(&other, house.unfinished()).unwrap();
    assert!(matches!(house.write(), Err(PackedError::Io(_))));
    fs::remove_file(house.unfinished()).unwrap();
    fs::hard_link(&other, house.unfinished()).unwrap();
    assert!(matches!(house.write(), Err(PackedError::Untrusted(_))));
    assert_eq!(fs::read(&other).unwrap(), b"precious");
    fs::remove_file(house.unfinished()).unwrap();
    fs::create_dir(house.unfinished()).unwrap();
    assert!(matches!(house.write(), Err(PackedError::Io(_))));
    fs::remove_dir(house.unfinished()).unwrap();
    // What is in the file's own place is replaced, whatever it is, and read only when it is a file.
    std::os::unix::fs::symlink(&other, house.packed()).unwrap();
    house.write().unwrap();
    house.read().unwrap();
    assert_eq!(fs::read(&other).unwrap(), b"precious");
    fs::remove_file(house.packed()).unwrap();
    fs::create_dir(house.packed()).unwrap();
    assert!(matches!(house.read(), Err(PackedError::Untrusted(_))));
}

#[test]
fn files_of_strangers_are_not_trusted() {
    let house = House::new();
    house.write().unwrap();
    let metadata = fs::metadata(house.packed()).unwrap();
    assert!(Owner::of(&metadata).trusts(&metadata));
    // Only the superuser can give files away.
    if std::os::unix::fs::chown(house.packed(), Some(12_345), None).is_ok() {
        assert!(matches!(house.read(), Err(PackedError::Untrusted(_))));
    }
}

#[test]
fn the_weights_can_be_read_by_those_who_can_read_the_model() {
    for (model, packed) in [
        (0o600, 0o600),
        (0o640, 0o640),
        (0o444, 0o644),
        (0o777, 0o644),
    ] {
        let house = House::new();
        fs::set_permissions(house.model(), fs::Permissions::from_mode(model)).unwrap();
        house.write().unwrap();
        let mode = fs::metadata(house.packed()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, packed, "{model:o}");
        house.read().unwrap();
    }
}

#[test]
fn writers_and_readers_at_once_never_see_half_a_file() {
    let house = House::new();
    let (read, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let until = Instant::now() + Duration::from_secs(60);
    // Until there was enough of both, however the threads take turns.
    let goes_on = || {
        let done = [&read, &written].map(|count| count.load(Ordering::Relaxed));
        done.iter().any(|&count| count < 30) && Instant::now() < until
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while goes_on() {
                    match house.write() {
                        Ok(_) => drop(written.fetch_add(1, Ordering::Relaxed)),
                        Err(PackedError::Busy) => continue,
                        Err(error) => panic!("{error}"),
                    }
                    // So that there is something to write again, but not at once.
                    std::thread::sleep(Duration::from_millis(1));
                    let _ = fs::remove_file(house.packed());
                }
            });
        }
        while goes_on() {
            match house.read() {
                Ok(()) => drop(read.fetch_add(1, Ordering::Relaxed)),
                Err(PackedError::Io(error)) => assert_eq!(error.kind(), ErrorKind::NotFound),
                Err(error) => panic!("{error}"),
            }
        }
    });
    let done = [read.into_inner(), written.into_inner()];
    assert!(done.iter().all(|&count| count >= 30), "{done:?}");
    assert!(!house.unfinished().exists());
    house.write().unwrap();
    house.read().unwrap();
}
