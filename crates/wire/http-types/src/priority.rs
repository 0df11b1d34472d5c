//! Extensible priorities (RFC 9218): the field of HTTP/2 and HTTP/3.

/// Priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 (first) to 7 (last).
    pub urgency: u8,
    /// Incremental: shares with its peers instead of following them.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Applies a field; absent or malformed members keep their values.
    #[must_use]
    pub fn with(mut self, field: &[u8]) -> Priority {
        for member in field.split(|c| *c == b',') {
            let member = member.split(|c| *c == b';').next().unwrap_or_default().trim_ascii();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.incremental = true,
                b"i=?0" => self.incremental = false,
                _ => {}
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Priority;

    #[test]
    fn fields_are_read_as_far_as_they_are_right() {
        let read = |field: &str| {
            let priority = Priority::default().with(field.as_bytes());
            (priority.urgency, priority.incremental)
        };
        assert_eq!(read("u=1, i"), (1, true));
        assert_eq!(read("i=?0,u=7;x=1"), (7, false));
        assert_eq!(read(" i=?1 ,x,u=8,u=a,u"), (3, true));
        assert_eq!(read(""), (3, false));
        let request = Priority::default().with(b"u=5, i");
        // Members absent from a response keep the request's values.
        assert_eq!(request.with(b"u=1"), Priority { urgency: 1, incremental: true });
    }
}
