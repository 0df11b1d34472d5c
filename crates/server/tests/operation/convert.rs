//! `tidegate convert apache`: the result passes `-t` and behaves like the source, and untranslated lines are listed.

use crate::support;

use std::process::{Command, Output};
use support::{BINARY, Site, free_port, text};

fn convert(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(["convert", "apache"]).args(arguments).output().expect("the program runs")
}

fn get(port: u16, target: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
    write!(stream, "GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    text(&answer)
}

#[test]
fn a_converted_site_serves() {
    let port = free_port();
    let site = Site::new("daemon off;", "");
    let root = site.path("html").display().to_string();
    for folder in ["html/private", "html/img"] {
        std::fs::create_dir_all(site.path(folder)).expect("a directory");
    }
    for (name, content) in [
        ("front.html", "front"),
        ("real.txt", "real"),
        ("style.css", "body { }"),
        ("x.bak", "secret"),
        ("private/x", "closed"),
        ("img/a", "image"),
        ("404.html", "gone"),
    ] {
        site.write(&format!("html/{name}"), content);
    }
    site.write(
        "site.conf",
        &format!(
            "<VirtualHost 127.0.0.1:{port}>\nServerName localhost\nDocumentRoot {root}\n<Directory {root}>\nAllowOverride All\n\
             Require all granted\n</Directory>\n<Directory {root}/private>\nRequire all denied\n</Directory>\nAlias /pictures {root}/img\n\
             <FilesMatch \"\\.bak$\">\nOrder allow,deny\nDeny from all\n</FilesMatch>\nRedirect 301 /old /new\nErrorDocument 403 /404.html\n\
             Header set X-From apache\n</VirtualHost>\n"
        ),
    );
    site.write(
        "html/.htaccess",
        "RewriteEngine On\nRewriteRule ^moved/(.*)$ /there/$1 [R=302,L]\nRewriteCond %{QUERY_STRING} ^n=(\\d+)$\nRewriteCond %{REQUEST_METHOD} =GET\n\
         RewriteRule ^number$ /real.txt?found=%1 [L]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule ^ front.html [L]\n",
    );
    let (conf, folder, to) = (site.path("site.conf"), site.path("html/.htaccess"), site.path("conf/nginx.conf"));
    let arguments = [&conf, &folder].map(|path| path.display().to_string());
    let output = convert(&[&arguments[0], &arguments[1], "-o", &to.display().to_string()]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    let converted = site.read("conf/nginx.conf");
    site.write("conf/nginx.conf", &format!("daemon off; error_log logs/error.log info;\n{converted}"));
    let checked = site.run(&["-t"]);
    assert!(checked.status.success(), "{}\n{converted}", text(&checked.stderr));
    let running = site.start();
    for (target, want) in [
        ("/real.txt", "\r\n\r\nreal"),
        ("/none/at/all", "\r\n\r\nfront"),
        ("/x.bak", "HTTP/1.1 403"),
        ("/private/x", "HTTP/1.1 403"),
        ("/pictures/a", "\r\n\r\nimage"),
        ("/old/x?y=z", "Location: http://localhost/new/x?y=z\r\n"),
        ("/moved/x?y", "/there/x?y\r\n"),
        ("/number?n=12", "\r\n\r\nreal"),
        ("/number?n=x", "\r\n\r\nfront"),
        ("/real.txt", "X-From: apache\r\n"),
        ("/style.css", "Content-Type: text/css\r\n"),
        ("/.htaccess", "HTTP/1.1 403"),
    ] {
        let answer = get(port, target).replace(&format!("localhost:{port}"), "localhost");
        assert!(answer.contains(want), "{target}: {want:?} is not in\n{answer}\n{converted}");
    }
    running.quit();
}

#[test]
fn what_is_left_is_listed_and_changes_the_exit_status() {
    let site = Site::new("", "");
    site.write("html/.htaccess", "RewriteEngine On\nRewriteRule ^(.*)_(.*)$ $1-$2 [N]\nOptions +MultiViews\n");
    let path = site.path("html/.htaccess").display().to_string();
    let output = convert(&[&path]);
    assert_eq!(output.status.code(), Some(1));
    let (listed, converted) = (text(&output.stderr), text(&output.stdout));
    for part in [
        &format!("{path}:2: not converted: RewriteRule"),
        &format!("{path}:3: not converted: Options"),
        "2 lines were not converted",
    ] {
        assert!(listed.contains(part), "{part} is not in {listed}");
    }
    assert!(converted.contains(&format!("# not converted: {path}:2:")), "{converted}");
    site.write("conf/nginx.conf", &converted);
    assert!(site.run(&["-t"]).status.success(), "{converted}");
    site.write("html/.htaccess", "<Files x>\n");
    let output = convert(&[&path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(":1: <Files> was not closed."), "{}", text(&output.stderr));
}
