//! Bodies of fuzz targets.

use crate::context;

/// `traceparent` and `tracestate` of any octets: an accepted parent reads as its own text, and an accepted state is printable.
pub fn trace_context(data: &[u8]) {
    if let Some(parent) = context::parse_parent(data) {
        let flag = if parent.sampled { "01" } else { "00" };
        let digits = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
        let text = format!("00-{}-{}-{flag}", digits(&parent.trace_id), digits(&parent.span_id));
        assert_eq!(context::parse_parent(text.as_bytes()), Some(parent));
    }
    let state = context::join_state(data.split(|c| *c == b'\n'));
    assert!(state.len() <= context::STATE_MAX);
    assert!(state.iter().all(|c| *c == b'\t' || (b' '..=b'~').contains(c)));
    assert_eq!(context::join_state(std::iter::once(&*state)), state);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_target_runs() {
        for seed in [
            &b"00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01"[..],
            b"a=b,c=d\ne@f=g",
            b"a=b,\t c=d",
            b"\xff\n\0",
            b"\x0c,\x0c,",
            b"",
        ] {
            super::trace_context(seed);
        }
    }
}
