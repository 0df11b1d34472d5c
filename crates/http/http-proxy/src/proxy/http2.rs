//! Request over HTTP/2 (nginx: `ngx_http_proxy_v2_module`) and HTTP/3, whose heads differ in their compression.

use super::Http;
use super::request::OWN_FIELDS;
use http_engine::{Request, clean};
use http_types::Known;
use http_upstream::caching::{CacheRequest, OWN_CONDITIONS};
use http_upstream::exchange::block::HeaderBlock;
use http_upstream::exchange::{Announce, PassPlan};
use http_upstream::target::UpstreamTarget;

/// Writes the header block: the operator's fields without connection-specific ones.
pub fn write_block(
    http: &Http,
    plan: &PassPlan,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    announce: Announce,
    out: &mut Vec<u8>,
) {
    let conf = &http.conf;
    let method = conf.proxy_method.as_ref().map(|method| method.eval(r));
    let method = match method.and_then(|method| r.field_value("proxy_method", b"method", method)) {
        // HEAD as GET goes before the directive, so that the response serves both (nginx: `u->method`).
        _ if CacheRequest::of(r).is_some_and(|asking| asking.as_get) => b"GET".to_vec(),
        Some(method) => method,
        None => r.method_name().to_vec(),
    };
    let lines = conf.proxy_set_header.as_ref().map(|l| l.0.as_slice()).unwrap_or_default();
    let is_host = |line: &&super::HeaderLine| line.name.eq_ignore_ascii_case(b"host");
    let host = lines.iter().rfind(is_host).map(|line| line.value.eval(r));
    let host = host.and_then(|host| r.field_value("proxy_set_header", b"Host", host)).filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| target.origin.host.as_bytes().to_vec());
    let path = clean::encode_target(target.uri());
    let mut block = HeaderBlock::new(http.coding(), &method, target.origin.tls, &path, Some(&host), out);
    let mut length_said = false;
    for line in lines.iter().filter(|line| !is_host(line)) {
        let value = line.value.eval(r);
        length_said |= line.name.eq_ignore_ascii_case(b"content-length");
        if clean::ends_line(&value) || clean::ends_line(&line.name) {
            r.dropped("proxy_set_header", &line.name, &value);
        } else if !value.is_empty() {
            block.field(&line.name, &value);
        }
    }
    if let Announce::Length(n) = announce
        && !length_said
    {
        block.field(b"content-length", n.to_string().as_bytes());
    }
    let asking = CacheRequest::of(r);
    if let Some(asking) = asking {
        for (known, value) in
            [(Known::IfModifiedSince, &asking.if_modified_since), (Known::IfNoneMatch, &asking.if_none_match)]
        {
            if let Some(value) = value.as_ref().filter(|_| !http.set.has(known, b"")) {
                block.field(known.name().as_bytes(), value);
            }
        }
    }
    if !plan.conf.pass_request_headers {
        return;
    }
    for one in &r.head.fields.all {
        let (name, value) = (one.name.of(&r.buf), one.value.of(&r.buf));
        let is = |other: &&str| other.as_bytes().eq_ignore_ascii_case(name);
        if asking.is_some() && OWN_CONDITIONS.iter().any(is) {
            continue;
        }
        if !http.overridden.has(one.known, name) && !OWN_FIELDS.iter().any(is) {
            block.field(name, value);
        }
    }
}
