//! Replays the committed corpora of all fuzz targets: an input that libFuzzer kept because it reaches other code, or that once failed.

use std::collections::BTreeSet;

/// Targets of `fuzz/fuzz_targets` and their bodies.
const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("acme_dns", |data| http_acme::fuzzing::acme_dns(data)),
    ("api", |data| {
        server::fuzzing::api(data);
    }),
    ("cache_entry", |data| cache::fuzzing::entry(data)),
    ("cache_entry_mutated", |data| cache::fuzzing::mutated_entry(data)),
    ("cgi", http_proxy::fuzzing::cgi),
    ("conf_tokens", conf_syntax::fuzzing::tokens),
    ("conf_tree", conf_syntax::fuzzing::tree),
    ("datagram_session", |data| stream_features::fuzzing::datagram_session(data)),
    ("dav", |data| http_content::fuzzing::dav(data)),
    ("dns", |data| resolver::fuzzing::dns(data)),
    ("dns_query", |data| dns_zone::fuzzing::dns_query(data)),
    ("fastcgi", http_proxy::fuzzing::fastcgi),
    ("geoip", |data| http_features::fuzzing::geoip(data)),
    ("h1_chunked", |data| wire_h1::fuzzing::chunked(data)),
    ("h1_request", |data| wire_h1::fuzzing::request(data)),
    ("h1_response", |data| wire_h1::fuzzing::response(data)),
    ("h2_client", |data| wire_h2::fuzzing::client(data)),
    ("h2_hpack", |data| wire_h2::fuzzing::hpack(data)),
    ("h2_server", |data| wire_h2::fuzzing::server(data)),
    ("h3_frames", |data| wire_h3::fuzzing::frames(data)),
    ("h3_qpack", |data| wire_h3::fuzzing::qpack(data)),
    ("h3_section", |data| wire_h3::fuzzing::section(data)),
    ("hls", |data| http_content::fuzzing::hls(data)),
    ("host", http_engine::fuzzing::authority),
    ("htaccess", |data| htaccess::fuzzing::htaccess(data)),
    ("htaccess_request", |data| {
        server::fuzzing::htaccess_request(data);
    }),
    ("http1_answer", http_proxy::fuzzing::http1_answer),
    ("http_round_trip", |data| http_proxy::fuzzing::round_trip(data)),
    ("image", |data| http_content::fuzzing::image(data)),
    ("jwt", |data| jose::fuzzing::jwt(data)),
    ("mail_auth", |data| mail_features::fuzzing::mail_auth(data)),
    ("mail_dialogue", |data| mail_features::fuzzing::mail_dialogue(data)),
    ("memcached", http_proxy::fuzzing::memcached),
    ("mmdb", |data| http_features::fuzzing::mmdb(data)),
    ("mp4", |data| http_content::fuzzing::mp4(data)),
    ("mqtt_connect", |data| stream_features::fuzzing::mqtt_connect(data)),
    ("path", http_engine::fuzzing::path),
    ("preread_hello", |data| stream_features::fuzzing::preread_hello(data)),
    ("proxy_header", |data| wire_proxy::fuzzing::header(data)),
    ("quic_first", |data| tls::fuzzing::quic_first(data)),
    ("reloads", |data| {
        server::fuzzing::run_reloads(data);
    }),
    ("seclang", |data| waf::fuzzing::seclang(data)),
    ("tls_certificate", |data| tls::fuzzing::certificate(data)),
    ("tls_ciphers", |data| tls::fuzzing::cipher_string(data)),
    ("tls_hello", |data| tls::fuzzing::client_hello(data)),
    ("tls_pem", |data| tls::fuzzing::pem_text(data)),
    ("trace_context", |data| otlp::fuzzing::trace_context(data)),
    ("waf_request", |data| waf::fuzzing::waf_request(data)),
    ("xml", |data| xslt::fuzzing::xml(data)),
    ("xslt", |data| xslt::fuzzing::xslt(data)),
];

fn names_in(folder: &str, suffix: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(corpora::corpora_folder().join(folder)).expect("a folder of fuzz/").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("a name"));
    names.filter_map(|name| name.strip_suffix(suffix).map(str::to_string)).collect()
}

#[test]
fn every_target_is_listed_and_has_a_corpus() {
    let listed: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_string()).collect();
    assert_eq!(listed, names_in("../fuzz_targets", ".rs"));
    assert_eq!(listed, names_in(".", ".txt"));
}

#[test]
fn no_input_violates_an_invariant() {
    for (name, target) in TARGETS {
        let path = corpora::corpora_folder().join(format!("{name}.txt"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let inputs = corpora::parse_inputs(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!inputs.is_empty(), "{name}: an empty corpus tests nothing");
        for (at, input) in inputs.iter().enumerate() {
            eprintln!("{name}, line {}", at + 1);
            target(input);
        }
    }
}
