//! Malformed requests of all known kinds: response, access log line and error log line of each.

use crate::server::{Binary, ServerRun};
use crate::{Plan, normal, pool, site};

/// `@N` stands for N letters.
const REQUESTS: &[&str] = &[
    "GET /%zz HTTP/1.1\r\nHost: two\r\nUser-Agent: ua\r\n\r\n",
    "GET /../x HTTP/1.1\r\nHost: two\r\n\r\n",
    "GET /a/%2e%2e/%2e%2e/ HTTP/1.1\r\nHost: two\r\n\r\n",
    "GET /%00 HTTP/1.1\r\nHost: two\r\n\r\n",
    "HEAD /%zz HTTP/1.1\r\nHost: two\r\n\r\n",
    "GET x HTTP/1.1\r\nHost: two\r\n\r\n",
    "FOO\r\n\r\n",
    "foo / HTTP/1.1\r\n\r\n",
    "GE T / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nUser-Agent: ua\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: two\r\nHost: two\r\nUser-Agent: ua\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a b\r\nUser-Agent: ua\r\n\r\n",
    "GET / HTTP/1.1\r\nUser-Agent: ua\r\nHost: a b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: \r\n\r\n",
    "GET / HTTP/1.0\r\nHost: two:99999\r\n\r\n",
    "GET / HTTP/2.0\r\nHost: two\r\n\r\n",
    "GET / HTTP/1.10\r\nHost: two\r\nConnection: close\r\n\r\n",
    "GET / HTTP/0.9\r\nHost: two\r\n\r\n",
    "GET / HTTX/1.1\r\nHost: two\r\n\r\n",
    "GET / HTTP/1.1x\r\nHost: two\r\n\r\n",
    "GET / x HTTP/1.1\r\nHost: two\r\n\r\n",
    "GET / HTTP/1.1\rHost: two\r\n\r\n",
    "GET /\r\n",
    "GET /none\r\n",
    "GET /%zz\r\n",
    "POST /\r\n",
    "GET http://two/x HTTP/1.1\r\n\r\n",
    "GET http://two/x HTTP/1.1\r\nHost: one\r\nConnection: close\r\n\r\n",
    "GET http://two/x HTTP/1.1\r\nHost: a b\r\n\r\n",
    "GET http:/x HTTP/1.1\r\nHost: two\r\n\r\n",
    "GET http://a..b/x HTTP/1.1\r\nHost: two\r\n\r\n",
    "GET http://tw%20o/ HTTP/1.1\r\nHost: two\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: two\r\n\r\n",
    "CONNECT two:80 HTTP/1.1\r\nHost: two\r\n\r\n",
    "TRACE /t HTTP/1.1\r\nHost: two\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: two\r\nX Y: z\r\nUser-Agent: ua\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: two\r\n X: z\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: two\r\nX\r\nConnection: close\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: two\r\nContent-Length: x\r\nUser-Agent: ua\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: two\r\nContent-Length: -1\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: two\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: two\r\nTransfer-Encoding: x\r\n\r\n",
    "POST / HTTP/1.0\r\nHost: two\r\nTransfer-Encoding: chunked\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: two\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
    "POST /limited HTTP/1.1\r\nHost: two\r\nContent-Length: 3\r\n\r\nabc",
    "\r\nGET /none HTTP/1.1\r\nHost: two\r\nConnection: close\r\n\r\n",
    "GET /@9000 HTTP/1.1\r\nHost: two\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: two\r\nX: @9000\r\n\r\n",
    "GET /part",
    "GET / HTTP/1.1\r\nHost: two\r\nUser-Agent: ua\r\nX: hal",
    "GET /denied HTTP/1.1\r\nHost: two\r\nConnection: close\r\n\r\n",
    "GET /locked HTTP/1.1\r\nHost: two\r\nConnection: close\r\n\r\n",
    "GET /locked HTTP/1.1\r\nHost: two\r\nAuthorization: Basic am9lOndyb25n\r\nConnection: close\r\n\r\n",
    "GET /locked HTTP/1.1\r\nHost: two\r\nAuthorization: Basic bm9ib2R5OnA=\r\nConnection: close\r\n\r\n",
    "GET /folder/ HTTP/1.1\r\nHost: two\r\nConnection: close\r\n\r\n",
    "GET /loop HTTP/1.1\r\nHost: two\r\nConnection: close\r\n\r\n",
    "PUT /index.html HTTP/1.1\r\nHost: two\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
];

/// Requests that versions before [`pool::WHOLE`] answer differently: invalid ports, and an unknown method.
const OTHERWISE: &[&str] =
    &["GET / HTTP/1.0\r\nHost: two:99999\r\n\r\n", "CONNECT two:80 HTTP/1.1\r\nHost: two\r\n\r\n"];

/// Returns the number of answers, and the differences.
pub fn compare_broken(plan: &Plan) -> Result<(usize, Vec<String>), String> {
    let whole = plan.nginx.version >= pool::WHOLE;
    let texts: Vec<&str> = REQUESTS.iter().copied().filter(|text| whole || !OTHERWISE.contains(text)).collect();
    let requests: Vec<Vec<u8>> = texts.iter().map(|text| filled(text)).collect();
    let run = |binary: &Binary| {
        // One at a time, to attribute a difference to its request.
        let each = |bytes: &Vec<u8>| {
            ServerRun::of_bytes(
                binary,
                &|dirs, port| conf(binary, &dirs.folder.display().to_string(), port),
                std::slice::from_ref(bytes),
                true,
                None,
            )
        };
        requests.iter().map(each).collect::<Result<Vec<ServerRun>, String>>()
    };
    let (theirs, ours) = (run(&plan.nginx)?, run(&plan.ours)?);
    let mut wrong = Vec::new();
    for (text, (theirs, ours)) in texts.iter().zip(theirs.iter().zip(&ours)) {
        let answers =
            |run: &ServerRun| run.answers.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect::<Vec<_>>();
        let difference = normal::line_difference("answer", &answers(theirs), &answers(ours))
            .or_else(|| normal::line_difference("access log", &theirs.access, &ours.access))
            .or_else(|| normal::line_difference("error log", &theirs.errors, &ours.errors));
        if let Some(words) = difference {
            wrong.push(format!("{text:?}\n{words}"));
        }
    }
    Ok((requests.len(), wrong))
}

fn filled(text: &str) -> Vec<u8> {
    match text.split_once("@9000") {
        Some((before, after)) => format!("{before}{}{after}", "a".repeat(9000)).into(),
        None => text.into(),
    }
}

fn conf(binary: &Binary, folder: &str, port: u16) -> String {
    let own = if binary.nginx { "" } else { "server_identity nginx;" };
    let text = format!(
        "{head}
http {{
    {own}
    root @dir/html;
    log_format compare '$status|$request|$request_uri|$uri|$args|$server_protocol|$request_length|$request_method|$server_name|\
         $host|$http_host|$http_user_agent|$body_bytes_sent|$remote_user|$content_length|$request_filename';
    access_log @dir/access.log compare;
    server {{ listen 127.0.0.1:@port; server_name localhost; error_page 414 /414; location = /414 {{ return 414 long; }} }}
    server {{
        listen 127.0.0.1:@port;
        server_name two;
        error_page 400 /400;
        location = /400 {{ return 400 two; }}
        location /limited {{ client_max_body_size 2; }}
        location /denied {{ deny all; }}
        location /locked {{ auth_basic realm; auth_basic_user_file @dir/users; }}
        location /folder/ {{ alias @dir/html/a/; }}
        location /loop {{ rewrite ^ /loop last; }}
    }}
}}
",
        head = site::main_lines()
    );
    text.replace("@dir", folder).replace("@port", &port.to_string())
}
