//! Files by every way of reading them (the kernel alone, buffers, direct reads, threads), and long searches in them.

use crate::support;

use support::client::Client;
use support::{Running, Site, free_port, text};

const LENGTH: usize = 3_000_017;

/// Text in which every position is distinguishable.
fn sample() -> String {
    let mut out = String::with_capacity(LENGTH + 8);
    let mut n = 0;
    while out.len() < LENGTH {
        out.push_str(&format!("{n:07},"));
        n += 1;
    }
    out.truncate(LENGTH);
    out
}

fn pools(running: &Running<'_>) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.worker())).expect("tasks");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter_map(|name| name.trim().strip_prefix("pool ").map(str::to_string)).collect()
}

#[test]
fn every_way_of_reading_sends_the_same_bytes() {
    let port = free_port();
    let ways = [
        "sendfile on;",
        "sendfile on; sendfile_max_chunk 64k;",
        "sendfile on; read_ahead 1m;",
        "sendfile off; output_buffers 3 7k;",
        "sendfile on; directio 1m; output_buffers 1 128k;",
        "directio 1m; directio_alignment 4k; aio on;",
        "sendfile on; aio threads;",
        "sendfile off; aio threads=disk;",
        "sendfile on; directio 4m; aio threads=$arg_pool;",
        "sendfile on; limit_rate 100m; aio threads;",
        "sendfile off; gzip on; gzip_types *;",
    ];
    let mut locations = String::new();
    for (n, way) in ways.iter().enumerate() {
        locations += &format!("location /{n}/ {{ alias html/; {way} }}\n");
    }
    let http = format!("http {{ server {{ listen 127.0.0.1:{port}; {locations} }} }}");
    let site = Site::new(
        "daemon off; thread_pool disk threads=2 max_queue=10;",
        &http.replace("alias html/", "alias ../html/"),
    );
    let html = site.path("html").display().to_string();
    site.configure(
        "daemon off; thread_pool disk threads=2 max_queue=10;",
        &http.replace("alias html/", &format!("alias {html}/")),
    );
    let want = sample();
    site.write("html/big.txt", &want);
    site.write("html/small.txt", "small");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    for (n, way) in ways.iter().enumerate() {
        let target = format!("/{n}/big.txt?pool=disk");
        let (status, body) = client.ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).expect("answered");
        assert!(status == 200 && body == want, "{way}: {status}, {} bytes", body.len());
        for (range, part) in [
            ("1000001-2000000", &want[1_000_001..2_000_001]),
            ("0-0", &want[..1]),
            ("-5", &want[LENGTH - 5..]),
            ("4095-8192", &want[4095..8193]),
        ] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nRange: bytes={range}\r\n\r\n");
            let (status, body) = client.ask(&request).expect("answered");
            assert!(status == 206 && body == part, "{way}, {range}: {status}, {} bytes", body.len());
        }
        let small = format!("GET /{n}/small.txt?pool=disk HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.ask(&small).expect("answered"), (200, "small".to_string()), "{way}");
        let none = format!("GET /{n}/none{n}.txt?pool=disk HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.ask(&none).expect("answered").0, 404, "{way}");
    }
    let names = pools(&running);
    assert!(names.iter().any(|n| n == "default") && names.iter().any(|n| n == "disk"), "{names:?}");
    // A pool that the configuration does not know: the request is answered without one.
    let request = "GET /8/other.txt?pool=none HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(client.ask(request).expect("answered").0, 404);
    site.wait_for_log("thread pool \"none\" not found", 1);
    running.quit();
}

#[test]
fn large_directories_are_read_on_the_pool() {
    let port = free_port();
    let site = Site::new("daemon off;", "");
    let html = site.path("html").display().to_string();
    let locations = format!(
        "location /list/ {{ alias {html}/many/; autoindex on; autoindex_format json; }}
         location /few/ {{ alias {html}/few/; autoindex on; autoindex_format json; }}
         location /any/ {{ alias {html}/many/; random_index on; }}"
    );
    site.configure("daemon off;", &format!("http {{ server {{ listen 127.0.0.1:{port}; {locations} }} }}"));
    for folder in ["many", "few"] {
        std::fs::create_dir_all(site.path("html").join(folder)).expect("a directory");
    }
    for n in 0..1500 {
        site.write(&format!("html/many/{n:04}"), "one of many");
    }
    site.write("html/few/0000", "");
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let mut ask = |path: &str| client.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).expect("answered");
    let names = |page: &str| page.split("\"name\":\"").skip(1).map(|rest| rest[..4].to_string()).collect::<Vec<_>>();
    let (status, page) = ask("/few/");
    assert_eq!((status, names(&page)), (200, vec!["0000".to_string()]));
    assert_eq!(pools(&running), Vec::<String>::new(), "a small directory needs no thread");
    assert_eq!(ask("/any/"), (200, "one of many".into()));
    assert_eq!(pools(&running), ["default"]);
    let (status, page) = ask("/list/");
    let all: Vec<String> = (0..1500).map(|n| format!("{n:04}")).collect();
    assert!(status == 200 && names(&page) == all, "{status}, {} names", names(&page).len());
    running.quit();
}

/// A body that begins a text everywhere: the search leaves its thread to other connections and continues.
#[test]
fn an_interrupted_search_replaces_the_same_texts() {
    let port = free_port();
    let half = "a".repeat(150);
    let one = format!("sub_filter {half}b{half} [X];");
    let several = format!("{one} sub_filter {half}{half}c [Y]; sub_filter zz [Z];");
    let locations = ["/one/", "/several/"].iter().zip([&one, &several]);
    let locations: String = locations
        .map(|(path, texts)| format!("location {path} {{ alias HTML/; {texts} sub_filter_once off; }}\n"))
        .collect();
    let site = Site::new("daemon off;", "");
    let locations = locations.replace("HTML", &site.path("html").display().to_string());
    site.configure("daemon off;", &format!("http {{ server {{ listen 127.0.0.1:{port}; {locations} }} }}"));
    let long = "a".repeat(100_000);
    site.write("html/a.html", &format!("{long}b{long}b{}", "a".repeat(149)));
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let around = &long[150..];
    let want = format!("{around}[X]{around}b{}", "a".repeat(149));
    for path in ["/one/", "/several/"] {
        let (status, body) = client.ask(&format!("GET {path}a.html HTTP/1.1\r\nHost: a\r\n\r\n")).expect("answered");
        assert!(status == 200 && body == want, "{path}: {status}, {} bytes", body.len());
    }
    running.quit();
}

#[test]
fn links_to_themselves_are_forbidden() {
    let port = free_port();
    let http = format!(
        "http {{ server {{ listen 127.0.0.1:{port}; root html; location /tried/ {{ try_files $uri =404; }} }} }}"
    );
    let site = Site::new("daemon off;", &http);
    std::fs::create_dir_all(site.path("html/tried")).expect("folders");
    for link in ["html/loop", "html/tried/loop"] {
        std::os::unix::fs::symlink("loop", site.path(link)).expect("a link");
    }
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let mut status = |path: &str| client.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).expect("answered").0;
    assert_eq!(["/loop", "/loop/", "/tried/loop"].map(&mut status), [403, 403, 404]);
    running.quit();
    let words = format!("[crit] stat() \"{}\" failed (40: Too many levels", site.path("html/tried/loop").display());
    let (level, rest) = words.split_at("[crit] ".len());
    assert!(site.log().lines().any(|line| line.contains(level) && line.contains(rest)), "{}", site.log());
}

#[test]
fn a_pool_must_be_declared() {
    let site = Site::new("daemon off;", "http { server { listen 127.0.0.1:1; aio threads=disk; } }");
    let output = site.run(&["-t"]);
    let words = text(&output.stderr);
    assert!(!output.status.success() && words.contains("[emerg] unknown thread pool \"disk\" in "), "{words}");
    site.configure("daemon off; thread_pool disk threads=1;", "http { server { listen 127.0.0.1:1; aio sendfile; } }");
    assert!(text(&site.run(&["-t"]).stderr).contains("unsupported on this platform"));
    // Declared behind its use, as nginx allows.
    site.configure("daemon off;", "http { aio threads=disk; directio off; } thread_pool disk threads=1;");
    assert!(site.run(&["-t"]).status.success());
}
