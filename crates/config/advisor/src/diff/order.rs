//! Meaning of the order of equally named lines in a block. Two lines that can change places without effect commute; a
//! difference is reported only if two lines that do not commute changed their order.

use super::DiffLine;
use std::collections::BTreeSet;

/// Relation between lines of one directive.
enum OrderRelation {
    /// The order has no meaning.
    None,
    /// It has among lines with an equal first word, such as the name of a field.
    ByName,
    /// It has among lines with a common word before the last one, such as a status; `any` is common to all.
    ByCode,
    /// The first line that applies wins, or lines apply one after another.
    Whole,
}

/// Directives by the meaning of their order. An unlisted one keeps its order.
fn order_of(name: &str) -> OrderRelation {
    match name {
        "listen"
        | "map"
        | "num_map"
        | "geo"
        | "split_clients"
        | "log_format"
        | "limit_req_zone"
        | "limit_conn_zone"
        | "auth_failure_limit_zone"
        | "auth_jwt_claim_set"
        | "auth_jwt_header_set"
        | "keyval"
        | "keyval_zone"
        | "proxy_cache_path"
        | "fastcgi_cache_path"
        | "scgi_cache_path"
        | "uwsgi_cache_path"
        | "types"
        | "env"
        | "thread_pool"
        | "geoip2"
        | "match"
        | "proxy_hide_header"
        | "proxy_pass_header"
        | "fastcgi_hide_header"
        | "fastcgi_pass_header"
        | "scgi_hide_header"
        | "scgi_pass_header"
        | "uwsgi_hide_header"
        | "uwsgi_pass_header"
        | "grpc_hide_header"
        | "grpc_pass_header"
        | "gzip_types"
        | "brotli_types"
        | "zstd_types"
        | "sub_filter_types"
        | "charset_types"
        | "access_log"
        | "error_log"
        | "set_real_ip_from"
        | "gzip_disable"
        | "valid_referers"
        | "mirror"
        | "acme_issuer"
        | "otel_exporter"
        | "load_module" => OrderRelation::None,
        "add_header"
        | "add_trailer"
        | "proxy_set_header"
        | "grpc_set_header"
        | "fastcgi_param"
        | "scgi_param"
        | "uwsgi_param"
        | "auth_request_set"
        | "auth_http_header"
        | "xslt_param"
        | "xslt_string_param"
        | "otel_span_attr"
        | "otel_resource_attr"
        | "ssl_conf_command"
        | "proxy_ssl_conf_command"
        | "grpc_ssl_conf_command"
        | "uwsgi_ssl_conf_command" => OrderRelation::ByName,
        "error_page" | "proxy_cache_valid" | "fastcgi_cache_valid" | "scgi_cache_valid" | "uwsgi_cache_valid" => {
            OrderRelation::ByCode
        }
        _ => OrderRelation::Whole,
    }
}

fn first_word(line: &DiffLine) -> Option<&str> {
    line.text.split_whitespace().next()
}

/// Tells whether two lines can change places without effect.
fn commute(name: &str, a: &DiffLine, b: &DiffLine) -> bool {
    let words = |line: &DiffLine| -> Vec<String> {
        let text = line.text.trim_end_matches(';').to_ascii_lowercase();
        text.split_whitespace().skip(1).map(str::to_string).collect()
    };
    match order_of(name) {
        OrderRelation::None => true,
        // Rules that allow commute among each other, and those that deny.
        OrderRelation::Whole => name == "allow, deny" && first_word(a) == first_word(b),
        OrderRelation::ByName => words(a).first() != words(b).first(),
        OrderRelation::ByCode => {
            let (a, b) = (words(a), words(b));
            let codes = |words: &[String]| -> BTreeSet<String> {
                // `proxy_cache_valid 1m;` stands for 200, 301 and 302; `error_page 404 = /x;` has a word for the status.
                let codes = words.iter().take(words.len().saturating_sub(1));
                let codes: BTreeSet<String> = codes.filter(|word| !word.starts_with('=')).cloned().collect();
                match codes.is_empty() {
                    true => ["200", "301", "302"].map(str::to_string).into(),
                    false => codes,
                }
            };
            let (a, b) = (codes(&a), codes(&b));
            !a.contains("any") && !b.contains("any") && a.is_disjoint(&b)
        }
    }
}

/// Returns the keys of the lines whose order changed with an effect. Both sides have equal lines.
pub fn moved_lines<'a>(name: &str, old: &'a [DiffLine], new: &[DiffLine]) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    if matches!(order_of(name), OrderRelation::None) {
        return found;
    }
    // The nth of several equal lines is the nth on both sides.
    let mut places: Vec<usize> = Vec::new();
    for line in old {
        let at = new.iter().enumerate().position(|(at, other)| other.key == line.key && !places.contains(&at));
        places.push(at.unwrap_or(usize::MAX));
    }
    for (first, (a, at)) in old.iter().zip(&places).enumerate() {
        for (b, _) in old.iter().zip(&places).skip(first + 1).filter(|(_, later)| *later < at) {
            if !commute(name, a, b) {
                found.extend([a.key.as_str(), b.key.as_str()]);
            }
        }
    }
    found
}
