//! Boxes: length, name, contents.

/// Bytes of the smallest box head: 32-bit length and name.
pub const HEAD_BYTES: u64 = 8;

/// For the log.
pub type Wrong = String;

pub fn read_be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub fn read_be64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// No effect out of bounds.
pub fn put_value(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = at.checked_add(value.len()).and_then(|end| bytes.get_mut(at..end)) {
        place.copy_from_slice(value);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxHead {
    pub name: [u8; 4],
    /// Bytes of the head, and of the contents.
    pub head: u64,
    pub data: u64,
}

/// Parses a head from `bytes` (16, if available) within `left` bytes. `None`: no more boxes.
pub fn parse_head(bytes: &[u8], left: u64, file: &str) -> Result<Option<BoxHead>, Wrong> {
    let truncated = || format!("\"{file}\" mp4 file truncated");
    let mut size = u64::from(read_be32(bytes, 0).ok_or_else(truncated)?);
    if size == 0 {
        return Ok(None);
    }
    let name: [u8; 4] = bytes.get(4..8).and_then(|name| name.try_into().ok()).ok_or_else(truncated)?;
    let mut head = HEAD_BYTES;
    if size == 1 {
        head = 16;
        size = read_be64(bytes, 8).ok_or_else(truncated)?;
    }
    if size < head {
        return Err(format!("\"{file}\" mp4 atom is too small:{size}"));
    }
    if size > left {
        return Err(format!("\"{file}\" mp4 atom too large:{}", size - head));
    }
    Ok(Some(BoxHead { name, head, data: size - head }))
}

/// Inner boxes: name, whole box, contents.
pub fn inner_boxes<'a>(bytes: &'a [u8], file: &str) -> Result<Vec<([u8; 4], &'a [u8])>, Wrong> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(head) = parse_head(rest, rest.len() as u64, file)? else { break };
        let (start, end) = (head.head as usize, (head.head + head.data) as usize);
        let (Some(data), Some(after)) = (rest.get(start..end), rest.get(end..)) else { break };
        found.push((head.name, data));
        rest = after;
    }
    Ok(found)
}

pub fn write_box(out: &mut Vec<u8>, name: &[u8; 4], fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name);
    fill(out);
    let size = (out.len() - start) as u32;
    put_value(out, start, &size.to_be_bytes());
}
