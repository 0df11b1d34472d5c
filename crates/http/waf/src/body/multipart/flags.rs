//! Deviations of a multipart body from the standard.

/// Deviations; `MULTIPART_*` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MultipartFlags {
    pub error: bool,
    pub data_before: bool,
    pub data_after: bool,
    pub header_folding: bool,
    pub boundary_quoted: bool,
    pub lf_line: bool,
    pub crlf_line: bool,
    /// 1 for a line like a boundary that is none; 2 if a boundary with the right name followed.
    pub unmatched_boundary: u8,
    pub boundary_whitespace: bool,
    pub missing_semicolon: bool,
    pub invalid_quoting: bool,
    pub invalid_part: bool,
    pub invalid_header_folding: bool,
}

impl MultipartFlags {
    pub fn is_strict_error(&self) -> bool {
        self.error
            || self.boundary_quoted
            || self.boundary_whitespace
            || self.data_before
            || self.data_after
            || self.header_folding
            || self.lf_line
            || self.missing_semicolon
            || self.invalid_quoting
            || self.invalid_part
            || self.invalid_header_folding
    }
}
