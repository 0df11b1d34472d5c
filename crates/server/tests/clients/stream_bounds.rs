//! The bounds of docs/attacks.md for responses that are made, measured from outside: each feature that makes bodies, with 100 requests of
//! one connection whose client reads nothing, over HTTP/2 and HTTP/3. A row holds what the worker process holds meanwhile
//! (peak), and its CPU time after the client has left.
//!
//! `cargo xtask bounds` runs all rows against the release build; `cargo test` runs them with smaller files.

use crate::bounds::{ALONE, PrivateMemory, QuitNow, SLOWNESS, WARM_KB, amount, answers, cpu_millis, grey_png};
use crate::support;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::http2::{HEADERS, SETTINGS, WINDOW_UPDATE, frame};
use support::{Running, Site, free_port, http2, http3, wait_within};

/// Requests of one connection.
const STREAMS: u32 = 100;
/// Memory that these requests may hold, unless their row says more.
const HELD_KB: u64 = 2048;
/// CPU time after the client has left.
const LEFT_MILLIS: u64 = 50;
/// A server that has not computed for this long waits for its client.
const QUIET: Duration = Duration::from_millis(250);
/// Octets of a connection that HTTP/3 takes itself: streams, their buffers and the window.
const QUIC_KB: u64 = 2048;

struct Row {
    feature: &'static str,
    /// In the server's block.
    conf: String,
    method: &'static str,
    path: &'static str,
    fields: &'static [(&'static str, &'static str)],
    /// Kilobytes that these requests may hold: what nginx holds, or less, or what one response takes while it is made.
    allowed_kb: u64,
    /// Requests of the connection: [`STREAMS`], or fewer where each takes development builds a second.
    streams: u32,
}

impl Row {
    fn get(feature: &'static str, path: &'static str, conf: &str, allowed_kb: u64) -> Row {
        Row { feature, conf: conf.into(), method: "GET", path, fields: &[], allowed_kb, streams: STREAMS }
    }
    fn coded(
        feature: &'static str,
        path: &'static str,
        coding: &'static [(&'static str, &'static str)],
        conf: &str,
    ) -> Row {
        let allowed_kb = match coding {
            // nginx holds 47 MB.
            GZIP => 6 * 1024,
            // Tables of one encoder of level 6 take 7 MB, which the allocator keeps for a while between two responses.
            BROTLI if feature.starts_with("brotli 6") => 20 * 1024,
            // Two threads of the pool.
            BROTLI => 8 * 1024,
            // Tables of level 19 for 128 KB of input, in two threads of the pool.
            ZSTD => 6 * 1024,
            _ => HELD_KB,
        };
        let streams = if feature.starts_with("brotli 11") { amount(STREAMS as usize) as u32 } else { STREAMS };
        Row { fields: coding, streams, ..Row::get(feature, path, conf, allowed_kb) }
    }
}

const GZIP: &[(&str, &str)] = &[("accept-encoding", "gzip")];
const BROTLI: &[(&str, &str)] = &[("accept-encoding", "br")];
const ZSTD: &[(&str, &str)] = &[("accept-encoding", "zstd")];

/// Fields of a long head (`large_client_header_buffers`).
const LONG_FIELD: &str = match std::str::from_utf8(&[b'x'; HEAD_BYTES / 7]) {
    Ok(text) => text,
    Err(_) => "",
};
const HEAD_BYTES: usize = 28_000;
const LONG_HEAD: &[(&str, &str)] = &[
    ("x-1", LONG_FIELD),
    ("x-2", LONG_FIELD),
    ("x-3", LONG_FIELD),
    ("x-4", LONG_FIELD),
    ("x-5", LONG_FIELD),
    ("x-6", LONG_FIELD),
    ("x-7", LONG_FIELD),
];
/// Upstreams with a zone, which make pages of metrics long.
const UPSTREAMS: usize = 20;

/// All features whose bodies take memory, a compressor or a job of the thread pool.
fn rows() -> Vec<Row> {
    let coded = |at: &str, coding: &str, level: u32, more: &str| {
        format!(
            "location /{at}/ {{ alias html/; {coding} on; {coding}_comp_level {level}; {coding}_types text/plain; {more} }}"
        )
    };
    let mut all = vec![
        Row::coded("gzip 1", "/gzip1/long.txt", GZIP, &coded("gzip1", "gzip", 1, "")),
        Row::coded("gzip 9", "/gzip9/long.txt", GZIP, &coded("gzip9", "gzip", 9, "")),
        Row::coded("brotli 6", "/brotli6/long.txt", BROTLI, &coded("brotli6", "brotli", 6, "")),
        Row::coded("brotli 11", "/brotli11/slow.txt", BROTLI, &coded("brotli11", "brotli", 11, "")),
        Row::coded("zstd 1", "/zstd1/long.txt", ZSTD, &coded("zstd1", "zstd", 1, "")),
        Row::coded("zstd 19", "/zstd19/long.txt", ZSTD, &coded("zstd19", "zstd", 19, "")),
        Row::coded("brotli 11, in memory", "/brotli11/page.txt", BROTLI, ""),
        Row::coded("zstd 19, in memory", "/zstd19/page.txt", ZSTD, ""),
        Row::get(
            "mp4",
            "/mp4/tables.mp4?start=1",
            "location /mp4/ { alias html/; mp4; mp4_max_buffer_size 20m; }",
            // The table of the film for some responses; nginx holds 314 MB.
            48 << 10,
        ),
        Row::get("flv", "/flv/long.flv?start=5", "location /flv/ { alias html/; flv; }", 0),
        Row::get(
            "hls",
            "/hls/film.mp4.ts?start=0&end=900000",
            "location /hls/ { alias html/; hls; hls_buffers 8 4m; }",
            0,
        ),
        Row::get("hls playlist", "/hls/film.mp4.m3u8", "", 0),
        Row::get(
            "xslt",
            "/xslt/long.xml",
            "location /xslt/ { alias html/; xslt_stylesheet conf/sheet.xslt; types { text/xml xml; } }",
            // A document and its result; nginx holds 119 MB.
            48 << 10,
        ),
        Row::get(
            "image_filter",
            "/image/grey.png",
            "location /image/ { alias html/; image_filter rotate 90; image_filter_buffer 20m; types { image/png png; } }",
            // Three megabytes of pixels for each thread of the pool; nginx, which computes with one, holds 3.6 MB.
            12 << 10,
        ),
        Row::get("autoindex", "/list/folder/", "location /list/ { alias html/; autoindex on; }", 6 << 10),
        Row::get(
            "autoindex json",
            "/json/folder/",
            "location /json/ { alias html/; autoindex on; autoindex_format json; }",
            6 << 10,
        ),
        // nginx holds 11 GB.
        Row::get(
            "ssi",
            "/ssi/page.shtml",
            "location /ssi/ { alias html/; ssi on; types { text/html shtml; } }",
            10 << 10,
        ),
        Row::get(
            "sub_filter",
            "/sub/long.txt",
            "location /sub/ { alias html/; sub_filter a bbbbbbbb; sub_filter_once off; sub_filter_types *; }",
            // nginx holds 64 MB, and 71 for the next row.
            6 << 10,
        ),
        // nginx holds 17 MB.
        Row::get(
            "charset",
            "/charset/long.txt",
            "location /charset/ { alias html/; charset utf-8; source_charset koi8-r; override_charset on; charset_types *; }",
            6 << 10,
        ),
        Row::get(
            "addition",
            "/addition/long.txt",
            "location /addition/ { alias html/; add_before_body /sub/long.txt; add_after_body /sub/long.txt; addition_types *; }",
            6 << 10,
        ),
        Row {
            fields: LONG_HEAD,
            // The heads themselves, which nginx holds as well, and those of includes. (Over HTTP/3, the client's congestion window takes few of them.)
            ..Row::get("ssi, long heads", "/ssi/page.shtml", "", 5 * HEAD_BYTES as u64 * u64::from(STREAMS) / 1024)
        },
        Row::get("metrics", "/metrics", "location = /metrics { metrics; }", 4 << 10),
        // Pages of half a megabyte.
        Row::get("metrics, other names", "/metrics?format=all", "", 10 << 10),
        Row::get("status of zones", "/vts", "location = /vts { vhost_traffic_status_display; }", 0),
        Row::get("API", "/api/9/http/upstreams", "location /api { api; }", 4 << 10),
        Row::get("dashboard", "/dashboard/", "location /dashboard/ { dashboard; }", 0),
        Row {
            fields: &[("depth", "1")],
            method: "PROPFIND",
            ..Row::get(
                "PROPFIND",
                "/dav/folder/",
                "location /dav/ { alias html/; dav_ext_methods PROPFIND OPTIONS; }",
                // Over HTTP/3, each response has its first piece.
                6 << 10,
            )
        },
    ];
    // Files behind the compressors' decoder.
    all.push(Row::get(
        "gunzip",
        "/gunzip/long.txt",
        "location /gunzip/ { alias html/gz/; gunzip on; gzip_static always; }",
        // Over HTTP/3 all begin, with a state of 50 KB each; nginx holds 24 MB.
        8 << 10,
    ));
    all
}

/// Text of words that repeat seldom.
fn prose(length: usize) -> String {
    let mut random = testkit::Random::new(0x9e37_79b9);
    let mut out = String::with_capacity(length + 16);
    while out.len() < length {
        out.push_str(&format!("{:x} ", random.below(40_000)));
    }
    out
}

fn boxed(out: &mut Vec<u8>, name: &[u8; 4], fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name);
    fill(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn numbers(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    numbers.into_iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
}

/// A film of pictures (H.264) of ten a second, each a chunk of its own; every tenth is a key frame.
fn film(pictures: u32, size: u32) -> Vec<u8> {
    let mut out = Vec::new();
    boxed(&mut out, b"ftyp", |out| out.extend_from_slice(b"isom"));
    let data_at = out.len() as u32 + 8;
    boxed(&mut out, b"mdat", |out| {
        for index in 0..pictures {
            let kind = if index % 10 == 0 { 0x65 } else { 0x41 };
            numbers(out, [size - 4]);
            out.push(kind);
            out.resize(out.len() + size as usize - 5, index as u8 | 1);
        }
    });
    let duration = pictures * 100;
    boxed(&mut out, b"moov", |out| {
        boxed(out, b"mvhd", |out| {
            numbers(out, [0, 0, 0, 1000, duration]);
            out.extend_from_slice(&[0; 80]);
        });
        boxed(out, b"trak", |out| {
            boxed(out, b"tkhd", |out| {
                numbers(out, [0, 0, 0, 1, 0, duration]);
                out.extend_from_slice(&[0; 60]);
            });
            boxed(out, b"mdia", |out| {
                boxed(out, b"mdhd", |out| numbers(out, [0, 0, 0, 1000, duration, 0]));
                boxed(out, b"minf", |out| {
                    boxed(out, b"stbl", |out| {
                        boxed(out, b"stsd", |out| {
                            numbers(out, [0, 1]);
                            boxed(out, b"avc1", |out| {
                                out.extend_from_slice(&[0; 78]);
                                boxed(out, b"avcC", |out| {
                                    out.extend_from_slice(&[1, 66, 0, 10, 0xff, 0xe1, 0, 2, 0x67, 7, 1, 0, 2, 0x68, 8]);
                                });
                            });
                        });
                        boxed(out, b"stts", |out| numbers(out, [0, 1, pictures, 100]));
                        boxed(out, b"stss", |out| {
                            numbers(out, [0, pictures / 10].into_iter().chain((0..pictures / 10).map(|n| 1 + 10 * n)))
                        });
                        boxed(out, b"stsc", |out| numbers(out, [0, 1, 1, 1, 1]));
                        boxed(out, b"stsz", |out| {
                            numbers(out, [0, 0, pictures].into_iter().chain((0..pictures).map(|_| size)))
                        });
                        boxed(out, b"stco", |out| {
                            numbers(out, [0, pictures].into_iter().chain((0..pictures).map(|n| data_at + n * size)));
                        });
                    });
                });
            });
        });
    });
    out
}

/// Files that the features read.
fn fill(site: &Site) {
    std::fs::create_dir_all(site.path("html/folder")).expect("a folder");
    std::fs::create_dir_all(site.path("html/gz")).expect("a folder");
    let scale = |full: usize| amount(full * 4).min(full);
    let binary = |name: &str, bytes: &[u8]| std::fs::write(site.path(&format!("html/{name}")), bytes).expect("a file");
    let long = prose(scale(8 << 20));
    site.write("html/long.txt", &long);
    site.write("html/slow.txt", &prose(amount(8 << 20)));
    site.write("html/page.txt", &prose(60_000));
    binary("long.flv", long.as_bytes());
    binary("tables.mp4", &film(scale(600_000) as u32, 8));
    binary("film.mp4", &film(scale(2000) as u32, 8000));
    binary("grey.png", &grey_png(500));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&vec![b'a'; scale(64 << 20)]).expect("packed");
    binary("gz/long.txt.gz", &packed.finish().expect("packed"));
    let items: String = (0..scale(16_000)).map(|n| format!("<item id=\"{n}\">{}</item>", "text ".repeat(8))).collect();
    site.write("html/long.xml", &format!("<?xml version=\"1.0\"?><list>{items}</list>"));
    site.write(
        "conf/sheet.xslt",
        "<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\"><xsl:template match=\"/\"><out>
         <xsl:for-each select=\"list/item\"><p><xsl:value-of select=\"@id\"/>: <xsl:value-of select=\".\"/></p></xsl:for-each></out></xsl:template></xsl:stylesheet>",
    );
    let includes = "<!--#include virtual=\"/sub/long.txt\" -->".repeat(200);
    site.write("html/page.shtml", &format!("<html>{includes}</html>"));
    for n in 0..scale(6000) {
        site.write(&format!("html/folder/a-file-with-a-name-of-some-length-{n:05}.txt"), "");
    }
}

fn site(rows: &[Row], port: u16, quic: u16) -> Site {
    let site = Site::new("", "");
    site.certify();
    fill(&site);
    let locations: String = rows.iter().map(|row| row.conf.clone() + "\n").collect();
    let upstreams: String = (0..UPSTREAMS)
        .map(|n| {
            format!("upstream u{n} {{ zone u{n} 64k; server 127.0.0.1:1; server 127.0.0.2:1; server 127.0.0.3:1; }}\n")
        })
        .collect();
    let html = site.path("html");
    let locations = locations.replace("alias html/", &format!("alias {}/", html.display()));
    site.write(
        "conf/nginx.conf",
        &format!(
            "error_log logs/error.log crit; daemon off; worker_processes 1; events {{ worker_connections 4096; }}
             http {{ access_log off; vhost_traffic_status_zone; {upstreams} charset_map koi8-r utf-8 {{ 80 D0B0; }} ssl_certificate a.crt; ssl_certificate_key a.key; types {{ text/plain txt; video/x-flv flv; video/mp4 mp4; }}
             server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{quic} quic; http2 on; location /answer {{ return 200 here; }}
             {locations} }} }}"
        ),
    );
    site
}

/// Waits until the worker computes no more.
fn settle(worker: u32) {
    let (mut last, mut since) = (cpu_millis(worker), Instant::now());
    // A hundred brotli encoders of a debug build.
    wait_within(Duration::from_secs(120), "the worker to compute no more", || {
        let now = cpu_millis(worker);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() >= QUIET).then_some(()).ok_or(now)
    });
}

/// Asks for a row's response on all streams, and reads nothing. `window` of each stream: all that the client promises to take.
fn unread_http2(port: u16, row: &Row, window: u32) -> TcpStream {
    let mut client = http2::Client::connect(port);
    let mut all = frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
    all.extend_from_slice(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    for n in 0..row.streams {
        let mut block = Vec::new();
        client.encoder.begin(&mut block);
        let usual = [(":method", row.method), (":scheme", "http"), (":path", row.path), (":authority", "a")];
        for (name, value) in usual.iter().chain(row.fields) {
            client.encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        all.extend_from_slice(&frame(HEADERS, 5, 2 * n + 1, &block));
    }
    client.send(&all);
    client.stream
}

/// Requests of a row over QUIC, whose client acknowledges nothing after them.
fn unread_http3(port: u16, row: &Row) -> http3::Client {
    let mut client = http3::Client::connect(port, "localhost", &http3::config());
    client.until("the handshake", |client| client.connected.is_some());
    for _ in 0..row.streams {
        let usual = [(":method", row.method), (":scheme", "https"), (":path", row.path), (":authority", "a")];
        let fields: Vec<_> = usual.iter().chain(row.fields).copied().collect();
        client.ask(&fields, None);
    }
    client.send_alone();
    client
}

/// Kilobytes held for a row's unread responses, and the CPU time after the client has left.
fn cost<C>(running: &Running<'_>, port: u16, attack: impl FnOnce() -> C, leave: impl FnOnce(C)) -> (u64, u64, u64) {
    let worker = running.worker();
    answers(port);
    settle(worker);
    let (memory, cpu) = (PrivateMemory::begin(worker), cpu_millis(worker));
    let client = attack();
    settle(worker);
    let held = memory.growth_kb();
    let meanwhile = cpu_millis(worker);
    leave(client);
    settle(worker);
    answers(port);
    (held, meanwhile - cpu, cpu_millis(worker) - meanwhile)
}

#[test]
fn unread_responses_hold_little_and_end_with_their_client() {
    unread_rows("HTTP/2", 0, |row, running, port, _| {
        cost(running, port, || unread_http2(port, row, i32::MAX as u32), drop)
    });
}

#[test]
fn responses_with_a_window_of_one_octet_hold_little_and_end_with_their_client() {
    // More than without a window: each response has begun.
    unread_rows("HTTP/2, a window of one octet", 0, |row, running, port, _| {
        cost(running, port, || unread_http2(port, row, 1), drop)
    });
}

#[test]
fn unread_responses_over_http3_hold_little_and_end_with_their_client() {
    unread_rows("HTTP/3", QUIC_KB, |row, running, port, quic| {
        cost(running, port, || unread_http3(quic, row), |mut client| client.close())
    });
}

/// Measures all rows by one protocol, which takes so many kilobytes itself. `measure` gets the server with its ports of TCP and UDP.
fn unread_rows(protocol: &str, protocol_kb: u64, measure: impl Fn(&Row, &Running<'_>, u16, u16) -> (u64, u64, u64)) {
    let wanted = std::env::var("TIDEGATE_ROW").unwrap_or_default();
    let rows = rows();
    let (port, quic) = (free_port(), free_port());
    let site = site(&rows, port, quic);
    let mut failed = Vec::new();
    for row in rows.iter().filter(|row| row.feature.contains(&wanted)) {
        let running = site.start();
        let (held, cpu, after) = measure(row, &running, port, quic);
        let allowed = row.allowed_kb.max(HELD_KB) + WARM_KB + protocol_kb;
        let allowed_cpu = LEFT_MILLIS * SLOWNESS;
        let name = format!("{protocol}, clients: {} unread responses, {}", row.streams, row.feature);
        println!("| {name} | {cpu} | {held} | {allowed} | {after} | {allowed_cpu} |");
        if held > allowed || after > allowed_cpu {
            failed.push(format!("{name}: {held} KB of {allowed}, {after} ms of {allowed_cpu} after its client"));
        }
        running.quit_now();
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// A transformation of some seconds (`xslt::STEPS_MAX`), whose client leaves after a tenth of one.
#[test]
fn a_transformation_ends_with_its_client() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let port = free_port();
    let site = Site::new("", "");
    site.write("html/long.xml", &format!("<list>{}</list>", "<b/>".repeat(4000)));
    site.write(
        "conf/sheet.xslt",
        "<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\"><xsl:template match=\"/\">
         <out><xsl:value-of select=\"count(//b[count(//b[count(//b) &gt; 1]) &gt; 1])\"/></out></xsl:template></xsl:stylesheet>",
    );
    site.write(
        "conf/nginx.conf",
        &format!(
            "error_log logs/error.log crit; daemon off; worker_processes 1; events {{ worker_connections 64; }}
             http {{ access_log off; server {{ listen 127.0.0.1:{port}; location /answer {{ return 200 here; }}
             location / {{ xslt_stylesheet conf/sheet.xslt; types {{ text/xml xml; }} }} }} }}"
        ),
    );
    let running = site.start();
    let worker = running.worker();
    answers(port);
    let begun = cpu_millis(worker);
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    client.write_all(b"GET /long.xml HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    support::wait("the transformation", || (cpu_millis(worker) >= begun + 100).then_some(()).ok_or("no work"));
    let meanwhile = cpu_millis(worker);
    drop(client);
    settle(worker);
    answers(port);
    let after = cpu_millis(worker) - meanwhile;
    assert!(after <= LEFT_MILLIS * SLOWNESS, "{after} ms after its client");
}

/// A client that does not read its page for longer than the others of its connection wait.
#[test]
fn a_response_without_memory_gets_503_after_send_timeout() {
    let port = free_port();
    let site = Site::new(
        "daemon off; error_log logs/error.log error;",
        &format!(
            "http {{ generated_body_memory 1k; server {{ listen 127.0.0.1:{port}; http2 on; autoindex on; send_timeout 60s;
             location /short/ {{ alias html/; send_timeout 1s; }} location /answer {{ return 200 here; }} }} }}"
        ),
    );
    let running = site.start();
    let mut client = http2::Client::connect(port);
    client.send(&frame(SETTINGS, 0, 0, &[&[0, 4][..], &0_u32.to_be_bytes()].concat()));
    client.ask(1, "/");
    let limits = http_types::ListLimits { bytes_max: 65_536, fields_max: 100, field_max: 65_536 };
    let head = |client: &mut http2::Client| loop {
        let (kind, _, stream, payload) = client.next().expect("a frame");
        if kind == HEADERS {
            let list = client.decoder.decode(&payload, &limits).expect("a block");
            let status = list.iter().find(|(name, _)| *name == b":status").map(|(_, value)| support::text(value));
            break (stream, status.unwrap_or_default());
        }
    };
    assert_eq!(head(&mut client), (1, "200".into()), "the page is made, and its body waits for the window");
    client.ask(3, "/short/");
    assert_eq!(head(&mut client), (3, "503".into()));
    site.wait_for_log("no memory for a body", 1);
    // The page is read: there is memory again.
    client.send(&frame(WINDOW_UPDATE, 0, 1, &0xffff_u32.to_be_bytes()));
    client.send(&frame(SETTINGS, 0, 0, &[&[0, 4][..], &0xffff_u32.to_be_bytes()].concat()));
    client.ask(5, "/short/");
    assert_eq!(client.answer(5).0, "200");
    running.quit_now();
}
