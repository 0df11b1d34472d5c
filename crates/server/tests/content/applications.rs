//! `examples/applications`: PHP under php-fpm, Python under uWSGI, memcached and a gRPC service, started by one
//! command. Programs that are not installed are skipped with a notice.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use support::{BINARY, Site, free_port, signal, text, wait};

fn has(program: &str) -> bool {
    ["/usr/bin", "/usr/sbin", "/usr/local/bin"].iter().any(|folder| {
        std::fs::read_dir(folder).is_ok_and(|mut all| {
            all.any(|entry| entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with(program)))
        })
    })
}

fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.write_all(request.as_bytes()).expect("written");
    let mut all = String::new();
    let _ = stream.read_to_string(&mut all);
    all
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        signal(self.0.id(), "TERM");
        let _ = self.0.wait();
    }
}

#[test]
fn applications_answer() {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/applications");
    let (site, port) = (Site::new("", ""), free_port());
    std::fs::create_dir_all(site.path("html")).expect("a folder");
    for name in ["run", "app.py", "php-fpm.conf", "html/index.php", "nginx.conf", "service.py"] {
        let text = std::fs::read_to_string(source.join(name)).expect(name);
        // Other tests run beside it.
        site.write(name, &cases::replace_address(&text, "127.0.0.1:8088", &format!("127.0.0.1:{port}")));
    }
    let log = std::fs::File::create(site.path("logs/run.log")).expect("a log");
    let child = Command::new("sh")
        .arg(site.path("run"))
        .env("TIDEGATE", BINARY)
        .stdin(Stdio::null())
        .stderr(log.try_clone().expect("a log"))
        .stdout(log)
        .spawn()
        .expect("started");
    let running = Running(child);
    wait("the port", || TcpStream::connect(("127.0.0.1", port)));
    if has("php-fpm") {
        wait("php-fpm", || UnixStream::connect(site.path("php.sock")));
        let body = "b".repeat(100_000);
        let head = format!("POST /index.php/a/b?x=%31 HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = ask(port, &(head + &body));
        for words in
            ["200 OK", "X-Powered-By: php-fpm", "POST /index.php/a/b?x=%31\n", "path info: /a/b\n", "query x: 1\n"]
        {
            assert!(answer.contains(words), "{words} in {answer}");
        }
        assert!(answer.contains("body: 100000 bytes"), "{answer}");
        assert!(ask(port, "GET /not/there?y=2 HTTP/1.0\r\n\r\n").contains("query y: 2"));
        assert!(ask(port, "GET /none.php HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
        let answer = ask(port, "GET /?complain HTTP/1.0\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200") && site.read("logs/run.log").contains("asked to complain"),
            "{answer}"
        );
    } else {
        testkit::missing_peer("no php-fpm here");
    }
    if has("uwsgi") {
        wait("uWSGI", || UnixStream::connect(site.path("python.sock")));
        let answer = ask(port, "POST /python/x HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello");
        assert!(answer.contains("POST /python/x\nbody: 5 bytes\n"), "{answer}\n{}", site.read("logs/run.log"));
    } else {
        testkit::missing_peer("no uwsgi here");
    }
    if has("memcached") {
        let mut memory = wait("memcached", || UnixStream::connect(site.path("memory.sock")));
        memory.write_all(b"set /memory/a 0 0 5\r\nhello\r\n").expect("written");
        memory.read_exact(&mut [0; 8]).expect("stored");
        assert!(ask(port, "GET /memory/a HTTP/1.0\r\n\r\n").ends_with("\r\n\r\nhello"));
        assert!(ask(port, "GET /memory/b HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
    } else {
        testkit::missing_peer("no memcached here");
    }
    let python = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let found = Command::new(python).args(["-c", "import grpc"]).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    });
    if let Some(python) = python {
        wait("the service", || UnixStream::connect(site.path("grpc.sock")));
        let out = Command::new(python)
            .arg(site.path("service.py"))
            .args(["ask", &format!("127.0.0.1:{port}")])
            .output()
            .expect("the client runs");
        let said = "hello, world\n1000007\n0 1 2 3 4\n499500\nA B C\nFAILED_PRECONDITION not now\nUNIMPLEMENTED\n";
        assert_eq!(text(&out.stdout), said, "{}{}", text(&out.stderr), site.read("logs/run.log"));
    } else {
        testkit::missing_means("no grpcio for Python here");
    }
    drop(running);
}
