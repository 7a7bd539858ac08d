//! Divides memory into pieces, one for each request.

/// The least length of pieces if there is enough memory: disks serve larger requests no faster.
const PIECE_BYTES: usize = 256 * 1024;

/// Requests that keep a disk busy. With fewer than two, disk and network would not work at the same time.
const MIN_PIECES: usize = 2;
const MAX_PIECES: usize = 8;

/// Divides memory into pieces that begin and end at multiples of `block_bytes`; none if it is too short.
pub(super) fn pieces_of(memory: &mut [u8], block_bytes: usize) -> Vec<&mut [u8]> {
    let (skipped, count, piece_bytes) = division(memory, block_bytes);
    memory[skipped..]
        .chunks_exact_mut(piece_bytes.max(1))
        .take(count)
        .collect()
}

/// The length of the pieces in bytes; `None` if the memory is too short for any.
pub(super) fn piece_bytes(memory: &[u8], block_bytes: usize) -> Option<usize> {
    let (_, count, bytes) = division(memory, block_bytes);
    (count > 0).then_some(bytes)
}

/// The offset of the first piece, the number of pieces, and their length.
fn division(memory: &[u8], block_bytes: usize) -> (usize, usize, usize) {
    let skipped = memory.as_ptr().align_offset(block_bytes).min(memory.len());
    let aligned = memory.len() - skipped;
    let count = (aligned / PIECE_BYTES).clamp(MIN_PIECES, MAX_PIECES);
    match aligned / count / block_bytes {
        0 => (skipped, 0, 0),
        blocks => (skipped, count, blocks * block_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_blocks_within_the_memory() {
        const BLOCK: usize = 4096;
        let mut memory = vec![0; (16 << 20) + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        for (from, length, count, bytes) in [
            (0, 2 * BLOCK - 1, 0, 0),
            (0, 2 * BLOCK, 2, BLOCK),
            (1, 3 * BLOCK - 2, 0, 0),
            (1, 3 * BLOCK - 1, 2, BLOCK),
            (0, 5 * BLOCK, 2, 2 * BLOCK),
            (0, 1 << 20, 4, 256 << 10),
            (0, 16 << 20, 8, 2 << 20),
        ] {
            let memory = &mut memory[start + from..start + from + length];
            let told = piece_bytes(memory, BLOCK);
            assert_eq!(told, (count > 0).then_some(bytes), "{from} {length}");
            let pieces = pieces_of(memory, BLOCK);
            assert_eq!(pieces.len(), count, "{from} {length}");
            for piece in pieces {
                assert_eq!(piece.len(), bytes);
                assert_eq!(piece.as_ptr().align_offset(BLOCK), 0);
            }
        }
        assert!(pieces_of(&mut [], BLOCK).is_empty() && piece_bytes(&[], BLOCK).is_none());
    }
}
