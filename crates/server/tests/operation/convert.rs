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

/// Places of .htaccess files that Apache closes, with requests and their statuses. Scripts are passed to a closed port (502): their
/// text never is an answer.
const DOORS: &[(&str, &str, &[(&str, u16)])] = &[
    (
        "drupal",
        "<FilesMatch \"\\.php$\">\nExpiresActive Off\n</FilesMatch>\n<FilesMatch \"\\.(html|php)$\">\nHeader set A b\n</FilesMatch>\n",
        &[("settings.php", 502), ("settings.php/x", 502), ("a.html", 200)],
    ),
    (
        "wordpress",
        "<Files wp-login.php>\nAuthType Basic\nAuthName Staff\nAuthUserFile @users\nRequire valid-user\n</Files>\n\
         <Files xmlrpc.php>\nOrder deny,allow\nDeny from all\nAllow from 192.0.2.1\n</Files>\n\
         <FilesMatch \"\\.(js|css|html)$\">\nHeader set Cache-Control max-age=60\n</FilesMatch>\n\
         RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule . /wordpress/settings.php [L]\n",
        &[("wp-login.php", 401), ("xmlrpc.php", 403), ("none/at/all", 502), ("none.html", 502), ("a.html", 200)],
    ),
    (
        "plain",
        "Options -Indexes\n",
        &[(".htpasswd", 403), (".htaccess", 403), ("x.bak", 403), ("settings.php", 502), ("a.html", 200)],
    ),
    ("both", "Deny from all\nRequire all granted\n", &[("a.html", 403), ("settings.php", 403)]),
    (
        "anchors",
        "RewriteEngine On\nRewriteRule (^|/)\\.(?!well-known) - [F]\nRewriteRule ^\\.git|^vendor/ - [F]\n",
        &[(".git/config", 403), ("vendor/a.txt", 403), ("sub/.git/config", 403), (".well-known/a.txt", 200)],
    ),
    ("limit", "<Limit GET POST>\nRequire all denied\n</Limit>\n", &[("a.html", 403)]),
    ("except", "<LimitExcept POST>\nDeny from all\n</LimitExcept>\n", &[("a.html", 403)]),
    ("if", "<If \"true\">\nRequire all denied\n</If>\n", &[("a.html", 500)]),
    ("ldap", "AuthType Basic\nAuthName x\nAuthBasicProvider ldap\nRequire valid-user\n", &[("a.html", 500)]),
    ("tls", "SSLRequireSSL\n", &[("a.html", 403)]),
    ("client", "SSLVerifyClient require\n", &[("a.html", 500)]),
    (
        "refused",
        "RewriteEngine On\nRewriteCond %{HTTP_HOST} localhost\nRewriteCond %{REQUEST_URI} html$\nRewriteRule ^a - [F]\n",
        &[("a.html", 403), ("vendor/a.txt", 200)],
    ),
    (
        "hotlinks",
        "RewriteEngine On\nRewriteCond %{HTTP_REFERER} !^https?://example\\.com [NC]\nRewriteRule \\.html$ - [F]\n",
        &[("a.html", 403)],
    ),
    (
        "variable",
        "SetEnvIf Request_URI html$ closed\nOrder allow,deny\nAllow from all\nDeny from env=closed\n",
        &[("a.html", 403), ("vendor/a.txt", 200)],
    ),
    ("handler", "AddHandler cgi-script .html\n", &[("a.html", 500)]),
    ("switched", "php_flag engine off\n", &[("settings.php", 403), ("a.html", 200)]),
];

/// Lines of the virtual host around them.
const HOST: &str = "<Directory @root>\nAllowOverride All\nRequire all granted\n</Directory>\n\
     <FilesMatch \"\\.(bak|env)$\">\nRequire all denied\n</FilesMatch>\n<Files .env>\nOrder allow,deny\nDeny from all\n</Files>\n\
     <DirectoryMatch \"/match(/|$)\">\nRequire all denied\n</DirectoryMatch>\n<Location ~ \"^/regex\">\nRequire all denied\n</Location>\n\
     <Directory \"@root/*/globbed\">\nRequire all denied\n</Directory>\n<LocationMatch \"\\.php$\">\nHeader set A b\n</LocationMatch>\n\
     <Directory @root/dir>\nHeader set A b\n</Directory>\n<Files named.html>\nRequire all denied\n</Files>\n\
     <Location /dir>\nHeader set B c\n</Location>\nAlias /alias @root/../beside\n<Directory @root/../beside>\nRequire all denied\n</Directory>\n\
     Redirect gone /dir/gone\n";

#[test]
fn doors_that_apache_closes_stay_closed() {
    let port = free_port();
    let site = Site::new("daemon off;", "");
    let root = site.path("html").display().to_string();
    let file = |name: String, content: &str| {
        let path = site.path(&name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("a file");
    };
    let mut inputs = vec![site.path("site.conf")];
    for folder in DOORS.iter().map(|(folder, ..)| *folder).chain(["dir", "match", "regex", "a/globbed"]) {
        for (name, content) in [
            ("a.html", "page"),
            ("named.html", "named"),
            ("settings.php", "<?php secret"),
            ("wp-login.php", "<?php secret"),
            ("xmlrpc.php", "<?php secret"),
            (".htpasswd", "joe:{PLAIN}secret"),
            (".env", "secret"),
            ("x.bak", "secret"),
            (".git/config", "secret"),
            ("sub/.git/config", "secret"),
            ("vendor/a.txt", "vendor"),
            (".well-known/a.txt", "known"),
        ] {
            file(format!("html/{folder}/{name}"), content);
        }
    }
    let users = site.path("users").display().to_string();
    for (folder, text, _) in DOORS {
        file(format!("html/{folder}/.htaccess"), &text.replace("@users", &users));
        inputs.push(site.path(&format!("html/{folder}/.htaccess")));
    }
    file("beside/a.html".into(), "secret");
    let host = HOST.replace("@root/..", &site.dir.display().to_string()).replace("@root", &root);
    site.write(
        "site.conf",
        &format!("<VirtualHost 127.0.0.1:{port}>\nServerName localhost\nDocumentRoot {root}\n{host}</VirtualHost>\n"),
    );
    let mut arguments: Vec<String> = inputs.iter().map(|path| path.display().to_string()).collect();
    arguments.extend(["--php", "127.0.0.1:1"].map(str::to_string));
    let output = convert(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    // The files with status 500 are told.
    assert_eq!(output.status.code(), Some(1));
    let listed = text(&output.stderr);
    for folder in ["if", "ldap", "client", "handler"] {
        assert!(listed.contains(&format!("/{folder}/.htaccess:")), "{folder} is not in {listed}");
    }
    assert!(listed.contains("4 lines were not converted"), "{listed}");
    let converted = text(&output.stdout);
    assert!(!converted.contains("^~"), "{converted}");
    site.write("conf/nginx.conf", &format!("daemon off; error_log logs/error.log info;\n{converted}"));
    let running = site.start();
    let others: &[(&str, u16)] = &[
        ("/dir/a.html", 200),
        ("/dir/.env", 403),
        ("/dir/x.bak", 403),
        ("/dir/.htpasswd", 403),
        ("/dir/named.html", 403),
        ("/dir/settings.php", 502),
        ("/dir/gone", 410),
        ("/match/a.html", 403),
        ("/regex/a.html", 403),
        ("/a/globbed/a.html", 403),
        ("/alias/a.html", 403),
        ("/alias", 403),
        ("/dir%2Fa.html", 404),
    ];
    let doors = DOORS
        .iter()
        .flat_map(|(folder, _, all)| all.iter().map(move |(name, status)| (format!("/{folder}/{name}"), *status)));
    let mut wrong = Vec::new();
    for (target, status) in doors.chain(others.iter().map(|(target, status)| (target.to_string(), *status))) {
        let answer = get(port, &target);
        if !answer.starts_with(&format!("HTTP/1.1 {status} ")) || answer.contains("secret") {
            wrong.push(format!("{target}: {status} expected, {}", answer.lines().next().unwrap_or_default()));
        }
    }
    running.quit();
    assert!(wrong.is_empty(), "{}\n{converted}", wrong.join("\n"));
}

/// A section that decides about access by an expression has no counterpart, so there is no output.
#[test]
fn there_is_no_output_where_a_door_would_open() {
    let site = Site::new("", "");
    site.write(
        "site.conf",
        "<VirtualHost *:80>\nServerName a\n<If \"-R '10.0.0.0/8'\">\nRequire all granted\n</If>\n</VirtualHost>\n",
    );
    let path = site.path("site.conf").display().to_string();
    let output = convert(&[&path]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
    assert!(text(&output.stderr).contains(&format!("{path}:3: If ")), "{}", text(&output.stderr));
    site.write("site.conf", "<VirtualHost *:80>\nServerName a\nInclude none.conf\n</VirtualHost>\n");
    assert_eq!(convert(&[&path]).status.code(), Some(2));
    let included = site.path("part.conf").display().to_string();
    site.write("part.conf", "Redirect /x /y\n");
    site.write("site.conf", &format!("<VirtualHost *:80>\nServerName a\nInclude {included}\n</VirtualHost>\n"));
    let output = convert(&[&path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("\"Redirect /x /y\""), "{}", text(&output.stdout));
}

#[test]
fn files_from_elsewhere_stand_for_that_of_the_root() {
    let site = Site::new("", "");
    site.write("html/sub.htaccess", "Require all denied\n");
    let (path, root) = (site.path("html/sub.htaccess").display().to_string(), "/srv/www");
    let output = text(&convert(&[&path, "--root", root]).stdout);
    assert!(output.contains("root /srv/www;") && output.contains("\"<Directory \\\"/srv/www\\\">\""), "{output}");
    let html = site.path("html").display().to_string();
    let below = site.path("").display().to_string();
    let output = text(&convert(&[&path, "--root", &below]).stdout);
    assert!(
        output.contains(&format!("root {};", below.trim_end_matches('/')))
            && !output.contains(&format!("root {html};")),
        "{output}"
    );
}

#[test]
fn untranslated_lines_are_listed_and_change_the_exit_status() {
    let site = Site::new("", "");
    site.write("html/.htaccess", "RewriteEngine On\nRequire ldap-user joe\nOptions +MultiViews\n");
    let path = site.path("html/.htaccess").display().to_string();
    let output = convert(&[&path]);
    assert_eq!(output.status.code(), Some(1));
    let (listed, converted) = (text(&output.stderr), text(&output.stdout));
    for part in [
        &format!("{path}:2: not converted: Require ldap-user joe"),
        "requests for its directory get status 500",
        "1 line was not converted",
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

#[test]
fn ingresses_are_converted_by_the_controller() {
    use std::os::unix::fs::PermissionsExt as _;
    // A program finds its neighbours by its own path: a link to it is another one.
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ingress-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a directory");
    let program = folder.join("tidegate");
    std::fs::hard_link(BINARY, &program).expect("a link");
    let run = |path: &std::path::Path| {
        let mut command = Command::new(&program);
        command.args(["convert", "ingress", "a.yaml", "--json"]).env("PATH", path).output().expect("the program runs")
    };
    let nowhere = folder.join("nowhere");
    let output = run(&nowhere);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("tidegate: tidegate-controller is not installed"), "{output:?}");
    let script = |folder: &std::path::Path, words: &str| {
        std::fs::create_dir_all(folder).expect("a directory");
        let file = folder.join("tidegate-controller");
        std::fs::write(&file, format!("#!/bin/sh\necho {words} \"$@\"\nexit 1\n")).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("executable");
    };
    script(&nowhere, "path");
    let output = run(&nowhere);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "path convert-ingress a.yaml --json\n".into()));
    script(&folder, "beside");
    assert_eq!(text(&run(&nowhere).stdout), "beside convert-ingress a.yaml --json\n");
    std::fs::remove_dir_all(&folder).expect("removed");
}
