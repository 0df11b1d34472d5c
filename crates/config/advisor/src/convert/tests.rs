//! Translations of Apache's lines.

use super::*;

fn none(_: &str) -> Result<Vec<(String, String)>, String> {
    Ok(Vec::new())
}

fn of_folder(text: &str) -> ConvertedConfig {
    let input = Input { name: ".htaccess".into(), text: text.into(), folder: Some("/srv/www".into()), in_place: false };
    convert_apache(&[input], &Options { snippet: true, ..Options::default() }, &none)
        .unwrap_or_else(|(_, e)| panic!("{e:?}"))
}

fn try_hosts(text: &str, includes: Includes<'_>) -> Result<ConvertedConfig, (String, ParseError)> {
    let input = Input { name: "site.conf".into(), text: text.into(), folder: None, in_place: true };
    convert_apache(&[input], &Options { snippet: true, ..Options::default() }, includes)
}

fn of_hosts(text: &str) -> ConvertedConfig {
    try_hosts(text, &none).unwrap_or_else(|(_, e)| panic!("{e:?}"))
}

/// A virtual host with these lines.
fn of_host(lines: &str) -> ConvertedConfig {
    of_hosts(&format!("<VirtualHost *:80>\nServerName a.test\nDocumentRoot /srv/www\n{lines}</VirtualHost>\n"))
}

fn has(converted: &ConvertedConfig, parts: &[&str]) {
    for part in parts {
        assert!(converted.text.contains(part), "{part} is not in:\n{}", converted.text);
    }
}

/// Lines of `htaccess_rules`, as the engine reads them.
fn rules(converted: &ConvertedConfig) -> String {
    let mut out = String::new();
    for line in converted.text.lines().map(str::trim) {
        if let Some(text) =
            line.strip_suffix(';').unwrap_or(line).strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
        {
            out.push_str(&text.replace("\\\"", "\"").replace("\\\\", "\\"));
            out.push('\n');
        }
    }
    assert!(htaccess::rules::read_rules(&out).is_ok(), "{out}");
    out
}

fn left(converted: &ConvertedConfig) -> Vec<u32> {
    converted.left.iter().map(|left| left.line).collect()
}

#[test]
fn no_location_hides_the_rules_of_another() {
    let converted = of_host(
        "<Directory /srv/www/d>\nHeader set A b\n</Directory>\n<Location /status>\nRequire local\n</Location>\n\
         <FilesMatch \"\\.php$\">\nExpiresActive Off\n</FilesMatch>\nAlias /img /srv/img\nProxyPass /api http://127.0.0.1:1\n\
         Redirect gone /x\n",
    );
    assert!(!converted.text.contains("^~"), "{}", converted.text);
    let regexes = converted.text.lines().filter(|line| line.trim_start().starts_with("location ~"));
    assert!(regexes.clone().all(|line| line.contains("php")), "{}", converted.text);
    assert!(converted.left.is_empty(), "{:?}", converted.left);
}

#[test]
fn scripts_run_in_every_server_and_alias() {
    for text in ["", "Alias /tool /srv/tool\n", "<FilesMatch \"\\.(html|php)$\">\nHeader set A b\n</FilesMatch>\n"] {
        let converted = of_host(text);
        let folders = 1 + converted.text.matches("location /tool/ {").count();
        assert_eq!(
            converted.text.matches("location ~ [^/]\\.(?:phar|php|phtml)").count(),
            folders,
            "{}",
            converted.text
        );
    }
    let input = || Input { name: "a".into(), text: "DocumentRoot /srv\n".into(), folder: None, in_place: true };
    let options = Options { php: "127.0.0.1:9000".into(), ..Options::default() };
    let named = convert_apache(&[input()], &options, &none).unwrap_or_else(|(_, e)| panic!("{e:?}"));
    has(&named, &["fastcgi_pass 127.0.0.1:9000;"]);
    let options = Options { php: "off".into(), ..Options::default() };
    let off = convert_apache(&[input()], &options, &none).unwrap_or_else(|(_, e)| panic!("{e:?}"));
    assert!(!off.text.contains("fastcgi_pass"), "{}", off.text);
}

#[test]
fn files_of_other_handlers_are_denied() {
    let cgi = of_host("AddHandler cgi-script .cgi .pl\n");
    assert!(rules(&cgi).contains("<FilesMatch \"(?i)\\.(cgi|pl)(\\.|$)\">\n    Require all denied\n"), "{}", cgi.text);
    let folder = of_host("<Directory /srv/www/cgi>\nSetHandler cgi-script\nHeader set A b\n</Directory>\n");
    assert!(
        rules(&folder).contains("<Directory /srv/www/cgi>\n    Header set A b\n    Require all denied\n"),
        "{}",
        folder.text
    );
    let status = of_host("<Location /server-status>\nSetHandler server-status\nRequire local\n</Location>\n");
    assert!(rules(&status).contains("<Location /server-status>\n    Require all denied\n"), "{}", status.text);
    let included = of_host("AddOutputFilter INCLUDES .shtml\n");
    assert!(rules(&included).contains("(shtml)"), "{}", included.text);
    let script = of_host("ScriptAlias /cgi-bin/ /usr/lib/cgi-bin/\n");
    has(&script, &["location /cgi-bin/ {\n        deny all;"]);
    for converted in [&cgi, &folder, &status, &included, &script] {
        assert_eq!(converted.left.len(), 1, "{:?}", converted.left);
    }
    // Extensions of scripts by PHP's handler.
    let php = of_host(
        "<FilesMatch \"\\.(php|inc)$\">\nSetHandler \"proxy:unix:/run/p.sock|fcgi://localhost\"\n</FilesMatch>\nAddType application/x-httpd-php .html\n",
    );
    has(&php, &["(?:inc|phar|php|phtml)", "[^/]\\.(?:html)(?:\\.[^/]*)?", "fastcgi_pass unix:/run/p.sock;"]);
    assert!(php.left.is_empty(), "{:?}", php.left);
    let all = of_host("<Directory /srv/www/app>\nSetHandler application/x-httpd-php\n</Directory>\n");
    assert!(rules(&all).contains("<Directory /srv/www/app>\n    Require all denied\n"), "{}", all.text);
}

/// Access that the engine cannot judge denies its place, and nothing beside it stays.
#[test]
fn unknown_access_rules_deny_their_place() {
    for line in [
        "Require ldap-user joe",
        "Require host example.com",
        "Require expr %{TIME_HOUR} -gt 9",
        "AuthBasicProvider ldap",
        "AuthType Digest",
        "Allow from example.com",
        "SSLRequire true",
        "SSLVerifyClient require",
        "AuthLDAPURL ldap://x",
        "AllowOverrideList Redirect",
        "AllowOverride Options=Indexes",
        "<RequireAny>\nRequire ldap-group x\nRequire all granted\n</RequireAny>",
        "<Limit BREW>\nRequire valid-user\n</Limit>",
        "<IfModule mod_authnz_ldap.c>\nRequire ldap-user x\n</IfModule>",
    ] {
        for head in ["Directory /srv/www/d", "Location /d", "Files x", "LocationMatch ^/d", "DirectoryMatch /d$"] {
            let name = head.split(' ').next().unwrap_or_default();
            let converted = of_host(&format!("<{head}>\nRequire all granted\nSatisfy any\n{line}\n</{name}>\n"));
            let text = rules(&converted);
            assert!(
                text.contains(&format!("<{head}>\n    Require all denied\n</{name}>")),
                "{line} in {head}:\n{text}"
            );
            assert!(!converted.left.is_empty(), "{line} in {head}");
        }
        let server = of_host(&format!("{line}\n<Directory /srv/www>\nRequire all granted\n</Directory>\n"));
        if line.starts_with("SSLVerifyClient") {
            has(&server, &["ssl_verify_client on;"]);
            continue;
        }
        assert!(
            rules(&server).ends_with("<Location />\n    Require all denied\n</Location>\n"),
            "{line}: {}",
            server.text
        );
    }
}

/// A section that cannot be placed has no safe place either: there is no result.
#[test]
fn sections_without_a_place_end_the_translation() {
    for section in [
        "<If \"%{REQUEST_URI} =~ /x/\">\nRequire all denied\n</If>",
        "<Directory /srv/www>\n<If \"true\">\nRequire valid-user\n</If>\n</Directory>",
        "<Macro X>\nRequire all denied\n</Macro>",
        "Include missing.conf",
        "AccessFileName .acl",
    ] {
        let Err((file, e)) = try_hosts(&format!("<VirtualHost *:80>\n\n{section}\n</VirtualHost>\n"), &none) else {
            panic!("{section} is translated");
        };
        assert_eq!(file, "site.conf", "{section}");
        assert!((3..=4).contains(&e.line) && e.text.contains("would open"), "{section}: {e:?}");
    }
    // Without access rules, they are left.
    assert_eq!(left(&of_host("<If \"true\">\nHeader set A b\n</If>\n")), [4, 5]);
}

#[test]
fn included_files_take_part() {
    let includes = |path: &str| match path {
        "/etc/apache2/closed.conf" => Ok(vec![("closed.conf".to_string(), "Require ldap-user x\n".to_string())]),
        "/etc/apache2/folder/*.conf" => Ok(vec![("a.conf".to_string(), "Header set A b\n".to_string())]),
        "/etc/apache2/loop.conf" => Ok(vec![("loop.conf".to_string(), "Include loop.conf\n".to_string())]),
        _ => Ok(Vec::new()),
    };
    let host = |lines: &str| try_hosts(&format!("<VirtualHost *:80>\n{lines}</VirtualHost>\n"), &includes);
    let closed = host(
        "<Location /x>\nInclude closed.conf\n</Location>\nIncludeOptional folder/*.conf\nIncludeOptional none.conf\n",
    );
    let closed = closed.unwrap_or_else(|(_, e)| panic!("{e:?}"));
    assert!(
        rules(&closed).contains("<Location /x>\n    Require all denied\n</Location>\nHeader set A b\n"),
        "{}",
        closed.text
    );
    assert_eq!(closed.left[0].file, "closed.conf");
    assert!(host("Include loop.conf\n").is_err());
}

#[test]
fn rewriting_rules_stay_as_they_are_or_refuse() {
    let kept = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule (^|/)\\.(?!well-known) - [F]\nRewriteRule ^(.*)_(.*)$ $1-$2 [N]\n";
    let converted = of_folder(kept);
    let indented: String = kept.lines().map(|line| format!("    {line}\n")).collect();
    assert!(rules(&converted).contains(&indented), "{}", converted.text);
    assert!(converted.left.is_empty(), "{:?}", converted.left);
    let refused = of_folder(
        "RewriteEngine On\nRewriteCond expr \"true\"\nRewriteRule ^secret/(.*) http://10.0.0.1/$1 [P]\nRewriteRule .? - [CO=a:b]\n\
         RewriteCond ${list:%{REMOTE_ADDR}} deny\nRewriteRule ^map - [F]\nRewriteCond %{TIME_HOUR} <8\nRewriteRule ^night - [F]\n",
    );
    assert!(rules(&refused).contains("    RewriteRule \"^secret/(.*)\" - [F]\n"), "{}", refused.text);
    assert!(!rules(&refused).contains("CO=") && !rules(&refused).contains("expr"), "{}", refused.text);
    assert!(
        rules(&refused).contains("\"^map\" - [F]\n") && rules(&refused).contains("\"^night\" - [F]\n"),
        "{}",
        refused.text
    );
    assert_eq!(left(&refused), [3, 4, 6, 8]);
    let socket = of_host(
        "RewriteEngine On\nProxyPass / http://127.0.0.1:3000/\nRewriteCond %{HTTP:Upgrade} websocket [NC]\nRewriteRule /(.*) ws://127.0.0.1:3000/$1 [P,L]\n",
    );
    has(
        &socket,
        &[
            "location / {\n        htaccess off;\n        proxy_pass http://127.0.0.1:3000/;",
            "proxy_set_header Upgrade $http_upgrade;",
        ],
    );
    assert!(socket.left.is_empty(), "{:?}", socket.left);
}

#[test]
fn a_virtual_host_becomes_a_server() {
    let converted = of_hosts(
        "<VirtualHost *:80>\nServerName example.com\nServerAlias www.example.com\nDocumentRoot /srv/www\nErrorLog ${APACHE_LOG_DIR}/error.log\n\
         CustomLog ${APACHE_LOG_DIR}/access.log combined\n<Directory /srv/www>\nOptions -Indexes +FollowSymLinks\nAllowOverride All\nRequire all granted\n\
         </Directory>\nAlias /img /srv/images\nProxyPass /api http://127.0.0.1:8080\nProxyPassReverse /api http://127.0.0.1:8080\n\
         Redirect permanent /old /new\nHeader always set X-Frame-Options DENY\nExpiresActive On\nErrorDocument 404 /404.html\n</VirtualHost>\n",
    );
    has(
        &converted,
        &[
            "listen 80;",
            "server_name example.com www.example.com;",
            "root /srv/www;",
            "error_log /var/log/nginx/error.log;",
            "access_log /var/log/nginx/access.log combined;",
            "location /img/ {\n        alias /srv/images/;",
            "location = /img {\n        alias /srv/images;",
            "location /api/ {\n        htaccess off;\n        proxy_pass http://127.0.0.1:8080/;",
            "htaccess on;",
        ],
    );
    let text = rules(&converted);
    assert!(
        text.starts_with("Options FollowSymLinks\n<Directory />\n    AllowOverride Unset\n</Directory>\n"),
        "{text}"
    );
    assert!(text.contains("Redirect permanent /old /new\nHeader always set X-Frame-Options DENY\n"), "{text}");
    assert!(converted.left.is_empty(), "{:?}", converted.left);
}

/// Without any AllowOverride, Apache reads .htaccess files and refuses all that they say; files that are given count.
#[test]
fn files_are_read_where_apache_reads_them() {
    let host = "<VirtualHost *:80>\nDocumentRoot /srv/www\n</VirtualHost>\n";
    let inputs = |host: &str, with_file: bool| {
        let mut inputs = vec![Input { name: "a".into(), text: host.into(), folder: None, in_place: true }];
        let file = Input { name: "f".into(), text: String::new(), folder: Some("/srv/www".into()), in_place: true };
        inputs.extend(with_file.then_some(file));
        convert_apache(&inputs, &Options::default(), &none).unwrap_or_else(|(_, e)| panic!("{e:?}"))
    };
    let is_unset = |converted: &ConvertedConfig| converted.text.contains("AllowOverride Unset");
    assert!(is_unset(&inputs(host, false)));
    assert!(!is_unset(&inputs(host, true)));
    let says = "<VirtualHost *:80>\nDocumentRoot /srv/www\n<Directory /srv/www>\nAllowOverride All\n</Directory>\n</VirtualHost>\n";
    assert!(is_unset(&inputs(says, true)));
}

/// A file that stays in its place is the server's to read; its faults are told.
#[test]
fn a_file_in_its_place_stays_there() {
    let input = |text: &str| Input {
        name: "/srv/www/.htaccess".into(),
        text: text.into(),
        folder: Some("/srv/www".into()),
        in_place: true,
    };
    let of = |text: &str| {
        convert_apache(&[input(text)], &Options::default(), &none).unwrap_or_else(|(_, e)| panic!("{e:?}"))
    };
    let good = of("Require all denied\n");
    has(&good, &["root /srv/www;", "htaccess on;"]);
    assert!(rules(&good).matches("denied").count() == 1 && good.left.is_empty(), "{}", good.text);
    let bad = of("Options -Indexes\nRequire ldap-user x\n");
    assert_eq!(left(&bad), [2]);
    assert!(bad.left[0].why.contains("get status 500"), "{:?}", bad.left);
    let root = Options { root: Some("/srv".into()), ..Options::default() };
    let below = convert_apache(&[input("")], &root, &none).unwrap_or_else(|(_, e)| panic!("{e:?}"));
    has(&below, &["root /srv;"]);
}

/// Shape of Debian's snippets: an alias and its directory, without a virtual host.
#[test]
fn lines_without_a_virtual_host_become_a_part_of_a_server() {
    let text = "Alias /phpmyadmin /usr/share/phpmyadmin\n<Directory /usr/share/phpmyadmin>\n Options SymLinksIfOwnerMatch\n \
                DirectoryIndex index.php\n</Directory>\n<Directory /usr/share/phpmyadmin/templates>\n Require all denied\n\
                </Directory>\n";
    let part = of_hosts(text);
    has(&part, &["# To be included in a server block.", "location /phpmyadmin/ {\n    alias /usr/share/phpmyadmin/;"]);
    assert!(!part.text.contains("server {") && !part.text.contains("location / {"), "{}", part.text);
    assert!(part.left.is_empty(), "{:?}", part.left);
}

#[test]
fn lines_outside_hold_for_every_virtual_host() {
    let converted = of_hosts(
        "Alias /icons/ /usr/share/icons/\nRewriteEngine On\nRewriteRule ^/a$ /b\nLimitRequestBody 1000\nRedirect /r /outer\n\
         <Directory /srv>\nRequire all denied\n</Directory>\n\
         <VirtualHost *:80>\nServerName a.test\nDocumentRoot /srv/a\nRedirect /r /inner\n</VirtualHost>\n\
         <VirtualHost *:80>\nServerName b.test\nDocumentRoot /srv/b\nLimitRequestBody 5\n</VirtualHost>\n",
    );
    assert_eq!(converted.text.matches("alias /usr/share/icons/;").count(), 2, "{}", converted.text);
    assert_eq!(converted.text.matches("client_max_body_size 1000;").count(), 1, "{}", converted.text);
    assert_eq!(converted.text.matches("<Directory /srv>").count(), 2, "{}", converted.text);
    has(&converted, &["\"Redirect /r /inner\"\n        \"Redirect /r /outer\";"]);
    assert!(converted.left.iter().any(|left| left.text.contains("^/a$ /b")), "{:?}", converted.left);
}

#[test]
fn proxies_and_their_groups() {
    let converted = of_host(
        "<Proxy balancer://app>\nBalancerMember http://10.0.0.1:8080 loadfactor=2\nBalancerMember http://10.0.0.2 status=+H\n</Proxy>\n\
         ProxyPass /app balancer://app\nProxyPass /socket ws://10.0.0.3:1/\nProxyPass /static !\nProxyPass /bad ajp://10.0.0.4\n\
         ProxyPass /unix unix:/run/a.sock|http://localhost/\n<Proxy *>\nRequire ip 192.0.2.0/24\n</Proxy>\nProxyPass /app/late http://10.0.0.5\n",
    );
    has(
        &converted,
        &[
            "upstream app {\n    server 10.0.0.1:8080 weight=2;\n    server 10.0.0.2:80 backup;\n}",
            "location /app/ {\n        htaccess off;\n        proxy_pass http://app/;",
            "location /socket/ {\n        htaccess off;\n        proxy_pass http://10.0.0.3:1/;\n        proxy_http_version 1.1;",
            "location /static/ {\n        htaccess on;",
            "location /bad/ {\n        htaccess off;\n        deny all;",
            "location /unix/ {\n        htaccess off;\n        proxy_pass http://unix:/run/a.sock:/;",
        ],
    );
    assert!(
        rules(&converted).contains("<Location \"/app\">\n    Require ip 192.0.2.0/24\n</Location>"),
        "{}",
        converted.text
    );
    assert_eq!(converted.left.len(), 2, "{:?}", converted.left);
}

#[test]
fn scripts_without_a_location_are_not_served() {
    let text = rules(&of_host("AddHandler application/x-httpd-php .inc\n"));
    assert!(text.contains("<FilesMatch \"\\.(phar|php|phtml)$\">\n    SetHandler application/x-httpd-php\n"), "{text}");
    assert!(text.contains("AddHandler application/x-httpd-php .inc\n"), "{text}");
    let input = Input {
        name: "a".into(),
        text: "DocumentRoot /srv\n<FilesMatch \"\\.php$\">\nSetHandler application/x-httpd-php\n</FilesMatch>\n".into(),
        folder: None,
        in_place: true,
    };
    let off = Options { php: "off".into(), snippet: true, ..Options::default() };
    let off = convert_apache(&[input], &off, &none).unwrap_or_else(|(_, e)| panic!("{e:?}"));
    assert!(rules(&off).contains("<FilesMatch \"\\.(php)$\">\n    SetHandler"), "{}", off.text);
}

#[test]
fn names_of_servers_keep_their_wildcards() {
    let converted = of_host("ServerAlias *.b.test a.* c*.test d?.test *\n");
    has(&converted, &["server_name a.test *.b.test a.* ~^c.*\\.test$ ~^d.\\.test$ ~^.*$;"]);
}

#[test]
fn nothing_is_dropped_without_a_word() {
    let converted = of_host(
        "IndexIgnore *.bak\nAddEncoding x-gzip .gz\nAcceptPathInfo On\nTimeout 100ms\nKeepAliveTimeout 5\nErrorLog site.log\nErrorLog syslog:local7\n\
         CustomLog \"|/bin/cat\" combined\nUnknownThing on\nSetOutputFilter DEFLATE\n",
    );
    assert_eq!(left(&converted), [4, 5, 6, 10, 11, 12], "{:?}", converted.left);
    has(&converted, &["send_timeout 100ms;", "keepalive_timeout 5s;", "error_log /etc/apache2/site.log;", "gzip on;"]);
}

#[test]
fn long_lines_are_split_into_words() {
    let long = format!("Header set X-Long {}\n", "ab\\\\.".repeat(2000));
    let converted = of_folder(&long);
    assert!(converted.text.lines().all(|line| line.len() < 4000), "{}", converted.text.len());
    assert!(converted.left.is_empty(), "{:?}", converted.left);
    rules(&converted);
}
