//! `proxy_cache_purge ZONE KEY` in a location of its own, as in the module ngx_cache_purge (FRiCKLE), and what distinguishes it
//! from conditions.

use super::conf::CacheSettings;
use super::find_path;
use super::paths::CachePath;
use super::session::purge_key;
use super::tagging;
use bytes::Bytes;
use cache::Hash;
use conf_schema::{Cx, Problem};
use http_engine::{Flow, Handler, HttpTemplate, Request, ResponseBody};
use observe::{Severity, os_error};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Meaning of the words of `proxy_cache_purge`.
pub enum PurgeForm<'a> {
    /// None, or conditions with variables.
    Conditions,
    /// Nothing is purged.
    Off,
    /// Removes the entry of a key in a zone.
    Entry {
        /// Name of the zone.
        zone: &'a [u8],
        /// Key of the entry.
        key: &'a HttpTemplate,
    },
}

impl PurgeForm<'_> {
    /// Tells the forms apart: a zone is a word without variables.
    ///
    /// # Errors
    /// A constant, which would purge with every request: another form of the module.
    pub fn of(settings: &CacheSettings) -> Result<PurgeForm<'_>, Problem> {
        let constant = |text: &HttpTemplate| text.as_literal().is_some_and(|text| !matches!(text, b"" | b"0"));
        let literal = |text: &'_ HttpTemplate| text.as_literal().map(<[u8]>::to_vec);
        match settings.purge.as_slice() {
            all if !all.iter().any(constant) => Ok(PurgeForm::Conditions),
            [off] if literal(off).as_deref() == Some(b"off") => Ok(PurgeForm::Off),
            [zone, key] if !matches!(literal(key).as_deref(), Some(b"from" | b"purge_all")) => {
                match zone.as_literal() {
                    Some(zone) if !matches!(zone, b"" | b"0" | b"on" | b"off") => Ok(PurgeForm::Entry { zone, key }),
                    _ => Err(refused(settings)),
                }
            }
            _ => Err(refused(settings)),
        }
    }
}

fn refused(settings: &CacheSettings) -> Problem {
    let family = settings.family;
    let directive = format!("{family}_cache_purge");
    Problem::says(format!("\"{directive}\" with a constant would purge with every request")).of(directive).hint(
        "write conditions: a request removes the entry if one of them is neither empty nor \"0\"; or a zone and a key",
    )
}

/// Answers every request of a location by purging a key, or tags if the request names some.
pub struct PurgeLocation {
    family: &'static str,
    path: Arc<CachePath>,
    key: HttpTemplate,
    tags: Vec<HttpTemplate>,
}

impl PurgeLocation {
    /// Returns the handler of a location with a zone and a key.
    ///
    /// # Errors
    /// The zone is unknown, or a constant stands in place of conditions.
    pub fn new(settings: &CacheSettings, cx: &mut Cx) -> Result<Option<PurgeLocation>, Problem> {
        let PurgeForm::Entry { zone, key } = PurgeForm::of(settings)? else { return Ok(None) };
        let path = find_path(settings.family, &String::from_utf8_lossy(zone), "cache_purge", cx)?;
        Ok(Some(PurgeLocation { family: settings.family, path, key: key.clone(), tags: settings.purge_tags.clone() }))
    }
    /// Returns the name of the directive.
    pub fn directive(&self) -> String {
        format!("{}_cache_purge", self.family)
    }
}

impl Handler for PurgeLocation {
    fn run(&self, r: &mut Request) -> Flow {
        if let Some(flow) = tagging::purge_named_tags(&self.tags, r, &self.path) {
            return flow;
        }
        let key = self.key.eval(r);
        match purge_key(&self.path, &key) {
            Ok(true) => {
                r.out.set_status(200);
                r.out.set_content_type("text/html");
                let file = self.path.zone.place.path(&Hash::of(&key));
                let page = page(&key, file.as_os_str().as_bytes());
                r.out.set_content_length(Some(page.len() as u64));
                Flow::Content(ResponseBody::Bytes(Bytes::from(page)))
            }
            Ok(false) => Flow::Status(404),
            Err(e) => {
                let root = self.path.zone.root().display();
                r.log(Severity::Crit, format_args!("purging in \"{root}\" could not be noted {}", os_error(&e)));
                Flow::Status(500)
            }
        }
    }
}

/// Writes the module's page; its clients look at the status.
fn page(key: &[u8], file: &[u8]) -> Vec<u8> {
    let mut out = b"<html>\r\n<head><title>Successful purge</title></head>\r\n<body bgcolor=\"white\">\r\n\
        <center><h1>Successful purge</h1>\r\n<br>Key : "
        .to_vec();
    escape(key, &mut out);
    out.extend_from_slice(b"\r\n<br>Path: ");
    escape(file, &mut out);
    out.extend_from_slice(b"\r\n</center>\r\n</body>\r\n</html>\r\n");
    out
}

/// Appends a text of a client, as HTML.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            other => out.push(*other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_no_markup_of_its_key() {
        let page = page(b"/<script>\"&", b"/cache/0");
        let text = String::from_utf8_lossy(&page);
        assert!(text.contains("<br>Key : /&lt;script&gt;&quot;&amp;\r\n<br>Path: /cache/0\r\n"), "{text}");
    }
}
