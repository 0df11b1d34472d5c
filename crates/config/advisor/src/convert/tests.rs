//! Translations of Apache's lines.

use super::*;

fn of_folder(text: &str) -> Converted {
    let input = Input { name: ".htaccess".into(), text: text.into(), folder: Some("/srv/www".into()) };
    apache(&[input], &Options { snippet: true, ..Options::default() }).unwrap_or_else(|(_, e)| panic!("{e:?}"))
}

fn of_hosts(text: &str) -> Converted {
    let input = Input { name: "site.conf".into(), text: text.into(), folder: None };
    apache(&[input], &Options { snippet: true, ..Options::default() }).unwrap_or_else(|(_, e)| panic!("{e:?}"))
}

fn has(converted: &Converted, parts: &[&str]) {
    for part in parts {
        assert!(converted.text.contains(part), "{part} is not in:\n{}", converted.text);
    }
}

#[test]
fn a_front_controller_becomes_try_files() {
    let text = "<IfModule mod_rewrite.c>\nRewriteEngine On\nRewriteBase /\nRewriteRule ^index\\.php$ - [L]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /index.php [L]\n</IfModule>\n";
    let converted = of_folder(text);
    has(
        &converted,
        &[
            "location / {\n        try_files $uri $uri/ /index.php$is_args$args;",
            "fastcgi_split_path_info",
            "location ~ /\\.ht {\n        deny all;",
        ],
    );
    assert!(converted.left.is_empty(), "{:?}", converted.left);
    let with_query =
        of_folder("RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^(.*)$ index.php?q=$1 [L,QSA]\n");
    has(&with_query, &["try_files $uri @front;", "rewrite ^/(.*)$ /index.php?q=$1 last;"]);
}

#[test]
fn rules_become_rewrites_returns_and_ifs() {
    let converted = of_folder(
        "RewriteEngine On\nRewriteRule ^old/(.*)$ /new/$1 [R=301,L]\nRewriteCond %{HTTP_HOST} ^www\\.(.+)$ [NC]\n\
         RewriteRule ^(.*)$ https://%1/$1 [R=301,L]\nRewriteRule ^gone$ - [G]\nRewriteCond %{HTTPS} !=on\n\
         RewriteCond %{REQUEST_METHOD} =GET\nRewriteRule ^secure/ https://%{SERVER_NAME}%{REQUEST_URI} [R=302,L]\n",
    );
    has(
        &converted,
        &[
            "rewrite ^/old/(.*)$ /new/$1 permanent;",
            "if ($http_host ~* \"^www\\\\.(.+)$\") {",
            "rewrite ^/(.*)$ \"https://${rewrite_2_1}/$1\" permanent;",
            "return 410;",
            "if ($https != \"on\") {",
            "if ($rewrite_4 = \"11\") {",
        ],
    );
    assert!(converted.left.is_empty(), "{:?}", converted.left);
}

#[test]
fn what_is_left_is_named_with_its_line() {
    let converted = of_folder(
        "RewriteEngine On\nRewriteRule ^(.*)_(.*)$ $1-$2 [N]\n\nAddHandler cgi-script .cgi\n<If \"true\">\nHeader set A b\n</If>\n",
    );
    let lines: Vec<u32> = converted.left.iter().map(|left| left.line).collect();
    assert_eq!(lines, [2, 4, 5, 6]);
    has(&converted, &["# not converted: .htaccess:2: RewriteRule ^(.*)_(.*)$ $1-$2 [N]: rounds, chains and skips"]);
}

#[test]
fn a_virtual_host_becomes_a_server() {
    let converted = of_hosts(
        "<VirtualHost *:80>\nServerName example.com\nServerAlias www.example.com\nDocumentRoot /srv/www\nErrorLog ${APACHE_LOG_DIR}/error.log\n\
         CustomLog ${APACHE_LOG_DIR}/access.log combined\n<Directory /srv/www>\nOptions -Indexes +FollowSymLinks\nAllowOverride All\nRequire all granted\n\
         </Directory>\n<Directory /srv/www/private>\nOrder deny,allow\nDeny from all\nAllow from 10.0.0.0/8 192.168.1\n</Directory>\n\
         <FilesMatch \"\\.(bak|sql)$\">\nRequire all denied\n</FilesMatch>\nAlias /img /srv/images\nProxyPass /api http://127.0.0.1:8080\n\
         ProxyPassReverse /api http://127.0.0.1:8080\nRedirect permanent /old /new\nHeader always set X-Frame-Options DENY\n\
         ExpiresActive On\nExpiresDefault \"access plus 1 hour\"\nExpiresByType image/png \"access plus 1 month\"\nErrorDocument 404 /404.html\n</VirtualHost>\n",
    );
    has(
        &converted,
        &[
            "listen 80;",
            "server_name example.com www.example.com;",
            "root /srv/www;",
            "error_log /var/log/nginx/error.log;",
            "access_log /var/log/nginx/access.log combined;",
            "location ^~ /private/ {\n        allow 10.0.0.0/8;\n        allow 192.168.1.0/24;\n        deny all;",
            "location ~ \\.(bak|sql)$ {\n        deny all;",
            "location ^~ /img/ {\n        alias /srv/images/;",
            "location ^~ /api/ {\n        proxy_pass http://127.0.0.1:8080/;",
            "add_header X-Frame-Options \"DENY\" always;",
            "expires $expires_by_type;",
            "error_page 404 /404.html;",
            "^/old(?<rest>/.*)?$",
        ],
    );
    assert!(converted.left.is_empty(), "{:?}", converted.left);
}

/// Untranslatable protection stays closed.
#[test]
fn what_cannot_be_said_of_access_is_closed() {
    let converted = of_folder("Require user joe\n");
    has(&converted, &["deny all;", "# not converted: .htaccess:1: Require user joe"]);
}

#[test]
fn passwords_are_asked_for() {
    let converted =
        of_folder("AuthType Basic\nAuthName \"Staff only\"\nAuthUserFile /etc/passwords\nRequire valid-user\n");
    has(&converted, &["auth_basic \"Staff only\";", "auth_basic_user_file /etc/passwords;"]);
    assert!(converted.left.is_empty(), "{:?}", converted.left);
}

/// Shape of Debian's snippets: an alias and its directory, without a virtual host.
#[test]
fn lines_without_a_virtual_host_become_a_part_of_a_server() {
    let text = "Alias /phpmyadmin /usr/share/phpmyadmin\n<Directory /usr/share/phpmyadmin>\n Options SymLinksIfOwnerMatch\n \
                DirectoryIndex index.php\n</Directory>\n<Directory /usr/share/phpmyadmin/templates>\n Require all denied\n\
                </Directory>\n<Location /status>\n Require ip 192.0.2.0/24\n</Location>\nScriptAlias /cgi-bin/ /usr/lib/cgi-bin/\n";
    let part = of_hosts(text);
    has(
        &part,
        &[
            "# To be included in a server block.",
            "location ^~ /phpmyadmin/ {\n    alias /usr/share/phpmyadmin/;\n    index index.php;",
            "location ~ [^/]\\.php$ {",
            "fastcgi_param SCRIPT_FILENAME $request_filename;",
            "location ^~ /phpmyadmin/templates/ {\n    deny all;",
            "location ^~ /status {\n    allow 192.0.2.0/24;\n    deny all;",
        ],
    );
    assert!(!part.text.contains("server {"), "{}", part.text);
    assert_eq!(part.left.len(), 1, "{:?}", part.left);
    assert!(part.left[0].text.starts_with("ScriptAlias"), "{:?}", part.left);
    let input = || Input { name: "a.conf".into(), text: text.into(), folder: None };
    let whole = apache(&[input()], &Options::default()).unwrap_or_else(|(_, e)| panic!("{e:?}"));
    has(&whole, &["server {\n        listen 80;", "location ^~ /phpmyadmin/ {"]);
}

#[test]
fn lines_outside_hold_for_every_virtual_host() {
    let converted = of_hosts(
        "Alias /icons/ /usr/share/icons/\nRewriteEngine On\nRewriteRule ^/a$ /b\nLimitRequestBody 1000\n\
         <VirtualHost *:80>\nServerName a.test\nDocumentRoot /srv/a\n</VirtualHost>\n\
         <VirtualHost *:80>\nServerName b.test\nDocumentRoot /srv/b\nLimitRequestBody 5\n</VirtualHost>\n",
    );
    assert_eq!(converted.text.matches("alias /usr/share/icons/;").count(), 2, "{}", converted.text);
    assert_eq!(converted.text.matches("client_max_body_size 1000;").count(), 1, "{}", converted.text);
    assert!(converted.left.iter().any(|left| left.text.contains("^/a$ /b")), "{:?}", converted.left);
}

#[test]
fn values_stay_single_words_and_times_are_those_that_nginx_has() {
    let converted = of_folder(
        "AddDefaultCharset \"x;y\"\nDirectoryIndex \"a b.html\" c.php\nErrorDocument 404 http://x/$a\nExpiresActive On\n\
         ExpiresByType image/png A30\nExpiresByType text/css M5\nExpiresDefault \"modification plus 1 hour\"\n",
    );
    has(
        &converted,
        &["charset \"x;y\";", "index \"a b.html\" c.php;", "\"~*^image/png\" 30s;", "expires $expires_by_type;"],
    );
    assert!(!converted.text.lines().any(|line| !line.trim_start().starts_with('#') && line.contains("modified")));
    let lines: Vec<u32> = converted.left.iter().map(|left| left.line).collect();
    assert_eq!(lines, [3, 6, 7], "{:?}", converted.left);
    let alone = of_folder("ExpiresActive On\nExpiresDefault M5\nExpiresByType text/css A5\n");
    has(&alone, &["expires modified 5s;"]);
    assert_eq!(alone.left.iter().map(|left| left.line).collect::<Vec<_>>(), [3]);
    let host = of_hosts(
        "<VirtualHost *:80>\nServerName a\nAlias \"/x y\" /srv/x\n<Location \"/a b\">\nRequire all denied\n</Location>\n\
         Redirect gone \"/c;d\"\nHeader add \"A B\" c\n</VirtualHost>\n",
    );
    has(
        &host,
        &[
            "location ^~ \"/a b\" {",
            "location ^~ \"/x y/\" {",
            "return 301 \"/x y/\";",
            "location ^~ \"/c;d\" {",
            "add_header \"A B\" \"c\";",
        ],
    );
    let huge = of_folder(&format!("ExpiresDefault \"access plus {} years\"\n", u64::MAX));
    assert_eq!(huge.left.len(), 1);
}
