//! Multipart bodies (RFC 7578) with the flags of ModSecurity, which tell how a body deviates from the standard.

mod disposition;
mod flags;

use disposition::parse_disposition;
pub(crate) use flags::MultipartFlags;
use hashbrown::HashMap;

/// Bytes of a header line of a part, as in ModSecurity.
const HEADER_LINE_MAX: usize = 4096;
/// Bytes of the `Content-Type` header.
const CONTENT_TYPE_MAX: usize = 1024;
/// Parts of a body.
const PARTS_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    Field,
    File { filename: Vec<u8> },
}

/// A complete part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub name: Vec<u8>,
    pub kind: PartKind,
    pub value: Vec<u8>,
    /// Start of the value in the body.
    pub offset: usize,
}

/// The result of reading a body; parts before an error are kept.
#[derive(Debug, Default)]
pub(crate) struct Multipart {
    pub flags: MultipartFlags,
    pub parts: Vec<Part>,
    /// (name of the part, header line).
    pub header_lines: Vec<(Vec<u8>, Vec<u8>)>,
    pub names: Vec<Vec<u8>>,
    pub filenames: Vec<Vec<u8>>,
    pub error: Option<String>,
    pub bytes_without_files: usize,
}

/// A part that is being read.
#[derive(Default)]
struct OpenPart {
    headers: HashMap<Vec<u8>, Vec<u8>>,
    last_name: Vec<u8>,
    last_line: Vec<u8>,
    lines: Vec<Vec<u8>>,
    name: Vec<u8>,
    filename: Vec<u8>,
    in_data: bool,
    has_data: bool,
    value: Vec<u8>,
    /// The end of the last line, which belongs to the value only if another line follows.
    held_end: &'static [u8],
    offset: usize,
}

struct Reader {
    out: Multipart,
    boundary: Vec<u8>,
    part: Option<OpenPart>,
    boundaries: usize,
    complete: bool,
    last_line_was_lf: bool,
}

fn is_space(byte: u8) -> bool {
    crate::transform::is_space(byte)
}

fn trim_start(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    text.get(blanks..).unwrap_or_default()
}

/// The line without its end.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl Multipart {
    /// Reads a body by the boundary of the `Content-Type` header.
    pub fn read(content_type: &[u8], body: &[u8]) -> Multipart {
        let mut reader = Reader {
            out: Multipart::default(),
            boundary: Vec::new(),
            part: None,
            boundaries: 0,
            complete: false,
            last_line_was_lf: false,
        };
        let result = reader.parse_boundary(content_type).and_then(|()| reader.read_lines(body));
        if let Err(reason) = result {
            reader.finish_part();
            reader.out.flags.error = true;
            reader.out.error.get_or_insert(format!("Multipart: {reason}"));
        }
        reader.out
    }
}

/// How often the word "boundary" is followed by `=` somewhere.
fn count_boundaries(text: &[u8]) -> usize {
    let lower = text.to_ascii_lowercase();
    let ends = memchr::memmem::find_iter(&lower, b"boundary").map(|at| at + 8);
    ends.filter(|end| lower.get(*end..).is_some_and(|rest| rest.contains(&b'='))).count()
}

/// Returns whether all characters are those of a boundary (RFC 2046, section 5.1.1).
fn is_boundary(text: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b" '()+_,-./:=?".contains(byte);
    text.iter().all(allowed) && text.last() != Some(&b' ')
}

impl Reader {
    fn parse_boundary(&mut self, header: &[u8]) -> Result<(), String> {
        let invalid = |words: &str| Err(format!("Invalid boundary in C-T ({words})."));
        if header.is_empty() {
            return Err("Content-Type header not available.".into());
        }
        if header.len() > CONTENT_TYPE_MAX {
            return invalid("length");
        }
        const KIND: &[u8] = b"multipart/form-data";
        if !header.get(..KIND.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(KIND)) {
            return Err("Invalid MIME type.".into());
        }
        if count_boundaries(header) > 1 {
            return Err("Multiple boundary parameters in C-T.".into());
        }
        let Some(at) = memchr::memmem::find(header, b"boundary") else {
            return match count_boundaries(header) {
                0 => Err("Boundary not found in C-T.".into()),
                _ => invalid("case sensitivity"),
            };
        };
        let mut seen_semicolon = false;
        for byte in header.get(KIND.len()..at).unwrap_or_default().iter().filter(|byte| !is_space(**byte)) {
            if *byte != b';' || seen_semicolon {
                return invalid("malformed");
            }
            seen_semicolon = true;
        }
        self.out.flags.missing_semicolon = !seen_semicolon;
        let behind = header.get(at + 8..).unwrap_or_default();
        let Some(equals) = memchr::memchr(b'=', behind) else { return invalid("malformed") };
        let (between, value) = behind.split_at(equals);
        if !between.iter().all(|byte| is_space(*byte)) {
            return invalid("parameter name");
        }
        let value = value.get(1..).unwrap_or_default();
        self.out.flags.boundary_whitespace = !between.is_empty() || value.first().is_some_and(|byte| is_space(*byte));
        let mut boundary = match value {
            [b'"', inside @ .., b'"'] => {
                self.out.flags.boundary_quoted = true;
                inside
            }
            [b'"', ..] | [_, .., b'"'] => return invalid("quote"),
            _ => value,
        };
        if count_boundaries(boundary) != 0 {
            return invalid("content");
        }
        // Parameters behind the boundary ("charset") are tolerated.
        if !is_boundary(boundary) {
            boundary = boundary.split(|byte| *byte == b';').next().unwrap_or_default();
        }
        if !is_boundary(boundary) {
            return invalid("characters");
        }
        if boundary.is_empty() {
            return invalid("empty");
        }
        self.boundary = boundary.to_vec();
        Ok(())
    }

    fn read_lines(&mut self, body: &[u8]) -> Result<(), String> {
        let mut offset = 0;
        let mut rest = body;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let (line, behind) = rest.split_at(end);
            rest = behind;
            // A last line without its end can still be the final boundary.
            if line.last() != Some(&b'\n') && self.is_bare_final(line) {
                break;
            }
            self.line(line, offset)?;
            offset += line.len();
            self.last_line_was_lf = line.ends_with(b"\n") && !line.ends_with(b"\r\n");
        }
        if body.is_empty() || self.complete {
            return Ok(());
        }
        match self.boundaries {
            0 => Err("No boundaries found in payload.".into()),
            _ => Err("Final boundary missing.".into()),
        }
    }

    /// Ends the body at `--boundary--` without a line end.
    fn is_bare_final(&mut self, line: &[u8]) -> bool {
        let inside = line.strip_prefix(b"--").and_then(|rest| rest.strip_suffix(b"--"));
        if self.boundaries == 0 || inside != Some(&self.boundary) {
            return false;
        }
        self.out.flags.lf_line |= self.last_line_was_lf;
        self.out.flags.invalid_part |= !self.part.as_ref().is_some_and(|part| part.has_data);
        self.finish_part();
        self.complete = true;
        true
    }

    fn line(&mut self, line: &[u8], offset: usize) -> Result<(), String> {
        let flags = &mut self.out.flags;
        if let Some(dashed) = line.strip_prefix(b"--").filter(|_| line.len() > 3) {
            if let Some(behind) = dashed.strip_prefix(self.boundary.as_slice()) {
                flags.lf_line |= self.last_line_was_lf;
                let is_in_data = self.part.as_ref().is_some_and(|part| part.has_data);
                if !is_in_data && self.boundaries > 0 && !self.complete {
                    flags.invalid_part = true;
                } else {
                    return self.boundary_line(line, behind);
                }
            } else {
                let quoted = dashed.strip_prefix(b"\"");
                if flags.boundary_quoted && quoted.is_some_and(|rest| rest.starts_with(&self.boundary)) {
                    return Err("Invalid boundary (quotes).".into());
                }
                let blanks = dashed.iter().take_while(|byte| is_space(**byte)).count();
                if blanks > 0 && dashed.get(blanks..).is_some_and(|rest| rest.starts_with(&self.boundary)) {
                    return Err("Invalid boundary (whitespace).".into());
                }
                flags.unmatched_boundary = 1;
            }
        } else {
            let mut dashes = memchr::memmem::find_iter(line, b"--");
            if dashes.any(|at| line.get(at + 2..).is_some_and(|rest| rest.starts_with(&self.boundary))) {
                flags.unmatched_boundary = 1;
            }
        }
        match &mut self.part {
            None if self.complete => flags.data_after = true,
            None => flags.data_before = true,
            Some(part) if part.in_data => {
                if !part.has_data {
                    part.offset = offset;
                }
                part.has_data = true;
                let content = without_end(line);
                part.value.extend_from_slice(part.held_end);
                part.value.extend_from_slice(content);
                part.held_end = match line.len() - content.len() {
                    0 => b"",
                    1 if line.ends_with(b"\n") => b"\n",
                    1 => b"\r",
                    _ => b"\r\n",
                };
                if part.filename.is_empty() {
                    self.out.bytes_without_files += line.len();
                }
            }
            Some(_) => {
                self.out.bytes_without_files += line.len();
                // Parts behind an invalid header are read as well.
                if let Err(reason) = self.header_line(line) {
                    self.out.flags.error = true;
                    self.out.error.get_or_insert(format!("Multipart: {reason}"));
                }
            }
        }
        Ok(())
    }

    fn boundary_line(&mut self, line: &[u8], behind: &[u8]) -> Result<(), String> {
        if self.boundaries > 0 {
            self.out.flags.unmatched_boundary = if self.out.flags.unmatched_boundary > 0 { 2 } else { 0 };
        }
        let (is_final, end) = match behind.strip_prefix(b"--") {
            Some(end) => (true, end),
            None => (false, behind),
        };
        if is_final && self.complete {
            return Err("Invalid boundary (final duplicate).".into());
        }
        match end {
            b"\n" => self.out.flags.lf_line = true,
            b"\r\n" => self.out.flags.crlf_line = true,
            _ => return Err(format!("Invalid boundary: {}", String::from_utf8_lossy(without_end(line)))),
        }
        if self.out.parts.len() >= PARTS_MAX {
            return Err(format!("more than {PARTS_MAX} parts."));
        }
        self.finish_part();
        self.boundaries += 1;
        match is_final {
            true => self.complete = true,
            false => self.part = Some(OpenPart::default()),
        }
        Ok(())
    }

    fn finish_part(&mut self) {
        let Some(mut part) = self.part.take() else { return };
        let last = std::mem::take(&mut part.last_line);
        part.lines.extend(Some(last).filter(|last| !last.is_empty()));
        for line in part.lines {
            self.out.header_lines.push((part.name.clone(), line));
        }
        if part.name.is_empty() {
            self.out.flags.invalid_part = true;
            return;
        }
        let kind = match part.filename.is_empty() {
            true => PartKind::Field,
            false => PartKind::File { filename: part.filename },
        };
        self.out.parts.push(Part { name: part.name, kind, value: part.value, offset: part.offset });
    }

    /// A line of a part's headers; the empty line ends them.
    fn header_line(&mut self, line: &[u8]) -> Result<(), String> {
        let Reader { out: Multipart { flags, names, filenames, .. }, part, .. } = self;
        let Some(part) = part else { return Ok(()) };
        if line.contains(&0) {
            return Err("Nul byte in part headers.".into());
        }
        if line.len() > HEADER_LINE_MAX {
            return Err(format!("Part header line over {HEADER_LINE_MAX} bytes long"));
        }
        match line.ends_with(b"\r\n") {
            true => flags.crlf_line = true,
            false => flags.lf_line = true,
        }
        let content = without_end(line);
        if content.is_empty() {
            part.in_data = true;
            let last = std::mem::take(&mut part.last_line);
            if !last.is_empty() {
                part.lines.push(last);
            }
            let disposition = part.headers.get(&b"Content-Disposition"[..]).cloned();
            let disposition = disposition.ok_or("Part missing Content-Disposition header.")?;
            parse_disposition(&disposition, part, flags, names, filenames).map_err(|code| {
                let shown = String::from_utf8_lossy(&disposition);
                format!("Invalid Content-Disposition header ({code}): {shown}")
            })?;
            if part.name.is_empty() {
                return Err("Content-Disposition header missing name field.".into());
            }
            if !part.filename.is_empty() && memchr::memmem::find(&disposition, b"filename=").is_none() {
                return Err("Invalid Content-Disposition header (filename).".into());
            }
            return Ok(());
        }
        if line.first().is_some_and(|byte| is_space(*byte)) {
            flags.header_folding = true;
            let blanks = line.iter().take_while(|byte| is_space(**byte));
            flags.invalid_header_folding |= blanks.clone().any(|byte| !matches!(byte, b' ' | b'\t'));
            let added = without_end(line.get(blanks.count()..).unwrap_or_default());
            let Some(value) = part.headers.get_mut(&part.last_name) else {
                return Err("Invalid part header (folding error).".into());
            };
            value.push(b' ');
            value.extend_from_slice(added);
            if value.len() > HEADER_LINE_MAX {
                return Err("Part header too long.".into());
            }
            part.last_line = [&part.last_name[..], b": ", value].concat();
            return Ok(());
        }
        let last = std::mem::take(&mut part.last_line);
        if !last.is_empty() {
            part.lines.push(last);
        }
        let Some(colon) = memchr::memchr(b':', line) else {
            return Err(format!("Invalid part header (colon missing): {}", String::from_utf8_lossy(content)));
        };
        let (name, value) = content.split_at(colon.min(content.len()));
        if name.is_empty() {
            return Err("Invalid part header (header name missing).".into());
        }
        if name.iter().any(|byte| !(33..=126).contains(byte)) {
            part.lines.push(content.to_vec());
            return Err("Invalid part header (contains invalid character).".into());
        }
        let canonical = match name.eq_ignore_ascii_case(b"content-disposition") {
            true => b"Content-Disposition".to_vec(),
            false => name.to_ascii_lowercase(),
        };
        let value = trim_start(value.get(1..).unwrap_or_default()).to_vec();
        part.last_name.clone_from(&canonical);
        if part.headers.insert(canonical, value).is_some() {
            return Err("Duplicate part header.".into());
        }
        part.last_line = content.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Multipart {
        Multipart::read(b"multipart/form-data; boundary=b", body.as_bytes())
    }

    #[test]
    fn fields_and_files_are_read() {
        let found = read(
            "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\ntwo\r\n--b\r\nContent-Disposition: form-data; \
             name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\ndata\r\n--b--\r\n",
        );
        assert_eq!(found.error, None);
        assert!(!found.flags.is_strict_error(), "{:?}", found.flags);
        let [field, file] = found.parts.as_slice() else { panic!("two parts") };
        assert_eq!((field.name.as_slice(), field.value.as_slice()), (&b"a"[..], &b"one\r\ntwo"[..]));
        assert_eq!(file.kind, PartKind::File { filename: b"x.txt".to_vec() });
        assert_eq!(found.header_lines.len(), 3);
    }

    #[test]
    fn deviations_set_flags() {
        let lf = read("--b\nContent-Disposition: form-data; name=a\n\nv\n--b--\n");
        assert!(lf.flags.lf_line && !lf.flags.crlf_line && lf.error.is_none());
        let before = read("x\r\n--b\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--b--\r\n");
        assert!(before.flags.data_before);
        let folded = read("--b\r\nContent-Disposition: form-data;\r\n name=a\r\n\r\nv\r\n--b--\r\n");
        assert!(folded.flags.header_folding && !folded.flags.invalid_header_folding);
        let unmatched = read("--b\r\nContent-Disposition: form-data; name=a\r\n\r\n--c\r\n--b--\r\n");
        assert_eq!(unmatched.flags.unmatched_boundary, 2);
        let quoting = read("--b\r\nContent-Disposition: form-data; name='a'\r\n\r\nv\r\n--b--\r\n");
        assert!(quoting.flags.invalid_quoting);
        let after = read("--b\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--b--\r\nx");
        assert!(after.flags.data_after);
    }

    #[test]
    fn errors_keep_earlier_parts() {
        let found = read(
            "--b\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--b\r\nContent-Type: x\r\n\r\nv\r\n--b--\r\n",
        );
        assert_eq!(found.error.as_deref(), Some("Multipart: Part missing Content-Disposition header."));
        assert_eq!(found.parts.len(), 1);
        assert!(read("--b\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n").error.is_some());
        assert_eq!(read("none").error.as_deref(), Some("Multipart: No boundaries found in payload."));
    }

    #[test]
    fn boundaries_of_content_types_are_checked() {
        let error = |header: &str| Multipart::read(header.as_bytes(), b"x").error.unwrap_or_default();
        assert!(error("multipart/form-data").contains("not found"));
        assert!(error("multipart/form-data; boundary=\"b").contains("(quote)"));
        assert!(error("multipart/form-data; boundary=b; boundary=c").contains("Multiple"));
        assert!(error("multipart/form-data; x; boundary=b").contains("(malformed)"));
        assert!(error("multipart/form-data; boundary=b\u{7f}").contains("(characters)"));
        assert!(Multipart::read(b"multipart/form-data boundary=b", b"").flags.missing_semicolon);
    }

    #[test]
    fn a_final_boundary_needs_no_line_end() {
        let found = read("--b\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--b--");
        assert_eq!((found.error, found.parts.len()), (None, 1));
    }
}
