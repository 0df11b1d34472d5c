//! `tidegate serve [DIR]`: serves a directory with a configuration generated in memory.

/// Prints a line. A server outlives the reader of its output.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod authority;
mod domain;

use crate::conf::{self, Invocation};
use crate::process::control::{self, ControlThread, Orders};
use crate::process::listeners::{Listeners, Purpose};
use crate::process::single::Single;
use crate::process::{reload, worker_process};
use crate::{messages, report};
use conf_schema::TextStore;
use conf_syntax::Disk;
use domain::{Domain, DomainLines};
use observe::LogFiles;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const HELP: &str = "\
Usage: tidegate serve [DIR] [--listen ADDRESS] [--tls | --domain NAME]

Serves the files of a directory (default: the current one) until Ctrl-C: index.html if it exists,
a directory listing otherwise, with headers for browser caching.

  --listen ADDRESS   PORT, IP:PORT or [IPv6]:PORT (default: 127.0.0.1:8080, or the next free port)
  --tls              HTTPS with HTTP/2 (default port: 8443). The certificate comes from a local authority
                     that is created on first use and restricted to this machine and private networks;
                     the command prints how to trust it
  --domain NAME      a public site: HTTPS with HTTP/2 and HTTP/3 on port 443, an automatically
                     renewed certificate from Let's Encrypt, and a redirect from port 80. May be
                     repeated: --domain a.example --domain b.example
  --email ADDRESS    contact for the certificate authority
  --acme URL         ACME directory of another authority
  --acme-ca FILE     CA certificates (PEM) to verify that authority with
  --http ADDRESS     address to use instead of port 80, if a forwarder maps port 80 to it
  --print            print the generated configuration instead of running it

Only this machine can reach the default address. --listen 0.0.0.0:8080 opens it to the network.
";

const PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;
/// Number of ports to try if the command line names none.
const PORTS_MAX: u16 = 100;

#[derive(Debug, PartialEq, Eq)]
struct Request {
    directory: PathBuf,
    listen: Option<SocketAddr>,
    print: bool,
    tls: bool,
    domain: Option<Domain>,
}

pub fn run_serve(arguments: &[OsString]) -> i32 {
    match start(arguments) {
        Ok(code) => code,
        Err(words) => {
            eprintln!("tidegate: {words}");
            1
        }
    }
}

fn start(arguments: &[OsString]) -> Result<i32, String> {
    let request = parse(arguments)?;
    let directory = check_directory(&request.directory)?;
    let port = if request.tls { TLS_PORT } else { PORT };
    if let Some(domain) = &request.domain {
        return start_domain(&request, domain, &directory);
    }
    if request.print {
        let address = request.listen.unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        let lines = match request.tls {
            true => authority::site_configuration(address, Some("/var/lib/tidegate/acme")),
            false => plain(address),
        };
        base::out!("{}", site(&root_of(&directory), &lines));
        return Ok(0);
    }
    let address = choose_address(request.listen, port, "--listen")?;
    let root = if request.tls { Some(authority::authority_certificate()?) } else { None };
    let lines = match &root {
        None => plain(address),
        Some(root) => {
            let folder = root.as_ref().ok().and_then(|file| file.parent()).map(Path::to_string_lossy);
            authority::site_configuration(address, folder.as_deref())
        }
    };
    let text = site(&root_of(&directory), &lines);
    run_configuration(text, &directory, &address.to_string(), || match &root {
        None => tell!("  http://{address}/"),
        Some(root) => tell_of_tls(address, root),
    })
}

fn start_domain(request: &Request, domain: &Domain, directory: &Path) -> Result<i32, String> {
    domain.check(request.listen)?;
    let root = root_of(directory);
    if request.print {
        base::out!("{}", site(&root, &domain.configuration(request.listen, "/var/lib/tidegate/acme")));
        return Ok(0);
    }
    let (http, https) = domain.addresses(request.listen);
    for (addresses, option) in [(&http, "--http"), (&https, "--listen")] {
        for address in addresses.iter().filter(|address| address.is_ipv4()) {
            choose_address(Some(*address), 0, option)?;
        }
    }
    let state = Domain::state_path()?;
    let text = site(&root, &domain.configuration(request.listen, &state.to_string_lossy()));
    run_configuration(text, directory, "the site's addresses", || domain.tell(request.listen))
}

/// Runs a configuration until a signal ends it. `tell` prints the address.
fn run_configuration(text: String, directory: &Path, addresses: &str, tell: impl FnOnce()) -> Result<i32, String> {
    let invocation = Invocation {
        conf_file: directory.join("tidegate serve"),
        error_log: None,
        error_log_said: false,
        pid: PathBuf::new(),
        globals: Vec::new(),
        text: Some(text.into_bytes()),
        prefix: if root_of(directory) == HERE { HERE.into() } else { directory.to_path_buf() },
    };
    std::env::set_current_dir(directory)
        .map_err(|e| format!("\"{}\" {}", directory.display(), observe::os_error(&e)))?;
    messages::report_bugs();
    let reading = conf::read_config(&Disk, TextStore::default(), &invocation, LogFiles::default());
    let config = match reading.config {
        Ok(config) => config,
        Err(failure) => return Err(format!("the built-in configuration is refused: {}", report::first_line(&failure))),
    };
    messages::set_log(config.error_log.clone());
    let logs = reload::open_logs(&config.logs).map_err(|_| "the output cannot be opened for the access log")?;
    reload::commit_logs(logs);
    let listeners = Listeners::open(&config.specs(), config.core.workers, &Listeners::default(), Purpose::Serve)
        .map_err(|_| format!("{addresses} cannot be opened"))?;
    worker_process::set_limits(&config.core);
    tell!("Serving {} at", directory.display());
    tell();
    tell!("Press Ctrl-C to stop.");
    let single = Single { pid_file: false, keeper: Arc::default() };
    Ok(control::run_control(ControlThread {
        invocation,
        config,
        listeners,
        orders: Orders::Signals(single),
        refusals: None,
    }))
}

fn tell_of_tls(address: SocketAddr, root: &Result<PathBuf, String>) {
    // Browsers and certificates use a name instead of the loopback address.
    let host = if address.ip().is_loopback() { "localhost".into() } else { address.ip().to_string() };
    let url = format!("https://{host}:{}/", address.port());
    tell!("  {url}");
    let path = match root {
        Ok(path) => path,
        Err(why) => {
            tell!("The local authority is valid for this run only, because it cannot be saved ({why}).");
            return;
        }
    };
    let path = path.display();
    tell!("A local authority has issued the certificate. To trust it:");
    tell!("  curl      curl --cacert {path} {url}");
    tell!("  Debian    sudo cp {path} /usr/local/share/ca-certificates/tidegate.crt && sudo update-ca-certificates");
    tell!("  Chromium  certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n tidegate -i {path}");
    tell!("  Firefox   Settings, Privacy & Security, View Certificates, Authorities, Import");
}

fn parse(arguments: &[OsString]) -> Result<Request, String> {
    use lexopt::Arg::{Long, Short, Value};
    let (mut directory, mut listen, mut print, mut tls) = (None, None, false, false);
    let mut domain = Domain::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|e| e.to_string())? {
        match argument {
            Value(path) if directory.is_none() => directory = Some(PathBuf::from(path)),
            Value(path) => {
                return Err(format!("only one directory can be served: \"{}\" is a second one", path.display()));
            }
            Long("listen") | Short('l') => {
                let text =
                    parser.value().map_err(|_| "--listen needs an address such as 127.0.0.1:8080".to_string())?;
                listen = Some(parse_address(&text.to_string_lossy())?);
            }
            Long("print") => print = true,
            Long("tls") => tls = true,
            Long(option @ ("domain" | "email" | "acme" | "acme-ca" | "http")) => {
                let option = option.to_string();
                let value = parser.value().map_err(|_| format!("--{option} needs a value"))?;
                let text = value.to_string_lossy().into_owned();
                match option.as_str() {
                    "domain" => domain.names.push(text),
                    "email" => domain.email = Some(text),
                    "acme" => domain.authority = Some(text),
                    "http" => domain.http = Some(parse_address(&text)?),
                    _ => {
                        let path =
                            std::path::absolute(&value).map_err(|e| format!("\"{text}\" {}", observe::os_error(&e)))?;
                        std::fs::File::open(&path)
                            .map_err(|e| format!("--acme-ca: open() \"{text}\" failed {}", observe::os_error(&e)))?;
                        domain.authority_trust = Some(path);
                    }
                }
            }
            other => return Err(format!("{}\n  = \"tidegate serve --help\" lists the options", other.unexpected())),
        }
    }
    let is_public = !domain.names.is_empty();
    if !is_public && domain != Domain::default() {
        return Err("--email, --acme, --acme-ca and --http belong to --domain".into());
    }
    if is_public && tls {
        return Err("--tls is for this machine, --domain for a public name: choose one".into());
    }
    let domain = is_public.then_some(domain);
    Ok(Request { directory: directory.unwrap_or_else(|| ".".into()), listen, print, tls, domain })
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let port_of = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
    let found = match text.strip_prefix("localhost:").or(text.strip_prefix(':')) {
        Some(port) => port_of(port).map(local),
        None => port_of(text).map(local).or_else(|| text.parse::<SocketAddr>().ok().filter(|a| a.port() != 0)),
    };
    found.ok_or_else(|| format!("\"{text}\" is not an address: write 8080, 127.0.0.1:8080 or [::1]:8080"))
}

fn check_directory(path: &Path) -> Result<PathBuf, String> {
    let name = path.display();
    match std::fs::metadata(path) {
        Ok(found) if !found.is_dir() => {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            return Err(format!(
                "\"{name}\" is not a directory; to serve its folder: tidegate serve {}",
                parent.display()
            ));
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(format!("directory \"{name}\" does not exist")),
        Err(e) => return Err(format!("\"{name}\" cannot be served {}", observe::os_error(&e))),
    }
    if let Err(e) = std::fs::read_dir(path) {
        let remedy = match e.kind() {
            ErrorKind::PermissionDenied => ": change its permissions, or run the command as its owner",
            _ => "",
        };
        return Err(format!("\"{name}\" cannot be read {}{remedy}", observe::os_error(&e)));
    }
    std::path::absolute(path).map_err(|e| format!("\"{name}\" cannot be served {}", observe::os_error(&e)))
}

/// Returns the directory as an argument of `root`. A name that a configuration cannot contain (a `$`, bytes that are
/// not UTF-8) becomes the current directory, to which the caller changes.
fn root_of(directory: &Path) -> String {
    match directory.to_str() {
        Some(text) if !text.contains(['$', '\n', '\r', '\t']) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        _ => HERE.into(),
    }
}

const HERE: &str = "/proc/self/cwd";

/// Returns the listen address: the given one, or the first free port. `option` gives the address.
fn choose_address(asked: Option<SocketAddr>, first: u16, option: &str) -> Result<SocketAddr, String> {
    if let Some(address) = asked {
        return match TcpListener::bind(address) {
            Ok(_) => Ok(address),
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                Err(format!("{address} is in use by another program; choose another port with {option}"))
            }
            Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(format!(
                "no permission to listen on {address}: ports below 1024 are reserved for root; try {option} {}",
                SocketAddr::new(address.ip(), PORT)
            )),
            Err(e) if e.kind() == ErrorKind::AddrNotAvailable => {
                Err(format!("{} is not an address of this machine", address.ip()))
            }
            Err(e) => Err(format!("cannot listen on {address} {}", observe::os_error(&e))),
        };
    }
    (first..first + PORTS_MAX)
        .map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
        .find(|address| TcpListener::bind(address).is_ok())
        .ok_or_else(|| {
            format!("the ports {first} to {} are all in use; choose one with --listen", first + PORTS_MAX - 1)
        })
}

fn plain(address: SocketAddr) -> DomainLines {
    DomainLines {
        before: String::new(),
        listens: format!("        listen {address};\n"),
        server: String::new(),
        level: "",
    }
}

fn site(root: &str, lines: &DomainLines) -> String {
    let DomainLines { before, listens, server, level } = lines;
    format!(
        "# The configuration of \"tidegate serve\", as a starting point for your own.
daemon off;
master_process off;
worker_processes auto;
error_log stderr{level};

events {{
}}

http {{
{TYPES}
    default_type application/octet-stream;
    log_format brief '$remote_addr  $status  $body_bytes_sent  $request_method $request_uri';
    access_log /dev/stdout brief;
    log_not_found off;
    sendfile on;

{before}    server {{
{listens}{server}        root {root};
        index index.html;
        autoindex on;
        autoindex_exact_size off;
        # Browsers keep what they have, and ask whether it is still good.
        add_header Cache-Control no-cache;
    }}
}}
"
    )
}

const TYPES: &str = "    types {
        text/html                 html htm;
        text/css                  css;
        text/plain                txt md log conf;
        text/csv                  csv;
        text/xml                  xml;
        text/javascript           js mjs;
        application/json          json map;
        application/manifest+json webmanifest;
        application/pdf           pdf;
        application/wasm          wasm;
        application/gzip          gz tgz;
        application/zip           zip;
        image/avif                avif;
        image/gif                 gif;
        image/jpeg                jpg jpeg;
        image/png                 png;
        image/svg+xml             svg;
        image/webp                webp;
        image/x-icon              ico;
        font/otf                  otf;
        font/ttf                  ttf;
        font/woff                 woff;
        font/woff2                woff2;
        audio/flac                flac;
        audio/mpeg                mp3;
        audio/ogg                 ogg oga opus;
        audio/wav                 wav;
        video/mp4                 mp4 m4v;
        video/ogg                 ogv;
        video/webm                webm;
    }
";

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn addresses_have_default_ports() {
        for (text, want) in [
            ("9000", Some("127.0.0.1:9000")),
            (":9000", Some("127.0.0.1:9000")),
            ("localhost:9000", Some("127.0.0.1:9000")),
            ("0.0.0.0:80", Some("0.0.0.0:80")),
            ("[::1]:8081", Some("[::1]:8081")),
            ("0", None),
            ("70000", None),
            ("example", None),
        ] {
            let got = parse_address(text).ok();
            assert_eq!(got, want.map(|text| text.parse().expect("an address")), "{text}");
        }
    }

    #[test]
    fn complaints_say_what_to_do() {
        let words = |list: &[&str]| start(&arguments(list)).expect_err("refused");
        assert_eq!(words(&["/none/such"]), "directory \"/none/such\" does not exist");
        assert!(words(&["/etc/passwd"]).contains("is not a directory; to serve its folder: tidegate serve /etc"));
        assert!(words(&["--port", "1"]).contains("--help"));
        assert!(words(&["a", "b"]).contains("second"));
        let taken = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = taken.local_addr().expect("address").to_string();
        assert!(words(&["--listen", &address, "/"]).contains("is in use by another program"));
        assert!(words(&["--listen", "192.0.2.1:8080", "/"]).contains("not an address of this machine"));
    }

    #[test]
    fn public_sites_have_options_of_their_own() {
        let refused = |list: &[&str]| parse(&arguments(list)).expect_err("refused");
        assert!(refused(&["--email", "a@b.test"]).contains("belong to --domain"));
        assert!(refused(&["--domain", "a.test", "--tls"]).contains("choose one"));
        let words = ["--domain", "a.test", "--domain", "b.test", "--acme", "https://c.test/dir", "--print"];
        let request = parse(&arguments(&words)).expect("accepted");
        let domain = request.domain.expect("a domain");
        let text = site("html", &domain.configuration(None, "state"));
        for line in [
            "uri https://c.test/dir;",
            "acme_certificate default a.test b.test;",
            "listen 0.0.0.0:443 quic;",
            "listen [::]:80 ipv6only=on;",
            "return 301 https://$host$request_uri;",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn a_taken_port_is_passed_over() {
        let first = choose_address(None, PORT, "--listen").expect("a free port");
        let _taken = TcpListener::bind(first).expect("it is free");
        assert_ne!(choose_address(None, PORT, "--listen").expect("another"), first);
    }
}
