//! mimalloc as the program's allocator.
//! `mimalloc::MiMalloc` requests an alignment with every allocation, which costs a search. Blocks of at least 16 bytes
//! are aligned to 16 (`MI_MAX_ALIGN_SIZE`) anyway, enough for nearly all.

use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};

/// Guaranteed alignment of blocks of at least this size.
const ALIGN: usize = 16;

/// The allocator, for `#[global_allocator]`.
#[derive(Debug)]
pub struct Allocator;

/// Tells whether the default alignment suffices for a block.
const fn is_usual(size: usize, align: usize) -> bool {
    align <= ALIGN && align <= size
}

// SAFETY: mimalloc's functions are an allocator; blocks are aligned as asked, by `is_usual` or by the aligned functions, and
// `mi_free` takes blocks of both kinds.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two may be asked for.
        let block = unsafe {
            match is_usual(layout.size(), layout.align()) {
                true => mi::mi_malloc(layout.size()),
                false => mi::mi_malloc_aligned(layout.size(), layout.align()),
            }
        };
        block.cast()
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe {
            match is_usual(layout.size(), layout.align()) {
                true => mi::mi_zalloc(layout.size()),
                false => mi::mi_zalloc_aligned(layout.size(), layout.align()),
            }
        };
        block.cast()
    }
    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller passes a block of this allocator.
        unsafe { mi::mi_free(block.cast()) }
    }
    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller passes a block of this allocator.
        let block = unsafe {
            match is_usual(size, layout.align()) {
                true => mi::mi_realloc(block.cast(), size),
                false => mi::mi_realloc_aligned(block.cast(), size, layout.align()),
            }
        };
        block.cast()
    }
}

unsafe extern "C" {
    /// mimalloc's function; the crate declares it only beside many others, with a further dependency.
    safe fn mi_collect(force: bool);
}

/// Returns unused pages of this thread to the system. Takes up to milliseconds: for the end of a load.
pub fn release() {
    mi_collect(true);
}

/// Returns unused pages of libraries in C to the system (zstd, through glibc's `malloc`, whose threads each keep the largest state
/// that they had). Takes part of a millisecond: for the end of a long computation.
pub fn release_of_libraries() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a number and is thread-safe.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_keep_their_bytes() {
        for align in [1usize, 2, 8, 16, 32, 64, 4096] {
            for size in [0usize, 1, 3, 8, 15, 16, 17, 24, 48, 100, 1000, 1024, 1025, 8000, 70_000, 1 << 20] {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                // SAFETY: blocks are used within their sizes and freed once; a size of 0 is mimalloc's to bear.
                unsafe {
                    let block = Allocator.alloc(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{size} aligned to {align}");
                    block.write_bytes(0xA5, size);
                    let grown = Allocator.realloc(block, layout, size * 2 + 1);
                    assert!(grown.addr().is_multiple_of(align), "{size} aligned to {align}, grown");
                    assert!((0..size).all(|at| grown.add(at).read() == 0xA5));
                    Allocator.dealloc(grown, Layout::from_size_align(size * 2 + 1, align).expect("a layout"));
                    let zeroed = Allocator.alloc_zeroed(layout);
                    assert!(zeroed.addr().is_multiple_of(align) && (0..size).all(|at| zeroed.add(at).read() == 0));
                    Allocator.dealloc(zeroed, layout);
                }
            }
        }
    }
}
