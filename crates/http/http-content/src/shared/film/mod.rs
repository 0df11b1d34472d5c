//! MP4 and QuickTime files: boxes and tables.

pub mod boxes;
pub mod tables;

use boxes::{BoxHead, Wrong, put_value, read_be32, read_be64};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Maximum number of boxes per file.
pub const BOXES_MAX: usize = 10_000;

/// The file: in memory, or open.
pub struct Film {
    pub name: String,
    pub size: u64,
    pub content: Option<Bytes>,
    pub file: Option<Arc<File>>,
}

impl Film {
    pub fn read(&self, at: u64, length: u64) -> Result<Vec<u8>, Wrong> {
        let mut buf = vec![0; length as usize];
        let read = match (&self.content, &self.file) {
            (Some(content), _) => {
                let part = content.get(at as usize..(at.saturating_add(length)) as usize);
                part.map(|part| buf.copy_from_slice(part)).ok_or(io::ErrorKind::UnexpectedEof.into())
            }
            (None, Some(file)) => file.read_exact_at(&mut buf, at),
            (None, None) => Err(io::ErrorKind::NotFound.into()),
        };
        read.map_err(|e| format!("read() of \"{}\" failed {}", self.name, observe::os_error(&e)))?;
        Ok(buf)
    }

    /// Returns offset and length of the contents of the first box of this name.
    pub fn find(&self, wanted: &[u8; 4]) -> Result<Option<(u64, u64)>, Wrong> {
        let mut at = 0;
        for _ in 0..BOXES_MAX {
            if at >= self.size {
                break;
            }
            let left = self.size - at;
            let Some(BoxHead { name, head, data }) =
                boxes::parse_head(&self.read(at, left.min(16))?, left, &self.name)?
            else {
                break;
            };
            if name == *wanted {
                return Ok(Some((at + head, data)));
            }
            at += head + data;
        }
        Ok(None)
    }
}

/// Offset and width of a box's duration.
#[derive(Clone, Copy)]
pub struct Clock {
    pub scale: u32,
    pub duration: u64,
    at: usize,
    wide: bool,
}

impl Clock {
    /// `tkhd` has no scale.
    pub fn read(data: &[u8], name: &[u8; 4], file: &str) -> Result<Clock, Wrong> {
        let small = || format!("\"{file}\" mp4 {} atom too small", name.escape_ascii());
        let wide = *data.first().ok_or_else(small)? != 0;
        let (scale, at, least) = match (name, wide) {
            (b"tkhd", false) => (None, 20, 84),
            (b"tkhd", true) => (None, 28, 96),
            (b"mvhd", false) => (Some(12), 16, 100),
            (b"mvhd", true) => (Some(20), 24, 112),
            (_, false) => (Some(12), 16, 24),
            (_, true) => (Some(20), 24, 36),
        };
        if data.len() < least {
            return Err(small());
        }
        let duration = if wide { read_be64(data, at) } else { read_be32(data, at).map(u64::from) };
        let scale = scale.and_then(|at| read_be32(data, at)).unwrap_or(0);
        Ok(Clock { scale, duration: duration.ok_or_else(small)?, at, wide })
    }
    pub fn set(&self, data: &mut [u8], duration: u64) {
        match self.wide {
            true => put_value(data, self.at, &duration.to_be_bytes()),
            false => put_value(data, self.at, &(duration as u32).to_be_bytes()),
        }
    }
}

/// Seconds with decimals, of which three count.
pub fn parse_milliseconds(text: &[u8]) -> Option<u64> {
    let (mut value, mut places, mut point) = (0u64, 3u32, false);
    for &c in text {
        match c {
            b'.' if point => return None,
            b'.' => point = true,
            b'0'..=b'9' if places == 0 => {}
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(u64::from(c - b'0'))?;
                places -= u32::from(point);
            }
            _ => return None,
        }
    }
    let value = value.checked_mul(10u64.pow(places))?;
    (!text.is_empty() && value <= i64::MAX as u64).then_some(value)
}
