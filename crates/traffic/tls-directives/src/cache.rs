//! `ssl_session_cache` and `ssl_ocsp_cache`.

use area::zones::BYTES_MIN;
use conf_schema::value::{parse_decimal, parse_size, word_at};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use std::collections::HashMap;

/// `ssl_session_cache`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SslSessionCache {
    /// `builtin[:number]`: a server's own cache.
    pub builtin: Option<u64>,
    pub shared: Option<(String, u64)>,
}

/// Sessions of `builtin` without a number.
const BUILTIN: u64 = 20_480;

/// Sizes of declared zones, which must agree.
#[derive(Default)]
struct DeclaredCaches(HashMap<String, u64>);

impl ValueKind for SslSessionCache {
    const SYNTAX: &'static str = "off | none | [builtin[:size]] [shared:name:size]";
    // As in nginx, a later line silently replaces an earlier one.
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut sessions = SslSessionCache::default();
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || Problem::says(format!("invalid session cache \"{text}\"")).at(index);
            match text.split_once(':') {
                None if matches!(&*text, "off" | "none") => sessions.builtin = None,
                None if text == "builtin" => sessions.builtin = Some(BUILTIN),
                Some(("builtin", count)) => sessions.builtin = Some(parse_decimal(count).ok_or_else(invalid)?),
                Some(("shared", rest)) => {
                    let (name, size) = rest.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(invalid)?;
                    let size = parse_size(size.as_bytes()).ok_or_else(invalid)?;
                    if size < BYTES_MIN {
                        return Err(Problem::says(format!("session cache \"{text}\" is too small")).at(index));
                    }
                    let known = *cx.get::<DeclaredCaches>().0.entry(name.to_string()).or_insert(size);
                    if known != size {
                        return Err(Problem::says(format!(
                            "the size {size} of shared memory zone \"{name}\" conflicts with already declared size {known}"
                        ))
                        .at(index));
                    }
                    sessions.shared = Some((name.to_string(), size));
                }
                _ => return Err(invalid()),
            }
        }
        Ok(sessions)
    }
    fn append(&mut self, later: Self) {
        *self = later;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OcspCache {
    Off,
    Shared(String, u64),
}

impl ValueKind for OcspCache {
    const SYNTAX: &'static str = "off | shared:name:size";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = word_at(d, 0)?.text();
        if text == "off" {
            return Ok(OcspCache::Off);
        }
        let invalid = || Problem::says(format!("invalid OCSP cache \"{text}\"")).at(0);
        let rest = text.strip_prefix("shared:").ok_or_else(invalid)?;
        let (name, size) = rest.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(invalid)?;
        let size = parse_size(size.as_bytes()).ok_or_else(invalid)?;
        if size < BYTES_MIN {
            return Err(Problem::says(format!("OCSP cache \"{text}\" is too small")).at(0));
        }
        Ok(OcspCache::Shared(name.to_string(), size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    #[test]
    fn session_caches_are_read_as_nginx_reads_them() {
        let mut cx = Cx::default();
        let mut read = |text: &str| {
            SslSessionCache::parse(&mut cx, &synthetic_directive("ssl_session_cache", text))
                .map_err(|p| format!("{:?}", p.words))
        };
        let shared = Some(("SSL".to_string(), 1 << 20));
        assert_eq!(read("shared:SSL:1m"), Ok(SslSessionCache { builtin: None, shared: shared.clone() }));
        assert_eq!(read("builtin:1000 shared:SSL:1m"), Ok(SslSessionCache { builtin: Some(1000), shared }));
        assert_eq!(read("off"), Ok(SslSessionCache::default()));
        for (text, why) in [
            ("on", "invalid session cache \\\"on\\\""),
            ("shared:SSL", "invalid session cache \\\"shared:SSL\\\""),
            ("shared::1m", "invalid session cache \\\"shared::1m\\\""),
            ("builtin:x", "invalid session cache \\\"builtin:x\\\""),
            ("shared:S:1k", "session cache \\\"shared:S:1k\\\" is too small"),
            ("shared:SSL:2m", "conflicts with already declared size 1048576"),
        ] {
            assert!(read(text).expect_err(text).contains(why), "{text}");
        }
    }
}
