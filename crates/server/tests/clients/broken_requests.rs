//! Log messages about malformed requests, byte for byte as in nginx 1.31: banning tools read them.

use crate::support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use support::{Site, free_port, wait};

/// The request (`@` stands for 9,000 letters), its line in the access log, and what the error log says, if anything.
#[rustfmt::skip]
const CASES: &[(&str, &str, &str)] = &[
    ("GET /%zz HTTP/1.1\r\nHost: two\r\nUser-Agent: ua\r\n\r\n", "400|GET /%zz HTTP/1.1|-||HTTP/1.1|19|GET|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET /%zz HTTP/1.1\""),
    ("GET /../x HTTP/1.1\r\nHost: two\r\n\r\n", "400|GET /../x HTTP/1.1|-||HTTP/1.1|20|GET|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET /../x HTTP/1.1\""),
    ("GET x HTTP/1.1\r\nHost: two\r\n\r\n", "400|GET x HTTP/1.1|-|-|-|0|-|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET x HTTP/1.1\""),
    ("FOO\r\n\r\n", "400|FOO|-|-|-|0|-|localhost|-", "client sent invalid method while reading client request line, client: 127.0.0.1, server: localhost, request: \"FOO\""),
    ("foo / HTTP/1.1\r\n\r\n", "400|foo / HTTP/1.1|-|-|-|0|-|localhost|-", "client sent invalid method while reading client request line, client: 127.0.0.1, server: localhost, request: \"foo / HTTP/1.1\""),
    ("GET / HTTP/1.1\r\nUser-Agent: ua\r\n\r\n", "400|GET / HTTP/1.1|/|/|HTTP/1.1|34|GET|localhost|ua", "client sent HTTP/1.1 request without \"Host\" header while reading client request headers, client: 127.0.0.1, server: localhost, request: \"GET / HTTP/1.1\""),
    ("GET / HTTP/1.1\r\nHost: two\r\nHost: two\r\nUser-Agent: ua\r\n\r\n", "400|GET / HTTP/1.1|/|/|HTTP/1.1|38|GET|two|-", "client sent duplicate host header: \"Host: two\", previous value: \"Host: two\" while reading client request headers, client: 127.0.0.1, server: two, request: \"GET / HTTP/1.1\", host: \"two\""),
    ("GET / HTTP/1.1\r\nUser-Agent: ua\r\nHost: a b\r\nX: y\r\n\r\n", "400|GET / HTTP/1.1|/|/|HTTP/1.1|43|GET|localhost|ua", "client sent invalid host header while reading client request headers, client: 127.0.0.1, server: localhost, request: \"GET / HTTP/1.1\", host: \"a b\""),
    ("GET / HTTP/1.1\r\nHost: a b\r\nUser-Agent: ua\r\n\r\n", "400|GET / HTTP/1.1|/|/|HTTP/1.1|27|GET|localhost|-", "client sent invalid host header while reading client request headers, client: 127.0.0.1, server: localhost, request: \"GET / HTTP/1.1\", host: \"a b\""),
    ("GET / HTTP/2.0\r\nHost: two\r\n\r\n", "505|GET / HTTP/2.0|-|-||0|-|localhost|-", "client sent invalid version while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET / HTTP/2.0\""),
    ("GET / HTTX/1.1\r\nHost: two\r\n\r\n", "400|GET / HTTX/1.1|-|-||0|-|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET / HTTX/1.1\""),
    ("GET / HTTP/1.1x\r\nHost: two\r\n\r\n", "400|GET / HTTP/1.1x|-|-||0|-|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET / HTTP/1.1x\""),
    ("GET / x HTTP/1.1\r\nHost: two\r\n\r\n", "400|GET / x HTTP/1.1|-|-|-|0|-|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET / x HTTP/1.1\""),
    ("GET /%zz\r\n", "400|GET /%zz|-||-|10|GET|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET /%zz\""),
    ("GET /nope\r\n", "404|GET /nope|/nope|/nope|-|11|GET|localhost|-", ""),
    ("POST /\r\n", "400|POST /|-|-|-|0|-|localhost|-", "client sent invalid method in HTTP/0.9 request while reading client request line, client: 127.0.0.1, server: localhost, request: \"POST /\""),
    ("GET http:/x HTTP/1.1\r\nHost: two\r\n\r\n", "400|GET http:/x HTTP/1.1|-|-|-|0|-|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET http:/x HTTP/1.1\""),
    ("GET http://a..b/x HTTP/1.1\r\nHost: two\r\n\r\n", "400|GET http://a..b/x HTTP/1.1|/x|/x|HTTP/1.1|28|GET|localhost|-", "client sent invalid host in request line while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET http://a..b/x HTTP/1.1\""),
    ("OPTIONS * HTTP/1.1\r\nHost: two\r\n\r\n", "400|OPTIONS * HTTP/1.1|-|-|-|0|-|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"OPTIONS * HTTP/1.1\""),
    ("TRACE /t HTTP/1.1\r\nHost: two\r\n\r\n", "405|TRACE /t HTTP/1.1|/t|/t|HTTP/1.1|32|TRACE|two|-", "client sent TRACE method while reading client request headers, client: 127.0.0.1, server: two, request: \"TRACE /t HTTP/1.1\", host: \"two\""),
    ("GET / HTTP/1.1\r\nHost: two\r\nX Y: z\r\nUser-Agent: ua\r\n\r\n", "400|GET / HTTP/1.1|/|/|HTTP/1.1|27|GET|two|-", "client sent invalid header line: \"X\\x20...\" while reading client request headers, client: 127.0.0.1, server: two, request: \"GET / HTTP/1.1\", host: \"two\""),
    ("GET / HTTP/1.1\r\nHost: two\r\nContent-Length: x\r\nUser-Agent: ua\r\n\r\n", "400|GET / HTTP/1.1|/|/|HTTP/1.1|64|GET|two|ua", "client sent invalid \"Content-Length\" header while reading client request headers, client: 127.0.0.1, server: two, request: \"GET / HTTP/1.1\", host: \"two\""),
    ("POST / HTTP/1.1\r\nHost: two\r\nTransfer-Encoding: x\r\n\r\n", "501|POST / HTTP/1.1|/|/|HTTP/1.1|52|POST|two|-", "client sent unknown \"Transfer-Encoding\": \"x\" while reading client request headers, client: 127.0.0.1, server: two, request: \"POST / HTTP/1.1\", host: \"two\""),
    ("\r\nGET /nope HTTP/1.1\r\nHost: two\r\nConnection: close\r\n\r\n", "404|GET /nope HTTP/1.1|/nope|/nope|HTTP/1.1|52|GET|two|-", ""),
    ("GET / HTTP/1.1\rHost: two\r\n\r\n", "400|GET / HTTP/1.1|-|-||0|-|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET / HTTP/1.1\""),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400|PRI * HTTP/2.0|-|-|-|0|-|localhost|-", "client sent invalid request while reading client request line, client: 127.0.0.1, server: localhost, request: \"PRI * HTTP/2.0\""),
    ("GET /part", "400|GET /part|-|-|-|0|-|localhost|-", "client prematurely closed connection while reading client request line, client: 127.0.0.1, server: localhost, request: \"GET /part\""),
    ("GET / HTTP/1.1\r\nHost: two\r\nUser-Agent: ua\r\nX: hal", "400|GET / HTTP/1.1|/|/|HTTP/1.1|43|GET|two|ua", "client prematurely closed connection while reading client request headers, client: 127.0.0.1, server: two, request: \"GET / HTTP/1.1\", host: \"two\""),
    ("GET / HTTP/1.1\r\nHost: two\r\nX: @\r\n\r\n", "400|GET / HTTP/1.1|/|/|HTTP/1.1|27|GET|two|-", "client sent too long header line: \"X: aaa"),
];

const FORMAT: &str =
    "$status|$request|$request_uri|$uri|$server_protocol|$request_length|$request_method|$server_name|$http_user_agent";

#[test]
fn logs_of_broken_requests() {
    let port = free_port();
    let http = format!(
        "http {{ log_format z '{FORMAT}'; access_log logs/z.log z; error_log logs/http.log info;
            server {{ listen 127.0.0.1:{port}; server_name localhost; }}
            server {{ listen 127.0.0.1:{port}; server_name two; }} }}"
    );
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    for (index, (request, access, error)) in CASES.iter().enumerate() {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.write_all(request.replace('@', &"a".repeat(9000)).as_bytes()).expect("sent");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        let line = wait(request, || site.read("logs/z.log").lines().nth(index).map(str::to_string).ok_or("no line"));
        assert_eq!(line, *access, "{request:?}");
        let said = site.read("logs/http.log");
        let said: Vec<&str> = said.lines().filter(|line| line.contains("[info]")).collect();
        if !error.is_empty() {
            let last = said.last().copied().unwrap_or_default();
            assert!(last.contains(&format!(" {error}")), "{request:?}:\n{last}\nlacks\n{error}");
        }
    }
    running.quit();
}

/// Ignored fields are logged in front of the fault of a later field, but not behind an invalid request line, as in nginx.
#[test]
fn logs_of_invalid_fields_in_refused_heads() {
    let port = free_port();
    let http = format!("http {{ error_log logs/http.log info; server {{ listen 127.0.0.1:{port}; }} }}");
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    for request in [
        "GET /%zz HTTP/1.1\r\nHost: a\r\nin_line: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nbefore_it: 1\r\nX Y: z\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut came = String::new();
        stream.read_to_string(&mut came).expect("an end");
        assert!(came.starts_with("HTTP/1.1 400 "), "{came}");
    }
    running.quit();
    let said = site.read("logs/http.log");
    let said: Vec<&str> = said.lines().filter_map(|line| Some(line.split_once(" client sent ")?.1)).collect();
    let starts = [
        "invalid request while reading client request line, ",
        "invalid header line: \"before_it: 1\" while reading client request headers, ",
        "invalid header line: \"X\\x20...\" while reading client request headers, ",
    ];
    assert_eq!(said.len(), starts.len(), "{said:#?}");
    assert!(said.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{said:#?}");
}

/// Responses to HTTP/0.9 have no head, so that a refused HEAD gets the page (nginx: `ngx_http_header_filter`).
#[test]
fn a_refused_head_request_of_http_0_9_gets_a_page() {
    let port = free_port();
    let site = Site::new("daemon off;", &format!("http {{ server {{ listen 127.0.0.1:{port}; }} }}"));
    let running = site.start();
    for (request, starts, has_page) in
        [("HEAD /x\r\n", "<html>", true), ("HEAD * HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400 ", false)]
    {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut came = String::new();
        stream.read_to_string(&mut came).expect("an end");
        assert!(came.starts_with(starts) && came.contains("<title>400") == has_page, "{request:?}: {came}");
    }
    running.quit();
}

/// nginx: `ngx_http_set_keepalive`.
#[test]
fn a_broken_line_behind_another_request_is_logged_as_pipelined() {
    let port = free_port();
    let http = format!("http {{ error_log logs/http.log info; server {{ listen 127.0.0.1:{port}; }} }}");
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    let good = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for bad in ["GET /%zz HTTP/1.1\r\n\r\n", "GET / HTTQ\r\n\r\n"] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.write_all(format!("{good}{bad}").as_bytes()).expect("sent");
        let mut came = String::new();
        stream.read_to_string(&mut came).expect("an end");
        assert!(came.contains("HTTP/1.1 400 "), "{came}");
    }
    // A line that never ends.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.write_all(format!("{good}GET /").as_bytes()).expect("sent");
    stream.shutdown(Shutdown::Write).expect("shut down");
    stream.read_to_end(&mut Vec::new()).expect("an end");
    running.quit();
    let said = site.read("logs/http.log");
    assert_eq!(said.matches("request while reading client pipelined request line, ").count(), 2, "{said}");
    assert!(said.contains("closed connection while reading client pipelined request line, "), "{said}");
}
