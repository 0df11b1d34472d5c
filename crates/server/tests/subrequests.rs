//! Subrequests as the logs and the connection see them.

mod support;

use support::client::Client;
use support::{Site, free_port, wait};

fn site(port: u16, locations: &str) -> Site {
    let http = format!(
        "http {{
            log_format facts '$uri $status $request_method $body_bytes_sent $request_completion|';
            access_log logs/access.log facts;
            client_body_temp_path body; proxy_temp_path proxy;
            default_type text/html;
            server {{ listen 127.0.0.1:{port}; {locations} }}
        }}"
    );
    Site::new("daemon off;", &http)
}

fn lines(site: &Site) -> Vec<String> {
    site.read("logs/access.log").lines().map(str::to_string).collect()
}

#[test]
fn a_subrequest_is_logged_where_that_is_wanted() {
    let port = free_port();
    let site = site(
        port,
        "location / { ssi on; return 200 '<!--#include virtual=\"/quiet\" --><!--#include virtual=\"/told\" -->'; }
         location /quiet { return 200 quiet; }
         location /told { log_subrequest on; return 200 told; }",
    );
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(client.get().expect("answered"), (200, "quiettold".into()));
    wait("the lines", || if lines(&site).len() >= 2 { Ok(()) } else { Err(site.log()) });
    assert_eq!(lines(&site), ["/told 200 GET 4 -|", "/ 200 GET 24 OK|"]);
    running.quit();
}

#[test]
fn the_action_after_a_response_comes_before_its_line_and_the_next_request() {
    let port = free_port();
    let site = site(
        port,
        "location / { return 200 answer; post_action /after; }
         location /named { return 200 answer; post_action @after; }
         location /after { log_subrequest on; proxy_pass http://127.0.0.1:PORT/told?$request_completion; }
         location @after { return 200 unseen; }
         location /told { access_log logs/told.log facts; return 200 'for nobody'; }"
            .replace("PORT", &port.to_string())
            .as_str(),
    );
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    for path in ["/", "/named", "/"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.ask(&request).expect("answered"), (200, "answer".into()));
    }
    wait("the lines", || if lines(&site).len() >= 3 { Ok(()) } else { Err(site.log()) });
    assert_eq!(lines(&site), ["/after 200 GET 6 OK|", "/named 200 GET 6 OK|", "/after 200 GET 6 OK|"]);
    assert_eq!(site.read("logs/told.log").lines().count(), 2);
    running.quit();
}

#[test]
fn a_mirror_gets_the_body_and_the_next_request_waits_for_it() {
    let port = free_port();
    let site = site(
        port,
        "location / { mirror /copy; proxy_pass http://127.0.0.1:PORT/answer; }
         location /bare { mirror /copy; mirror_request_body off; error_page 404 =200 /answer; }
         location /copy { internal; log_subrequest on; access_log logs/copy.log facts;
             proxy_pass http://127.0.0.1:PORT/received; }
         location /answer { access_log off; return 200 answer; }
         location /received { access_log logs/received.log body; proxy_pass http://127.0.0.1:PORT/end; }
         location /end { access_log off; return 200; }"
            .replace("PORT", &port.to_string())
            .as_str(),
    );
    let conf = site.read("conf/nginx.conf");
    site.write(
        "conf/nginx.conf",
        &conf.replace(
            "default_type",
            "log_format body '$request_method $http_content_length $request_body|';\n default_type",
        ),
    );
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.ask(&post("/")).expect("answered"), (200, "answer".into()));
    assert_eq!(client.ask(&post("/bare")).expect("answered"), (200, "answer".into()));
    wait("the lines", || if site.read("logs/received.log").lines().count() >= 2 { Ok(()) } else { Err(site.log()) });
    wait("the main line", || if lines(&site).len() == 1 { Ok(()) } else { Err(site.log()) });
    wait("the copies", || if site.read("logs/copy.log").lines().count() == 2 { Ok(()) } else { Err(site.log()) });
    assert_eq!(site.read("logs/received.log"), "POST 4 body|\nPOST - -|\n");
    running.quit();
}
