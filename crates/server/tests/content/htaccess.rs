//! `htaccess on;` against a real Apache: both serve the same directories, and status, Location, script with PATH_INFO
//! and query, bodies and fields are compared. Without Apache, with a notice, only Tidegate is tested.

use crate::support;

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use support::{Site, free_port, text, wait};

struct Case {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    requests: &'static [&'static str],
}

const FILES: &[(&str, &str)] = &[
    ("index.php", SCRIPT),
    ("other.php", SCRIPT),
    ("real.txt", "real"),
    ("style.css", "body {}"),
    ("page.html", "page"),
    ("data.bak", "secret"),
    ("sub/index.php", SCRIPT),
    ("sub/inner.txt", "inner"),
    ("sub/deep/x.txt", "deep"),
    ("empty/keep.txt", ""),
];

const SCRIPT: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nscript=%s info=%s query=%s' \"$SCRIPT_NAME\" \"$PATH_INFO\" \"$QUERY_STRING\"\n";

const COMMON: &[&str] = &[
    "GET /",
    "GET /?a=b",
    "GET /real.txt",
    "GET /real.txt?x=1",
    "GET /none",
    "GET /none/",
    "GET /none/more/x?a=b&c=d",
    "GET /sub",
    "GET /sub/",
    "GET /sub/inner.txt",
    "GET /sub/none",
    "GET /sub/deep/x.txt",
    "GET /sub/deep/none?q",
    "GET /index.php",
    "GET /index.php/path/info?x=y",
    "GET /other.php?z=1",
    "GET /none.php",
    "GET /.htaccess",
    "GET /style.css",
    "GET /data.bak",
    "GET /a%20b",
    "GET /caf%C3%A9?x=%20y",
    "GET /old/page",
    "GET /old",
    "GET /oldest",
    "POST /none",
    "HEAD /real.txt",
];

const CASES: &[Case] = &[
    Case {
        name: "a front controller with a base",
        files: &[(
            ".htaccess",
            "<IfModule mod_rewrite.c>\nRewriteEngine On\nRewriteBase /\nRewriteRule ^index\\.php$ - [L]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /index.php [L]\n</IfModule>\n",
        )],
        requests: &[],
    },
    Case {
        name: "a front controller that takes slashes off",
        files: &[(
            ".htaccess",
            "<IfModule mod_rewrite.c>\n<IfModule mod_negotiation.c>\nOptions -MultiViews -Indexes\n</IfModule>\nRewriteEngine On\nRewriteCond %{HTTP:Authorization} .\nRewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteCond %{REQUEST_URI} (.+)/$\nRewriteRule ^ %1 [L,R=301]\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]\n</IfModule>\n",
        )],
        requests: &["GET /none/ Authorization:Bearer", "GET /real.txt/", "GET /real.txt/x"],
    },
    Case {
        name: "a front controller that finds its own base",
        files: &[(
            ".htaccess",
            "DirectoryIndex index.php\nRewriteEngine On\nRewriteCond %{REQUEST_URI}::$0 ^(/.+)/(.*)::\\2$\nRewriteRule .* - [E=BASE:%1]\nRewriteCond %{HTTP:Authorization} .+\nRewriteRule ^ - [E=HTTP_AUTHORIZATION:%0]\nRewriteCond %{ENV:REDIRECT_STATUS} =\"\"\nRewriteRule ^index\\.php(?:/(.*)|$) %{ENV:BASE}/$1 [R=301,L]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ %{ENV:BASE}/index.php [L]\n",
        )],
        requests: &["GET /index.php/blog", "GET /index.php/"],
    },
    Case {
        name: "the path information, the query added",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteCond $1 !^(index\\.php|style\\.css)\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^(.*)$ index.php/$1 [L,QSA]\n",
        )],
        requests: &["GET /x/y?b=c"],
    },
    Case {
        name: "the path as a query, in a subfolder too",
        files: &[
            (
                ".htaccess",
                "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f [OR]\nRewriteCond %{QUERY_STRING} ^force\nRewriteRule ^(.+)$ index.php?q=$1 [L,QSA]\n",
            ),
            (
                "sub/.htaccess",
                "RewriteEngine On\nRewriteBase /sub/\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^(.*)$ index.php?sub=$1 [L]\n",
            ),
        ],
        requests: &["GET /real.txt?force", "GET /sub/none?a=b"],
    },
    Case {
        name: "redirects of several kinds",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^old/(.*)$ /new/$1 [R=301,L]\nRewriteRule ^ext$ http://other.example/x?y=1 [L]\nRewriteRule ^ext2$ https://other.example/%{QUERY_STRING} [R=307,NE,L]\nRewriteRule ^gone$ - [G]\nRewriteRule ^forbidden - [F]\nRewriteRule ^teapot$ - [R=406,L]\nRewriteRule ^nq$ /target? [R,L]\nRewriteRule ^qsd$ /target [R,QSD]\nRewriteRule ^sp\\ ace$ \"/with space\" [R]\nRewriteRule ^hash$ /x#frag [R,NE,L]\nRewriteRule ^hash2$ /x#frag [R,L]\n",
        )],
        requests: &[
            "GET /old/a/b?c=d",
            "GET /ext?q=1",
            "GET /ext2?a=b%20c",
            "GET /gone",
            "GET /forbiddenly",
            "GET /teapot",
            "GET /nq?x=1",
            "GET /qsd?x=1",
            "GET /sp%20ace",
            "GET /hash",
            "GET /hash2",
            "GET /old/caf%C3%A9",
        ],
    },
    Case {
        name: "redirects that are no rewriting",
        files: &[(
            ".htaccess",
            "Redirect 301 /old /new\nRedirect /temp http://other.example/t\nRedirectMatch 302 ^/m/(\\d+)$ /n?id=$1\nRedirectPermanent /perm /p\nRedirect gone /gone\nRedirectMatch 404 ^/hidden\n",
        )],
        requests: &[
            "GET /old/x?y=z",
            "GET /temp/a%20b",
            "GET /m/12",
            "GET /m/x",
            "GET /perm",
            "GET /gone/x",
            "GET /hidden.txt",
        ],
    },
    Case {
        name: "rewriting and redirects together",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^old/(.*)$ index.php?old=$1 [L]\nRedirect 302 /old /moved\nRewriteRule ^none$ index.php [L]\n",
        )],
        requests: &["GET /old/x"],
    },
    Case {
        name: "chains, skips and negation",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^a/(.*)$ b/$1 [C]\nRewriteRule ^b/(.*)$ c/$1\nRewriteRule ^s/(.*)$ t/$1 [S=1]\nRewriteRule ^t/(.*)$ index.php?skipped=$1 [L]\nRewriteRule ^c/(.*)$ index.php?c=$1 [L]\nRewriteRule ^t/(.*)$ other.php?t=$1 [L]\nRewriteRule !\\.(txt|css|php|html|bak)$ - [S=1]\nRewriteRule ^real\\.txt$ style.css [L]\n",
        )],
        requests: &["GET /a/1", "GET /b/2", "GET /s/3", "GET /t/4", "GET /c/5"],
    },
    Case {
        name: "rounds, ends and groups",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^(.*)_(.*)$ $1-$2 [N]\nRewriteRule ^e/(.*)$ /none/$1 [END]\nRewriteRule ^none/(.*)$ index.php?none=$1 [L]\nRewriteRule ^l/(.*)$ /none/$1 [L]\nRewriteCond %{QUERY_STRING} ^id=(\\d+)$\nRewriteRule ^by-id$ other.php?n=%1&p=$0 [L]\nRewriteCond %{QUERY_STRING} (?:^|&)a=([^&]*)\nRewriteRule ^amp$ other.php?v=%1 [L,QSA]\n",
        )],
        requests: &[
            "GET /a_b_c",
            "GET /real_.txt",
            "GET /e/1",
            "GET /l/1",
            "GET /by-id?id=12",
            "GET /by-id?id=x",
            "GET /amp?z=1&a=2",
        ],
    },
    Case {
        name: "rules that go in a circle",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^loop/(.*)$ loop/x/$1 [L]\nRewriteRule ^same$ same [L]\n",
        )],
        requests: &["GET /loop/a", "GET /same"],
    },
    Case {
        name: "conditions on the request",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteCond %{REQUEST_METHOD} =POST\nRewriteRule ^none$ index.php?post [L]\nRewriteCond %{HTTP_USER_AGENT} bot [NC]\nRewriteRule ^ - [F]\nRewriteCond %{HTTP_HOST} ^www\\.(.+)$ [NC]\nRewriteRule ^(.*)$ http://%1/$1 [R=301,L]\nRewriteCond %{HTTPS} !=on\nRewriteCond %{REQUEST_URI} ^/secure\nRewriteRule ^(.*)$ https://%{SERVER_NAME}/$1 [R=301,L]\nRewriteCond %{HTTP_COOKIE} user=([^;]+)\nRewriteRule ^who$ other.php?user=%1 [L]\nRewriteCond %{THE_REQUEST} \\s/index\\.php[\\s?]\nRewriteRule ^ / [R=301,L]\nRewriteCond %{QUERY_STRING} -lt 5\nRewriteRule ^number$ other.php?less [L]\nRewriteCond %{REQUEST_URI} >=/y\nRewriteCond %{REQUEST_URI} <=/z\nRewriteRule ^ other.php?between [L]\n",
        )],
        requests: &[
            "GET /real.txt User-Agent:SomeBot",
            "GET /x/y?q=1 Host:www.example.org",
            "GET /secure/x",
            "GET /who Cookie:a=b;user=joe",
            "GET /number?3",
            "GET /number?30",
            "GET /yes",
            "GET /y",
        ],
    },
    Case {
        name: "redirects without a base",
        files: &[(
            "sub/.htaccess",
            "RewriteEngine On\nRewriteRule ^rel$ target [R=302,L]\nRewriteRule ^abs$ /sub/target [R=302,L]\nRewriteRule ^inner\\.txt$ deep/x.txt [L]\nRewriteRule ^up$ ../real.txt [L]\n",
        )],
        requests: &["GET /sub/rel", "GET /sub/abs", "GET /sub/up"],
    },
    Case {
        name: "redirects with a base",
        files: &[(
            "sub/.htaccess",
            "RewriteEngine On\nRewriteBase /sub\nRewriteRule ^rel$ target [R=302,L]\nRewriteRule ^inner\\.txt$ deep/x.txt [L]\n",
        )],
        requests: &["GET /sub/rel?x=y"],
    },
    Case {
        name: "rules in two folders, inherited and not",
        files: &[
            (
                ".htaccess",
                "RewriteEngine On\nRewriteRule ^sub/deep/(.*)$ index.php?root=$1 [L]\nRewriteRule none index.php?root-none [L]\n",
            ),
            ("sub/.htaccess", "Options -Indexes\n"),
            ("sub/deep/.htaccess", "RewriteEngine On\nRewriteOptions Inherit\nRewriteRule ^x\\.txt$ - [L]\n"),
        ],
        requests: &["GET /sub/deep/y", "GET /sub/deep/none"],
    },
    Case {
        name: "an engine that is off",
        files: &[
            (".htaccess", "RewriteEngine On\nRewriteRule ^none index.php [L]\n"),
            ("sub/.htaccess", "RewriteEngine Off\n"),
        ],
        requests: &[],
    },
    Case {
        name: "files that are refused",
        files: &[(
            ".htaccess",
            "<FilesMatch \"\\.(bak|css)$\">\nRequire all denied\n</FilesMatch>\n<Files \"p*.html\">\nOrder allow,deny\nDeny from all\n</Files>\n<Files other.php>\nRequire ip 192.0.2.1\n</Files>\n",
        )],
        requests: &["GET /page.html"],
    },
    Case {
        name: "a folder that is refused, with an exception",
        files: &[
            ("sub/.htaccess", "Require all denied\n<Files inner.txt>\nRequire all granted\n</Files>\n"),
            ("sub/deep/.htaccess", "Require ip 127.0.0.1 ::1\n"),
        ],
        requests: &[],
    },
    Case {
        name: "addresses, in both languages",
        files: &[
            (".htaccess", "Order deny,allow\nDeny from all\nAllow from 127.0.0.0/8\n"),
            ("sub/.htaccess", "<RequireAll>\nRequire all granted\nRequire not ip 127.0.0.1\n</RequireAll>\n"),
            ("empty/.htaccess", "<Limit POST>\nOrder deny,allow\nDeny from all\n</Limit>\n"),
        ],
        requests: &["GET /empty/keep.txt", "POST /empty/keep.txt"],
    },
    Case {
        name: "pages for errors",
        files: &[(
            ".htaccess",
            "ErrorDocument 404 /page.html\nErrorDocument 403 \"Not for you\"\nErrorDocument 410 /other.php?gone\nRewriteEngine On\nRewriteRule ^g$ - [G]\nRewriteRule ^f$ - [F]\n",
        )],
        requests: &["GET /g", "GET /f"],
    },
    Case {
        name: "fields of responses",
        files: &[(
            ".htaccess",
            "Header set X-One 1\nHeader always set X-Always yes\nHeader set X-Gone x\nHeader unset X-Gone\nHeader append X-List a\nHeader append X-List b\nHeader merge X-List a\n<FilesMatch \"\\.css$\">\nHeader set Cache-Control \"max-age=60, public\"\nHeader unset ETag\n</FilesMatch>\nSetEnvIf Request_URI \"\\.txt$\" text\nHeader set X-Text yes env=text\nHeader set X-No yes env=!text\nSetEnv named value\nHeader set X-Named \"%{named}e 100%%\"\n",
        )],
        requests: &["GET /page.html"],
    },
    Case {
        name: "types, charsets and how long something holds",
        files: &[(
            ".htaccess",
            "AddType application/x-thing .bak\nAddDefaultCharset utf-8\n<Files real.txt>\nForceType text/html\n</Files>\nExpiresActive On\nExpiresDefault \"access plus 1 hour\"\nExpiresByType text/css A60\nRewriteEngine On\nRewriteRule ^page\\.html$ - [T=text/plain]\n",
        )],
        requests: &["GET /page.html"],
    },
    Case {
        name: "files that stand for a folder",
        files: &[
            (".htaccess", "DirectoryIndex none.html page.html index.php\nOptions -Indexes\n"),
            ("empty/.htaccess", "DirectoryIndex /other.php\n"),
        ],
        requests: &["GET /empty/", "GET /sub/deep/"],
    },
    Case {
        name: "variables of requests",
        files: &[(
            ".htaccess",
            "SetEnvIfNoCase User-Agent \"^bad(.*)\" bad=$1\nBrowserMatch good good\nOrder allow,deny\nAllow from all\nDeny from env=bad\nRewriteEngine On\nRewriteCond %{ENV:good} 1\nRewriteRule ^none$ index.php?good [L]\n",
        )],
        requests: &["GET /real.txt User-Agent:BadOne", "GET /none User-Agent:good", "GET /real.txt User-Agent:fine"],
    },
    Case {
        name: "an index whose own path is redirected",
        files: &[(
            ".htaccess",
            "DirectoryIndex page.html index.php\nRewriteEngine On\nRewriteRule ^page\\.html$ / [R=301,L]\nRewriteRule ^(.*)index\\.php$ /$1 [R=302,L]\n",
        )],
        requests: &["GET /page.html", "GET /sub/index.php"],
    },
    Case {
        name: "rules that indexes are free of",
        files: &[(
            ".htaccess",
            "DirectoryIndex page.html index.php\nRewriteEngine On\nRewriteRule ^page - [F,NS]\nRewriteCond %{IS_SUBREQ} true\nRewriteRule ^sub/index\\.php$ /other.php?looked-up [L]\n",
        )],
        requests: &["GET /page.html"],
    },
    Case {
        name: "indexes of which one is refused",
        files: &[(
            ".htaccess",
            "DirectoryIndex page.html index.php\n<Files page.html>\nRequire all denied\n</Files>\n",
        )],
        requests: &["GET /page.html", "GET /empty/"],
    },
    Case {
        name: "question marks of clients",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^q/(.*)$ index.php?q=$1 [L]\nRewriteRule ^raw/(.*)$ /$1 [L]\nRewriteRule ^b/(.*)$ other.php?q=$1 [B,L]\nRewriteRule ^u/(.*)$ /$1 [UnsafeAllow3F,L]\nRewriteRule ^l/(.*)$ index.php?a=$1 [QSL,L]\n",
        )],
        requests: &["GET /q/a%3Fb", "GET /raw/a%3Fb", "GET /b/a%3Fb", "GET /u/a%3Fb", "GET /l/a%3Fb"],
    },
    Case {
        name: "redirects whose target begins with a group",
        files: &[(".htaccess", "RedirectMatch 301 (.*)\\.htm$ $1.html\nRedirectMatch 302 ^/e(.*)$ /f$1?a=b#c\n")],
        requests: &["GET /page.htm", "GET /sub/a%20b.htm?x=y", "GET /ex"],
    },
    Case {
        name: "variables by patterns for names of fields",
        files: &[(
            ".htaccess",
            "SetEnvIf ^X-Let.* yes letin\nSetEnvIfNoCase \"^user.agent$\" BOT bot\nHeader set X-Let yes env=letin\nHeader set X-Bot yes env=bot\n",
        )],
        requests: &["GET /real.txt X-Let-Me:yes", "GET /real.txt X-Let-Me:no", "GET /real.txt User-Agent:robot"],
    },
    Case {
        name: "fields that decide are named",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteCond %{HTTP_USER_AGENT} bot\nRewriteCond %{HTTP:X-Other} yes\nRewriteRule ^real\\.txt$ page.html [L]\nRewriteCond %{HTTP_COOKIE} a [NV]\nRewriteRule ^style - [E=x:1]\nRewriteCond %{HTTP_REFERER} none\nRewriteRule ^page - [F]\n",
        )],
        requests: &[
            "GET /real.txt User-Agent:bot X-Other:yes",
            "GET /real.txt User-Agent:bot",
            "GET /style.css Cookie:a",
            "GET /page.html Referer:x",
        ],
    },
    Case {
        name: "fields with several lines",
        files: &[(
            ".htaccess",
            "Header add X-Add one\nHeader add X-Add two\nHeader append X-Add three\nHeader merge X-Add one\nHeader set X-List \"a, b\"\nHeader merge X-List b\n",
        )],
        requests: &[],
    },
    Case {
        name: "fields of error documents",
        files: &[(
            ".htaccess",
            "ErrorDocument 404 /page.html\nErrorDocument 403 \"No\"\nHeader set X-One 1\nHeader always set X-Two 2\n<Files data.bak>\nRequire all denied\n</Files>\n",
        )],
        requests: &[],
    },
    Case {
        name: "alternatives whose last one fails",
        files: &[(
            ".htaccess",
            "RewriteEngine On\nRewriteCond %{REQUEST_METHOD} =PUT [OR]\nRewriteCond %{QUERY_STRING} force [OR]\nRewriteRule ^real\\.txt$ page.html [L]\nRewriteCond %{REQUEST_METHOD} =PUT [OR]\nRewriteCond %{QUERY_STRING} force\nRewriteRule ^style\\.css$ page.html [L]\n",
        )],
        requests: &["GET /style.css?force"],
    },
    Case { name: "no entity tags", files: &[(".htaccess", "FileETag None\n")], requests: &[] },
    Case {
        name: "a directive limited to methods",
        files: &[(
            ".htaccess",
            "<Limit POST>\nRequire all denied\n</Limit>\n<LimitExcept GET POST>\nOrder allow,deny\n</LimitExcept>\n<Files page.html>\n<Limit GET>\nDeny from all\n</Limit>\n</Files>\n",
        )],
        requests: &["POST /real.txt", "POST /page.html", "OPTIONS /real.txt"],
    },
    Case {
        name: "links that are not followed",
        files: &[(".htaccess", "Options -FollowSymLinks\nRewriteEngine On\nRewriteRule ^none$ page.html [L]\n")],
        requests: &[],
    },
    Case {
        name: "an unknown directive",
        files: &[("sub/.htaccess", "Options -Indexes\nNoSuchThing On\n")],
        requests: &[],
    },
    Case {
        name: "a section that does not close",
        files: &[("sub/.htaccess", "<Files x>\nRequire all denied\n")],
        requests: &[],
    },
    Case {
        name: "a pattern that is none",
        files: &[("sub/.htaccess", "RewriteEngine On\nRewriteRule ^( x [L]\n")],
        requests: &[],
    },
    Case {
        name: "what is for modules that are not there",
        files: &[(
            ".htaccess",
            "<IfModule mod_php.c>\nphp_value x y\n</IfModule>\n<IfModule !mod_php.c>\nRewriteEngine On\nRewriteRule ^none$ index.php [L]\n</IfModule>\n<IfVersion >= 2.4>\nHeader set X-V new\n</IfVersion>\n",
        )],
        requests: &[],
    },
];

const APACHE: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";

/// A real Apache in the foreground.
struct Apache(Child);

impl Apache {
    fn start(site: &Site, port: u16) -> Apache {
        let dir = site.dir.display();
        site.write("conf/mime.types", "text/html html\ntext/css css\ntext/plain txt\napplication/x-bak bak\n");
        let mut conf = format!(
            "ServerRoot {dir}\nPidFile {dir}/logs/apache.pid\nErrorLog {dir}/logs/apache.log\nLogLevel warn rewrite:trace3\n\
             Listen 127.0.0.1:{port}\nServerName localhost\nStartServers 2\nMutex posixsem\n"
        );
        for module in [
            "mpm_prefork",
            "authz_core",
            "authz_host",
            "access_compat",
            "alias",
            "dir",
            "mime",
            "rewrite",
            "headers",
            "expires",
            "setenvif",
            "env",
            "cgi",
            "negotiation",
            "autoindex",
            "filter",
            "deflate",
        ] {
            let file = format!("{MODULES}/mod_{module}.so");
            if Path::new(&file).exists() {
                conf += &format!("LoadModule {module}_module {file}\n");
            }
        }
        conf += &format!(
            "TypesConfig {dir}/conf/mime.types\nUser www-data\nGroup www-data\nDocumentRoot {dir}/html\nDirectoryIndex index.html index.php\n\
             AddHandler cgi-script .php\n<Directory {dir}/html>\nOptions FollowSymLinks ExecCGI\nAllowOverride All\nRequire all granted\n\
             </Directory>\n<Files \".ht*\">\nRequire all denied\n</Files>\n"
        );
        site.write("conf/apache.conf", &conf);
        let mut command = Command::new(APACHE);
        // Apache sends TERM to its process group at its end, which must not be the test's.
        command.process_group(0);
        command.arg("-f").arg(site.path("conf/apache.conf")).arg("-DFOREGROUND");
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("apache starts");
        let apache = Apache(child);
        // A connection would not show whose port it is. Apache writes the pid file after it has opened its sockets.
        wait("apache", || match site.read("logs/apache.pid").as_str() {
            "" => Err(site.read("logs/apache.log")),
            _ => Ok(()),
        });
        apache
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        support::signal(self.0.id(), "TERM");
        let _ = self.0.wait();
    }
}

fn ours(port: u16, scripts: u16) -> String {
    format!(
        "http {{
            types {{ text/html html; text/css css; text/plain txt; application/x-bak bak; }}
            default_type application/x-none;
            server {{
                listen 127.0.0.1:{port};
                server_name localhost;
                root html;
                index index.html index.php;
                htaccess on;
                location / {{ }}
                location ~ ^(?<script>/.*?\\.php)(?<info>/.*)?$ {{
                    try_files $script =404;
                    proxy_pass http://127.0.0.1:{scripts};
                    proxy_set_header X-Script $script;
                    proxy_set_header X-Info $info;
                    proxy_set_header X-Query $args;
                }}
            }}
            server {{
                listen 127.0.0.1:{scripts};
                location / {{ default_type text/plain; return 200 \"script=$http_x_script info=$http_x_info query=$http_x_query\"; }}
            }}
        }}"
    )
}

/// Compared parts of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    status: String,
    location: Option<String>,
    fields: Vec<String>,
    body: String,
}

fn ask(port: u16, request: &str) -> Seen {
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut fields = String::new();
    let mut host = format!("localhost:{port}");
    for word in words {
        let (name, value) = word.split_once(':').expect("a field");
        if name == "Host" {
            host = value.to_string();
        } else {
            fields += &format!("{name}: {value}\r\n");
        }
    }
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
    write!(stream, "{method} {target} HTTP/1.0\r\nHost: {host}\r\n{fields}{length}\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    let answer = text(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let field = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_string()).collect::<Vec<_>>()
    };
    let status = head.split(' ').nth(1).unwrap_or_default().to_string();
    let mut kept: Vec<String> = head
        .lines()
        .filter(|line| {
            let line = line.to_ascii_lowercase();
            ["x-", "cache-control", "vary"].iter().any(|start| line.starts_with(start))
        })
        .map(|line| line.to_ascii_lowercase().replace(", ", ","))
        .collect();
    if status == "200" {
        kept.extend(field("Content-Type").into_iter().map(|value| value.to_ascii_lowercase().replace("; ", ";")));
    }
    kept.sort();
    let own_page = body.contains("<hr>") || body.contains("<!DOCTYPE HTML PUBLIC");
    Seen {
        location: field("Location").pop().map(|value| value.replace(&format!(":{port}"), "")),
        fields: kept,
        // Error pages differ between the servers.
        body: if own_page { String::new() } else { body.to_string() },
        status,
    }
}

fn lay_out(site: &Site, case: &Case) {
    let _ = std::fs::remove_dir_all(site.path("html"));
    for (name, content) in FILES.iter().chain(case.files) {
        let path = site.path(&format!("html/{name}"));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(&path, content).expect("a file");
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    }
}

#[test]
fn folders_say_the_same_to_apache() {
    if !Path::new(APACHE).exists() || !rustix_is_root() {
        eprintln!("there is no {APACHE} that could be started here: nothing is compared");
        return;
    }
    let (port, scripts, apache_port) = (free_port(), free_port(), free_port());
    let site = Site::new("daemon off;", &ours(port, scripts));
    lay_out(&site, &CASES[0]);
    let running = site.start();
    let apache = Apache::start(&site, apache_port);
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in CASES {
        lay_out(&site, case);
        for request in COMMON.iter().chain(case.requests) {
            let (mine, its) = (ask(port, request), ask(apache_port, request));
            count += 1;
            if mine != its {
                wrong.push(format!("{}: {request}\n  apache {its:?}\n  ours   {mine:?}", case.name));
            }
        }
    }
    drop(apache);
    running.quit();
    site.assert_no_alerts();
    assert!(wrong.is_empty(), "{} of {count} answers differ\n{}", wrong.len(), wrong.join("\n"));
}

fn rustix_is_root() -> bool {
    text(&Command::new("id").arg("-u").output().expect("id").stdout).trim() == "0"
}

#[test]
fn a_broken_file_is_named_with_its_line() {
    let (port, scripts) = (free_port(), free_port());
    let site = Site::new("daemon off;", &ours(port, scripts));
    lay_out(&site, &CASES[0]);
    let running = site.start();
    site.write("html/sub/.htaccess", "Options -Indexes\n\nNoSuchThing On\n");
    assert_eq!(ask(port, "GET /sub/inner.txt").status, "500");
    let place = site.path("html/sub/.htaccess").display().to_string();
    site.wait_for_log(&format!("Invalid command 'NoSuchThing', perhaps misspelled or defined by a module not included in the server configuration in {place}:3"), 1);
    // A corrected file is read at once, and a removed one is dropped.
    site.write("html/sub/.htaccess", "Require all denied\n");
    assert_eq!(ask(port, "GET /sub/inner.txt").status, "403");
    std::fs::remove_file(site.path("html/sub/.htaccess")).expect("removed");
    assert_eq!(ask(port, "GET /sub/inner.txt").status, "200");
    running.quit();
    site.assert_no_alerts();
}

/// The output of `tidegate convert` is a valid configuration for any `.htaccess` file.
#[test]
fn converted_files_pass_the_test() {
    let site = Site::new("", "");
    for case in CASES {
        let Some((_, content)) = case.files.iter().find(|(name, _)| *name == ".htaccess") else { continue };
        site.write("html/.htaccess", content);
        let path = site.path("html/.htaccess");
        let output = Command::new(support::BINARY).args(["convert", "apache"]).arg(&path).output().expect("runs");
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {}", case.name, text(&output.stderr));
        let converted = text(&output.stdout);
        site.write("conf/nginx.conf", &converted);
        let checked = site.run(&["-t"]);
        assert!(checked.status.success(), "{}: {}\n{converted}", case.name, text(&checked.stderr));
    }
}
