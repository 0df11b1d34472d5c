//! RFC 9111 where nginx differs (`proxy_cache_rfc9111 on`): request directives, updates by 304, invalidation by unsafe
//! methods.

use super::CachePlan;
use cache::strict::{RequestDirectives, Use, list_items};
use cache::{Hash, Meta, Zone};
use http_engine::Request;
use http_engine::path::CanonicalPath;
use http_engine::route::{self, Route};
use http_types::{Known, RequestHead, ResponseHead};
use observe::{Severity, clock::http_time, os_error};
use wire_h1::{HeadLimits, HeadParser, ParseProgress};

/// Returns the directives of the request's `Cache-Control`.
pub fn request_directives(r: &Request) -> RequestDirectives {
    RequestDirectives::read(
        r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"cache-control")).map(|(_, value)| value),
    )
}

/// Tells whether an entry may be served at a time (Unix seconds), to this client by RFC 9111.
pub fn entry_use(caching: &CachePlan, r: &Request, meta: &Meta, now: i64) -> Use {
    if caching.rfc9111 {
        request_directives(r).of(meta, now)
    } else if meta.valid_sec < now {
        Use::No { may_be_stale: true }
    } else {
        Use::Fresh
    }
}

/// Removes fields of the connection, which are neither stored nor passed on.
pub fn drop_connection_fields(r: &mut Request, head: &ResponseHead, buf: &[u8]) {
    for field in head.fields.each(Known::Connection) {
        for name in list_items(field.value.of(buf)) {
            // `Connection` must not remove the fields of the body's framing.
            if !name.eq_ignore_ascii_case(b"content-length") && !name.eq_ignore_ascii_case(b"transfer-encoding") {
                r.out.remove(name);
            }
        }
    }
}

/// Name and value of a field.
pub type FieldPair<'a> = (&'a [u8], &'a [u8]);

/// Returns the stored fields, updated by those of a 304 (RFC 9111, 3.2). `date`: replaces a missing `Date` of the 304.
pub fn merge_fields<'a>(
    old: &'a ResponseHead,
    old_buf: &'a [u8],
    new: &'a ResponseHead,
    new_buf: &'a [u8],
    date: &'a [u8],
) -> Vec<FieldPair<'a>> {
    // Fields about the stored bytes are kept.
    const KEPT: [Known; 4] =
        [Known::ContentLength, Known::ContentEncoding, Known::ContentRange, Known::TransferEncoding];
    let mut updates: Vec<FieldPair<'a>> = new
        .fields
        .all
        .iter()
        .filter(|f| !KEPT.contains(&f.known) && !matches!(f.known, Known::Connection | Known::KeepAlive))
        .map(|f| (f.name.of(new_buf), f.value.of(new_buf)))
        .filter(|(name, _)| !name.eq_ignore_ascii_case(b"vary"))
        .collect();
    if new.fields.first(Known::Date).is_none() {
        updates.push((b"Date", date));
    }
    let stays = |name: &[u8]| {
        // The age of the stored response no longer applies.
        !name.eq_ignore_ascii_case(b"age") && !updates.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    };
    let stored = old.fields.all.iter().map(|f| (f.name.of(old_buf), f.value.of(old_buf)));
    let mut out: Vec<FieldPair<'a>> = stored.filter(|(name, _)| stays(name)).collect();
    out.extend(updates);
    out
}

/// Writes a head with the old status line and these fields, as HTTP/1.
pub fn write_head(old: &ResponseHead, old_buf: &[u8], fields: &[FieldPair<'_>]) -> Vec<u8> {
    let mut out = b"HTTP/1.1 ".to_vec();
    out.extend_from_slice(old.status_line.of(old_buf));
    out.extend_from_slice(b"\r\n");
    for (name, value) in fields {
        for part in [name, &b": "[..], value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Formats a time in Unix seconds for `Date`.
pub fn format_date(now: i64) -> Vec<u8> {
    http_time(now).to_vec()
}

/// Invalidates the entries of a key; logs a failure.
pub fn forget_entry(r: &Request, zone: &Zone, key: &[u8]) {
    if let Err(e) = zone.purge_key(&Hash::of(key), key, base::clock::unix_millis()) {
        let root = zone.root().display();
        r.log(Severity::Crit, format_args!("invalidating in \"{root}\" could not be noted {}", os_error(&e)));
    }
}

/// Returns further URIs on this host that a response to an unsafe method names.
pub fn related_uris(r: &Request, head: &ResponseHead, buf: &[u8]) -> Vec<Vec<u8>> {
    let of = |name: &[u8]| {
        let field = head.fields.all.iter().find(|f| f.name.of(buf).eq_ignore_ascii_case(name));
        field.and_then(|f| target_of(r, f.value.of(buf)))
    };
    [&b"location"[..], b"content-location"].into_iter().filter_map(of).collect()
}

fn target_of(r: &Request, reference: &[u8]) -> Option<Vec<u8>> {
    let reference = reference.split(|c| *c == b'#').next()?;
    let scheme = if r.connection().tls.is_some() { &b"https://"[..] } else { b"http://" };
    let lower = reference.to_ascii_lowercase();
    let rest = if lower.starts_with(scheme) { reference.get(scheme.len()..) } else { reference.strip_prefix(b"//") };
    let absolute = match rest {
        Some(rest) => {
            let end = rest.iter().position(|c| matches!(c, b'/' | b'?')).unwrap_or(rest.len());
            let (host, path) = rest.split_at_checked(end)?;
            let own = r.header(Known::Host)?;
            if !host.eq_ignore_ascii_case(own) {
                return None;
            }
            if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() }
        }
        None if reference.starts_with(b"/") => reference.to_vec(),
        None if reference.iter().take_while(|c| !matches!(c, b'/' | b'?')).any(|c| *c == b':') => return None,
        None if reference.is_empty() => return None,
        None => {
            let own = r.head.request_uri().of(&r.buf);
            let own = own.split(|c| *c == b'?').next().unwrap_or_default();
            let folder = own.iter().rposition(|c| *c == b'/').map_or(0, |at| at + 1);
            [own.get(..folder).unwrap_or_default(), reference].concat()
        }
    };
    let clean = absolute.iter().all(|c| matches!(c, b'!'..=b'~'));
    (clean && absolute.starts_with(b"/")).then_some(absolute)
}

/// Copies the request with another target, for its key. `None`: another location's target.
pub fn aimed_at(r: &mut Request, target: &[u8]) -> Option<Box<Request>> {
    let mut buf = [b"GET ", target, b" HTTP/1.1\r\n"].concat();
    for (name, value) in r.headers() {
        for part in [name, &b": "[..], value, b"\r\n"] {
            buf.extend_from_slice(part);
        }
    }
    buf.extend_from_slice(b"\r\n");
    let size = buf.len() + 1;
    let limits = HeadLimits {
        line_max: size,
        field_max: size,
        total_max: size,
        fields_max: usize::MAX,
        underscores: true,
        ignore_invalid: true,
    };
    let mut head = RequestHead::default();
    let whole = HeadParser::default().parse(&buf, &limits, &mut head);
    if !matches!(whole, Ok(ParseProgress::Done { .. })) {
        return None;
    }
    let mut parts = target.splitn(2, |c| *c == b'?');
    let (file, args) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let canonical = CanonicalPath::escaped(file, r.loc().core.conf.merge_slashes).ok()?;
    let mut copy = r.subrequest(canonical, args.to_vec()).ok()?;
    (copy.head, copy.buf) = (head, buf);
    // An independent request with a method of its own.
    copy.leave_family();
    // Other locations have keys of their own.
    (route::find_route(&mut copy) == Ok(Route::Location(r.location_index()))).then_some(())?;
    copy.select_location(r.location_index());
    Some(copy)
}
