//! The id under which a request is found elsewhere, for exemplars: that of its trace if the trace is sampled, else `$request_id`.

use crate::Request;
use crate::span::TraceContext;
use http_types::Known;

/// Tells whether [`known_trace`] may return an id: a fast answer for most requests of a server that samples some.
#[inline]
pub fn may_be_known(r: &Request) -> bool {
    !matches!(r.context, TraceContext::Unsampled(_) | TraceContext::Ids(_))
}

/// Returns the trace's id, or `$request_id` if the request has one. `None`: unknown, or the trace is not sampled.
pub fn known_trace(r: &Request) -> Option<[u8; 16]> {
    match trace(r) {
        Some(id) => id,
        None => r.accounting.id,
    }
}

/// As [`known_trace`], with a new `$request_id` if there is none: the access log, written later, will have it.
pub fn own_trace(r: &mut Request) -> Option<[u8; 16]> {
    match trace(r) {
        Some(id) => id,
        None => Some(*r.accounting.id.get_or_insert_with(net::random::bytes16)),
    }
}

/// Returns the id of the request's own trace, or of its client's, if that trace is sampled; outer `None`: there is no trace.
fn trace(r: &Request) -> Option<Option<[u8; 16]>> {
    match &r.context {
        TraceContext::Unknown => traceparent(r).map(|(id, is_sampled)| is_sampled.then_some(id)),
        TraceContext::Unsampled(_) | TraceContext::Ids(_) => Some(None),
        TraceContext::Span(span) => Some(span.sampled.get().then_some(span.ids.trace)),
    }
}

/// Returns the trace id of a valid `traceparent` field, and whether its trace is sampled.
fn traceparent(r: &Request) -> Option<([u8; 16], bool)> {
    parse(r.header(Known::Traceparent)?)
}

/// W3C Trace Context, section 3.2: `version-trace_id-parent_id-flags`, in lower case. Later versions may have more.
fn parse(text: &[u8]) -> Option<([u8; 16], bool)> {
    let text = text.trim_ascii();
    let (head, rest) = text.split_at_checked(55)?;
    let mut parts = head.split(|c| *c == b'-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let lengths = [version.len(), trace.len(), parent.len(), flags.len()];
    let is_whole = rest.is_empty() || (version != b"00" && rest.first() == Some(&b'-'));
    if lengths != [2, 32, 16, 2] || parts.next().is_some() || !is_whole {
        return None;
    }
    let (version, parent) = (hex::<1>(version)?, hex::<8>(parent)?);
    let (id, [flags]) = (hex::<16>(trace)?, hex::<1>(flags)?);
    let is_valid = version != [0xff] && parent != [0; 8] && id != [0; 16];
    is_valid.then_some((id, flags & 1 == 1))
}

fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_traces() {
        let id = hex::<16>(b"4bf92f3577b34da6a3ce929d0e0e4736").expect("hexadecimal");
        for (text, want) in [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Some((id, true))),
            (" 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00 ", Some((id, false))),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03", Some((id, true))),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", Some((id, true))),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", None),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more", None),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", None),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", None),
            ("", None),
        ] {
            assert_eq!(parse(text.as_bytes()), want, "{text}");
        }
    }
}
