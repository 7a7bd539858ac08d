use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use proptest::prelude::*;

use super::*;
use crate::iwarp::SoftEndpoint;

const MIB: usize = 1 << 20;

fn length(length: usize) -> NonZeroUsize {
    NonZeroUsize::new(length).unwrap()
}

/// A file of this length whose last change is long ago.
fn settled_file(bytes: usize) -> (File, FileState) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; bytes]).unwrap();
    let mut state = FileState::of(file.as_fd()).unwrap();
    state.changed = (0, 0);
    (file, state)
}

#[test]
fn sections_are_used_again_while_the_file_is_the_same() {
    let mut endpoint = SoftEndpoint::new(0, 8).unwrap();
    let mut sections = Sections::for_ring(16 << 20).unwrap();
    let (file, state) = settled_file(3 * MIB);
    let mut pin = |sections: &mut Sections, state, offset| {
        let file = (file.as_fd(), state);
        let pinned = sections.pin(&mut endpoint, file, offset, length(MIB), 0);
        pinned.unwrap().unwrap()
    };
    sections.begin();
    let page = rustix::param::page_size();
    let first = pin(&mut sections, &state, 5 * page as u64 + 7);
    assert_eq!((first.source.offset, first.length), (7, MIB - 7));
    sections.begin();
    let again = pin(&mut sections, &state, 6 * page as u64);
    assert_eq!(again.source.region, first.source.region);
    assert_eq!(again.source.offset, page);
    let touched = FileState {
        modified: (1, 0),
        ..state
    };
    let other = pin(&mut sections, &touched, 6 * page as u64);
    assert_ne!(other.source.region, first.source.region);
    // A file that was changed a moment ago may change again without a new time of change.
    let fresh = FileState::of(file.as_fd()).unwrap();
    sections.begin();
    let before = pin(&mut sections, &fresh, 0);
    sections.begin();
    let after = pin(&mut sections, &fresh, 0);
    assert_ne!(before.source.region, after.source.region);
}

#[test]
fn a_file_that_ends_before_is_not_pinned() {
    let mut endpoint = SoftEndpoint::new(0, 8).unwrap();
    let mut sections = Sections::for_ring(16 << 20).unwrap();
    let (file, state) = settled_file(MIB);
    file.set_len(8192).unwrap();
    let pinned = sections.pin(&mut endpoint, (file.as_fd(), &state), 0, length(MIB), 0);
    assert!(pinned.is_err());
    assert_eq!(sections.pinned_bytes(), 0);
}

#[test]
fn a_file_system_without_pinning_is_tried_once() {
    let mut endpoint = SoftEndpoint::new(0, 8).unwrap();
    let mut sections = Sections::for_ring(16 << 20).unwrap();
    // procfs cannot map its files.
    let virtual_file = File::open("/proc/self/status").unwrap();
    let state = FileState::of(virtual_file.as_fd()).unwrap();
    let mut pin = |file: (&File, &FileState)| {
        let file = (file.0.as_fd(), file.1);
        sections.pin(&mut endpoint, file, 0, length(MIB), 0)
    };
    let first = pin((&virtual_file, &state)).unwrap_err();
    assert!(first.raw_os_error().is_some(), "of the kernel: {first}");
    let again = pin((&virtual_file, &state)).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::Unsupported);
    // Other file systems are not concerned.
    let (file, state) = settled_file(MIB);
    assert!(pin((&file, &state)).unwrap().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any sequence of calls, pinned memory stays within the bound, and needed sections stay
    /// pinned.
    #[test]
    fn the_bound_holds(
        ring_bytes in (256_u64 << 10)..(2 << 20),
        asked in proptest::collection::vec((0..3 * MIB, 1..MIB, any::<bool>()), 1..60),
    ) {
        let Some(mut sections) = Sections::for_ring(ring_bytes) else {
            // The pages of this machine are too large for the test.
            return Ok(());
        };
        let mut endpoint = SoftEndpoint::new(0, 8).unwrap();
        let (file, state) = settled_file(4 * MIB);
        let (mut filled, mut free_to) = (0, 0);
        let mut needed: Vec<usize> = Vec::new();
        for (offset, bytes, is_credited) in asked {
            let file = (file.as_fd(), &state);
            sections.begin();
            let pinned = sections.pin(&mut endpoint, file, offset as u64, length(bytes), free_to);
            if let Some(pinned) = pinned.unwrap() {
                prop_assert!((1..=bytes).contains(&pinned.length));
                filled += pinned.length as u64;
                sections.need(pinned.source.region, filled);
                needed.push(pinned.source.region);
            } else {
                prop_assert!(!needed.is_empty(), "no section is needed, and none fits");
            }
            prop_assert!(sections.pinned_bytes() as u64 <= ring_bytes / 2);
            let is_there = |region| sections.sections.iter().any(|section| section.region == region);
            prop_assert!(needed.iter().all(|&region| is_there(region)));
            if is_credited {
                free_to = filled;
                needed.clear();
            }
        }
    }
}
