//! Protocol options of an address's `listen` lines: their union applies; differing lines warn (nginx:
//! `ngx_http_add_addresses`).

/// Options of an address's `listen` lines so far.
#[derive(Debug, Default)]
pub struct Protocols {
    /// Options of all lines so far.
    all: u8,
    /// Options of repeated equal lines, from the second line on.
    usual: Option<u8>,
    changed: bool,
    /// A line has set socket options: later lines should add none.
    settled: bool,
    any: bool,
}

pub(crate) const PROXY_PROTOCOL: u8 = 1;
/// `ssl` as a bit of a line's options.
pub const SSL: u8 = 2;
/// `http2` as a bit of a line's options.
pub const HTTP2: u8 = 4;

impl Protocols {
    /// Adds a line with its protocol options; `sets_options`: it has socket options. Returns whether to warn.
    pub fn redefined(&mut self, said: u8, sets_options: bool) -> bool {
        let (before, settled) = (self.all, self.settled);
        self.all |= said;
        self.settled |= sets_options;
        if !self.any {
            self.any = true;
            return false;
        }
        let unusual = self.usual.is_some_and(|usual| usual != said);
        let (warns, usual) = if said | before != before {
            let warns = (settled && !sets_options) || self.changed || said | before != said;
            self.changed = true;
            (warns, before)
        } else if said | before != said {
            self.changed = true;
            (sets_options || unusual, said)
        } else {
            ((sets_options && self.changed) || unusual, said)
        };
        self.usual = Some(usual);
        warns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(lines: &[(u8, bool)]) -> Vec<usize> {
        let mut protocols = Protocols::default();
        let lines = lines.iter().enumerate();
        lines.filter(|(_, (said, sets))| protocols.redefined(*said, *sets)).map(|(index, _)| index).collect()
    }

    #[test]
    fn as_nginx_warns() {
        const PLAIN: (u8, bool) = (0, false);
        const TLS: (u8, bool) = (SSL, false);
        const BOTH: (u8, bool) = (SSL | HTTP2, false);
        for (lines, want) in [
            (&[TLS, TLS, TLS][..], &[][..]),
            // One line with all options, the others bare: the usual way.
            (&[BOTH, PLAIN, PLAIN], &[]),
            (&[PLAIN, BOTH], &[]),
            (&[PLAIN, BOTH, PLAIN], &[]),
            (&[PLAIN, TLS, BOTH], &[2]),
            (&[BOTH, TLS, PLAIN], &[2]),
            (&[TLS, (HTTP2, false)], &[1]),
            (&[(0, true), TLS], &[1]),
            (&[TLS, (0, true)], &[1]),
            (&[(SSL, true), PLAIN, TLS], &[2]),
        ] {
            assert_eq!(warned(lines), want, "{lines:?}");
        }
    }
}
